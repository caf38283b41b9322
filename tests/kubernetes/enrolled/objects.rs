//! What Argo CD's components write must fit the Application that the object belongs to. What they
//! send without impersonation acts as the account of that Application.

use serde_json::{Value, json};

use super::{COMPONENT, Scene};
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::session;

const ID: &str = "argocd.argoproj.io/tracking-id";

impl Scene {
    fn config_map(&self, name: &str, annotations: &Value) -> String {
        let metadata = json!({"name": name, "namespace": self.home, "annotations": annotations});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string()
    }

    /// A config map that an Application tracks.
    pub(super) fn tracked(&self, name: &str, application: &str) -> String {
        self.config_map(
            name,
            &json!({ID: format!("{application}:/ConfigMap:{}/{name}", self.home)}),
        )
    }

    /// Runs kubectl as a component, with the namespace of the Application.
    async fn run(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let namespace = format!("--namespace={}", self.home);
        let run = self
            .kubectl(COMPONENT)
            .run_with(&[&[namespace.as_str()], arguments].concat(), input)
            .await;
        if run.status.success() {
            Ok(run.stdout)
        } else {
            Err(run.stderr)
        }
    }

    /// The newest record with a verb, once there is one after `seen` records.
    async fn record(&self, verb: &str, seen: usize) -> Value {
        eventually("the decision is recorded", async || {
            let mut records = self.gateway.decisions().into_iter().skip(seen);
            records.find(|record| record["kubernetes"]["attributes"]["verb"] == verb)
        })
        .await
    }

    /// Runs kubectl, which must be refused by the gateway for this reason, at a request of this verb.
    async fn refused(&self, (arguments, input): (&[&str], &str), (verb, reason): (&str, &str)) {
        let seen = self.gateway.decisions().len();
        let refused = self
            .run(arguments, input)
            .await
            .expect_err(&format!("{arguments:?} {input}"));
        assert!(refused.to_lowercase().contains("forbidden"), "{arguments:?}: {refused}");
        let record = eventually("the denial is recorded", async || {
            let mut records = self.gateway.decisions().into_iter().skip(seen);
            records.find(|record| record["outcome"] == "denied")
        })
        .await;
        assert_eq!(record["reason"], reason, "{arguments:?} {input}: {record}");
        assert_eq!(record["status"], 403, "{record}");
        if record["kubernetes"].is_object() {
            assert_eq!(record["kubernetes"]["attributes"]["verb"], verb, "{record}");
            assert!(record["kubernetes"]["impersonated"].is_null(), "{record}");
        }
    }

    /// The writes that the API server saw from the gateway: the identity, the verb, the object's
    /// name, and whether it was a dry run.
    pub(super) fn writes(&self) -> Vec<(String, String, String, bool)> {
        let arrived = self.arrived().into_iter();
        let writes = arrived.filter(|(_, event)| {
            let verb = event["verb"].as_str().unwrap();
            let is_review = event["objectRef"]["apiGroup"] == "authorization.k8s.io";
            event["stage"] == "ResponseComplete" && !matches!(verb, "get" | "list" | "watch") && !is_review
        });
        let told = writes.map(|(who, event)| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let is_dry_run = text(&event["requestURI"]).contains("dryRun=All");
            (who, text(&event["verb"]), text(&event["objectRef"]["name"]), is_dry_run)
        });
        told.collect()
    }
}

#[tokio::test]
async fn a_write_fits_the_application_that_its_object_belongs_to() {
    let scene = Scene::start().await;
    let deployer = Scene::account(&scene.home, "deployer");
    let acting = format!("--as={deployer}");
    let create = ["create", "--filename=-", &acting];
    let apply = ["apply", "--server-side", "--force-conflicts", "--filename=-", &acting];
    for (object, name) in [
        (scene.tracked("own", "shop"), "own"),
        (scene.config_map("plain", &json!({})), "plain"),
    ] {
        let seen = scene.gateway.decisions().len();
        scene.run(&create, &object).await.unwrap();
        let record = scene.record("create", seen).await;
        assert_eq!(record["application"], "argocd:shop", "{name}: {record}");
        assert_eq!(record["project"], "shop", "{name}: {record}");
    }
    let administrator = scene.cluster.admin();
    administrator.apply(&scene.tracked("theirs", "cart")).await;
    administrator.apply(&scene.tracked("orphan", "gone")).await;
    // Whom they belong to, only an owner says that is not looked up: of a kind that no resource is found for, or
    // behind more owners than are read.
    let owners = |count: usize, kind: &str, version: &str| -> String {
        let owner =
            |at| json!({"apiVersion": version, "kind": kind, "name": format!("o{at}"), "uid": format!("u{at}")});
        let name = if count == 1 { "of-a-goose" } else { "of-many" };
        let mut object: Value = serde_json::from_str(&scene.config_map(name, &json!({}))).unwrap();
        object["metadata"]["ownerReferences"] = (0..count).map(owner).collect();
        object.to_string()
    };
    administrator.apply(&owners(1, "Goose", "birds.example/v1")).await;
    administrator.apply(&owners(9, "ConfigMap", "v1")).await;

    let another = "object_of_another_application";
    let foreign = json!({
        ID: format!("shop:/ConfigMap:{}/forged", scene.home),
        "argocd.argoproj.io/installation-id": "elsewhere",
    });
    let pointer = ID.replace('/', "~1");
    let set = |value: &str| format!(r#"[{{"op":"add","path":"/metadata/annotations/{pointer}","value":"{value}"}}]"#);
    let whole = r#"[{"op":"add","path":"/metadata/annotations","value":{}}]"#;
    let copied = json!({ID: format!("cart:/ConfigMap:{}/another-name", scene.home)});
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": scene.home},
        "involvedObject": {"namespace": scene.home},
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "made-by-argocd"}});
    let (set_theirs, set_own) = (set("cart:/ConfigMap:x/own"), set("shop:/ConfigMap:x/own"));
    let merge = format!(r#"{{"metadata":{{"annotations":{{"{ID}":"cart:/ConfigMap:x/own"}}}}}}"#);
    let remove = format!(r#"{{"metadata":{{"annotations":{{"{ID}":null}}}}}}"#);
    let patch = |name: &'static str, kind: &'static str, content: &str| {
        vec![
            "patch".to_owned(),
            "configmap".to_owned(),
            name.to_owned(),
            format!("--type={kind}"),
            format!("--patch={content}"),
            acting.clone(),
        ]
    };
    let owned = |arguments: &[&str]| {
        arguments
            .iter()
            .map(|argument| (*argument).to_owned())
            .collect::<Vec<_>>()
    };
    for (arguments, input, verb, reason) in [
        (owned(&create), scene.tracked("forged", "cart"), "create", another),
        (owned(&create), scene.tracked("forged", "gone"), "create", another),
        (
            owned(&create),
            scene.tracked("forged", "argocd_cart"),
            "create",
            another,
        ),
        (owned(&create), scene.config_map("forged", &copied), "create", another),
        (
            owned(&create),
            scene.config_map("forged", &foreign),
            "create",
            "object_unknown",
        ),
        (
            owned(&create),
            scene.config_map("forged", &json!({ID: "shop"})),
            "create",
            "object_unknown",
        ),
        (owned(&apply), scene.tracked("own", "cart"), "patch", another),
        (patch("own", "merge", &merge), String::new(), "patch", another),
        (patch("own", "json", &set_theirs), String::new(), "patch", another),
        (patch("own", "json", whole), String::new(), "patch", "object_unknown"),
        (
            patch("theirs", "merge", r#"{"data":{"a":"1"}}"#),
            String::new(),
            "patch",
            another,
        ),
        (patch("theirs", "merge", &remove), String::new(), "patch", another),
        (
            patch("orphan", "strategic", r#"{"data":{"a":"1"}}"#),
            String::new(),
            "patch",
            another,
        ),
        (
            owned(&["delete", "configmap", "theirs", "--wait=false", &acting]),
            String::new(),
            "delete",
            another,
        ),
        (
            owned(&["delete", "configmap", "of-a-goose", "--wait=false", &acting]),
            String::new(),
            "delete",
            "object_unknown",
        ),
        (
            patch("of-many", "merge", r#"{"data":{"a":"1"}}"#),
            String::new(),
            "patch",
            "object_unknown",
        ),
        (
            owned(&["create", "--filename=-", "--validate=false", &acting]),
            event.to_string(),
            "create",
            "project_refused",
        ),
        (
            owned(&["create", "namespace", "made-by-argocd", &acting]),
            namespace.to_string(),
            "create",
            "project_refused",
        ),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        scene.refused((&arguments, &input), (verb, reason)).await;
    }
    // The tracking id of the object itself may be written, and an object may be adopted, as in Argo CD.
    let own: Vec<String> = patch("own", "json", &set_own);
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    scene.run(&own, "").await.unwrap();
    scene.run(&apply, &scene.tracked("theirs", "shop")).await.unwrap();
    scene
        .run(&["delete", "configmap", "theirs", "--wait=false", &acting], "")
        .await
        .unwrap();

    let elsewhere = ["create", "configmap", "x", "--namespace=default", &acting];
    let refused = scene.kubectl(COMPONENT).fail(&elsewhere).await;
    assert!(
        refused.contains("namespace default is not permitted in project shop"),
        "{refused}"
    );

    for (who, verb, name, _) in scene.writes() {
        assert_eq!(who, deployer, "{verb} {name}");
        assert!(["own", "plain", "theirs"].contains(&&*name), "{verb} {name}");
    }
}

/// What cannot be read could carry any tracking id.
#[tokio::test]
async fn content_that_the_gateway_cannot_read_is_refused() {
    let scene = Scene::start().await;
    let proxy = reqwest::Proxy::all(scene.gateway.url()).unwrap();
    let authority = scene.gateway.authority().unwrap();
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(authority.as_bytes()).unwrap()])
        .tls_danger_accept_invalid_hostnames(true)
        .proxy(proxy)
        .build()
        .unwrap();
    let url = format!("{}/api/v1/namespaces/{}/configmaps", scene.cluster.url(), scene.home);
    let send = async |media: &str, content: String| {
        let request = client.post(&url).bearer_auth(session(COMPONENT)).body(content);
        let request = request.header("Content-Type", media);
        let request = request.header("Impersonate-User", Scene::account(&scene.home, "deployer"));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let object = |name: &str| scene.config_map(name, &json!({}));
    for (media, content) in [
        ("application/vnd.kubernetes.protobuf", "k8s\0\u{12}\u{7f}".to_owned()),
        ("application/cbor", object("x")),
        ("text/plain", object("x")),
        (
            "application/json",
            object("x").replacen("\"metadata\"", "\"metadata\":{},\"metadata\"", 1),
        ),
        (
            "application/json",
            object("x").replacen("\"metadata\"", "\"Metadata\"", 1),
        ),
        ("application/yaml", format!("<<: {}", object("x"))),
        ("application/json", "[]".to_owned()),
    ] {
        let (status, answer) = send(media, content.clone()).await;
        assert_eq!(
            (status, &answer["reason"]),
            (403, &json!("Forbidden")),
            "{media} {content}: {answer}"
        );
        let text = answer["message"].as_str().unwrap();
        assert!(
            text.contains("the content cannot be read, or has two readings"),
            "{text}"
        );
    }
    assert!(scene.writes().is_empty(), "{:?}", scene.writes());
    let (status, answer) = send("application/json", object("x")).await;
    assert_eq!(status, 201, "{answer}");
    assert_eq!(scene.writes().len(), 1);
}

/// A controller's stolen token names an account of one Application, and tries to reach the objects
/// of others by requests that name no object, or whose content claims what is not stored.
#[tokio::test]
async fn collections_and_content_of_subresources_reach_no_object_of_others() {
    let scene = Scene::start().await;
    let administrator = scene.cluster.admin();
    administrator.apply(&scene.tracked("theirs", "cart")).await;
    let home = &scene.home;
    scene.cluster.running_pod(home, "theirs").await;
    let claim = |application: &str| format!("{application}:/Pod:{home}/theirs");
    let tracked = format!("{ID}={}", claim("cart"));
    let here = format!("--namespace={home}");
    administrator
        .succeed(&["annotate", "pod", "theirs", &tracked, &here])
        .await;
    let account = format!("--as={}", Scene::account(home, "deployer"));
    let path = format!("/api/v1/namespaces/{home}/configmaps");
    for path in [
        path.clone(),
        format!("{path}?fieldSelector=metadata.name%3Dtheirs"),
        format!("{path}?labelSelector=a%3Db"),
        format!("{path}?dryRun=All"),
    ] {
        let arguments = ["delete", "--raw", &path, &account];
        scene
            .refused((&arguments, ""), ("deletecollection", "object_unknown"))
            .await;
    }
    let claims = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "theirs", "namespace": home, "annotations": {ID: claim("shop")}},
        "status": {"message": "taken over"},
    })
    .to_string();
    let status = format!("/api/v1/namespaces/{home}/pods/theirs/status");
    let arguments = ["replace", "--raw", &status, &account, "--filename=-"];
    scene
        .refused((&arguments, &claims), ("update", "object_of_another_application"))
        .await;
    assert!(scene.writes().is_empty(), "{:?}", scene.writes());
    // Its own objects one by one, and the subresource of one of them.
    administrator.apply(&scene.tracked("mine", "shop")).await;
    scene
        .run(&["delete", "configmap", "mine", "--wait=false", &account], "")
        .await
        .unwrap();
}

#[tokio::test]
async fn what_is_sent_without_impersonation_acts_as_the_account_of_its_application() {
    let scene = Scene::start().await;
    let deployer = Scene::account(&scene.home, "deployer");
    let cart = Scene::account(&scene.home, "cart");
    let administrator = scene.cluster.admin();
    scene.cluster.service_account(&scene.home, "cart").await;
    for name in ["kept", "deleted"] {
        administrator.apply(&scene.tracked(name, "shop")).await;
    }
    administrator.apply(&scene.tracked("theirs", "cart")).await;
    administrator.apply(&scene.config_map("plain", &json!({}))).await;

    let dry_run = [
        "apply",
        "--server-side",
        "--dry-run=server",
        "--force-conflicts",
        "--filename=-",
    ];
    let apply = ["apply", "--server-side", "--filename=-"];
    let seen = scene.gateway.decisions().len();
    scene.run(&dry_run, &scene.tracked("kept", "shop")).await.unwrap();
    scene.run(&dry_run, &scene.tracked("new", "shop")).await.unwrap();
    let record = scene.record("patch", seen).await;
    assert_eq!(record["application"], "argocd:shop", "{record}");
    let without = "write_without_account";
    let delete = |name: &'static str| ["delete", "configmap", name, "--wait=false"];
    let collection = format!("/api/v1/namespaces/{}/configmaps", scene.home);
    let label = ["label", "configmap", "kept", "a=b"];
    let label_dry = ["label", "configmap", "kept", "a=b", "--dry-run=server"];
    for (arguments, input, verb) in [
        (&apply[..], scene.tracked("kept", "shop"), "patch"),
        (&dry_run, scene.config_map("new", &json!({})), "patch"),
        (&dry_run, scene.config_map("plain", &json!({})), "patch"),
        (&dry_run, scene.tracked("kept", "gone"), "patch"),
        (&label, String::new(), "patch"),
        (&label_dry, String::new(), "patch"),
        (&delete("plain"), String::new(), "delete"),
        (&["delete", "--raw", &collection], String::new(), "deletecollection"),
        (&["create", "--filename=-"], scene.tracked("new", "shop"), "create"),
        (
            &["create", "--filename=-", "--dry-run=server"],
            scene.tracked("new", "shop"),
            "create",
        ),
    ] {
        scene.refused((arguments, &input), (verb, without)).await;
    }
    // A deletion without impersonation, as when no account matches at first.
    scene.run(&delete("deleted"), "").await.unwrap();
    // The account of the other Application may not: the API server decides.
    let refused = scene.run(&delete("theirs"), "").await.unwrap_err();
    assert!(refused.contains(&format!("User \"{cart}\" cannot delete")), "{refused}");

    for (who, verb, name, is_dry_run) in scene.writes() {
        match (verb.as_str(), name.as_str()) {
            ("patch", "kept" | "new") => assert!(is_dry_run && who == deployer, "{who} {name}"),
            ("delete", "deleted") => assert_eq!(who, deployer),
            ("delete", "theirs") => assert_eq!(who, cart),
            other => panic!("{who} {other:?}"),
        }
    }
    let left = administrator
        .json(&["get", "configmaps", &format!("--namespace={}", scene.home)])
        .await;
    let left: Vec<&str> = left["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect();
    assert!(
        left.contains(&"theirs") && left.contains(&"plain") && !left.contains(&"new"),
        "{left:?}"
    );
}

#[tokio::test]
async fn a_terminal_acts_as_the_account_of_the_topmost_owner() {
    let scene = Scene::start().await;
    let namespace = format!("--namespace={}", scene.home);
    let administrator = scene.cluster.admin();
    scene.cluster.service_account(&scene.home, "cart").await;
    for pod in ["shop", "cart", "plain"] {
        scene.cluster.running_pod(&scene.home, pod).await;
    }
    // The topmost owner of the first two is tracked, the last has none.
    for application in ["shop", "cart"] {
        let owner = format!("{application}-owner");
        administrator.apply(&scene.tracked(&owner, application)).await;
        let owner = administrator.json(&["get", "configmap", &owner, &namespace]).await;
        let reference = json!([{
            "apiVersion": "v1", "kind": "ConfigMap",
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        }]);
        let patch = format!("--patch={}", json!({"metadata": {"ownerReferences": reference}}));
        administrator
            .succeed(&["patch", "pod", application, &namespace, &patch])
            .await;
    }
    let echo = |pod: &'static str| ["exec", pod, "--", "sh", "-c", "echo hello"];
    let seen = scene.gateway.decisions().len();
    assert_eq!(scene.run(&echo("shop"), "").await.unwrap(), "hello\n");
    let record = scene.record("create", seen).await;
    assert_eq!(record["application"], "argocd:shop", "{record}");
    let refused = scene.run(&echo("cart"), "").await.unwrap_err();
    let cart = Scene::account(&scene.home, "cart");
    assert!(refused.contains(&format!("User \"{cart}\" cannot")), "{refused}");
    let refused = scene.run(&echo("plain"), "").await.unwrap_err();
    assert!(refused.contains("belongs to no Application"), "{refused}");
    let mut attach = scene.run(&["attach", "shop"], "").await.unwrap_err();
    attach.make_ascii_lowercase();
    assert!(attach.contains("no tunnels"), "{attach}");

    let execs = scene
        .arrived()
        .into_iter()
        .filter(|(_, event)| event["objectRef"]["subresource"] == "exec");
    let users: Vec<(String, Value)> = execs
        .map(|(who, event)| (who, event["objectRef"]["name"].clone()))
        .collect();
    let deployer = Scene::account(&scene.home, "deployer");
    assert!(!users.is_empty());
    for (who, pod) in users {
        let is_right = (who == deployer && pod == "shop") || (who == cart && pod == "cart");
        assert!(is_right, "{who} {pod}");
    }
}
