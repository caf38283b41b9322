//! The admission webhook as an API server calls it, with the state in a folder: for each way to write
//! more than one may, the attack and the write that it resembles.

use serde_json::{Value, json};

use test_support::authority::Pair;
use test_support::backend::Backend;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout};
use test_support::kubernetes::webhook::Webhook;

mod accounts;
mod children;
mod operations;
mod reviews;
mod sets;

const NAMESPACE: &str = "argocd";
const CONTROLLER: &str = "system:serviceaccount:argocd:argocd-application-controller";
const SET_CONTROLLER: &str = "system:serviceaccount:argocd:argocd-applicationset-controller";
const SERVER: &str = "system:serviceaccount:argocd:argocd-server";
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
const TRACKING: &str = "argocd.argoproj.io/tracking-id";
const AUTHOR: &str = "tollgate.dev/author";
const PARENT: &str = "tollgate.dev/parent";
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

const POLICY: &str = "\
p, alice, applications, *, shop/*, allow
p, alice, applicationsets, *, shop/*, allow
p, mallory, applications, create, shop/*, allow
p, mallory, applications, update, shop/*, allow
p, mallory, applications, delete, shop/*, allow
p, mallory, applicationsets, update, shop/*, allow
p, mallory, applications, *, team-b/*, allow
p, mallory, applicationsets, update, team-b/*, allow
p, editor, applications, update, shop/*, allow
p, editor, projects, update, shop, allow
p, syncer, applications, update, shop/*, allow
p, syncer, applications, sync, shop/*, allow
p, owner, applications, *, shop/*, allow
g, system:masters, role:admin
";

/// Applications of `platform` may have children in `platform` and in each `team-*`.
struct Scene {
    gateway: Gateway,
    webhook: Webhook,
}

/// The answer to a review.
#[derive(Debug)]
struct Answer {
    allowed: bool,
    reason: String,
    text: String,
}

impl Scene {
    async fn start() -> Self {
        Self::start_with(&[], &json!({})).await
    }

    /// - `more`: objects of the state.
    /// - `settings`: of `argocd-cm`.
    async fn start_with(more: &[Value], settings: &Value) -> Self {
        Self::start_before(more, settings, None).await
    }

    /// The same, with an argocd-server behind it.
    async fn start_before(more: &[Value], settings: &Value, argocd: Option<&Backend>) -> Self {
        let webhook = Webhook::new();
        let mut layout = Layout::new_in(NAMESPACE, &["alice"], POLICY);
        webhook.configure(&mut layout, &json!({"children": {"platform": ["platform", "team-*"]}}));
        if let Some(backend) = argocd {
            layout.policies("argocd");
            layout.settings(json!({"argocd": {"server": format!("http://{}", backend.address)}}));
        }
        let mut data = json!({"accounts.alice": "login", "accounts.mallory": "login"});
        data.as_object_mut()
            .unwrap()
            .extend(settings.as_object().unwrap().clone());
        layout.object("ConfigMap", "argocd-cm", &json!({}), &data);
        for name in ["shop", "other", "platform", "team-a", "team-b"] {
            layout.write(&project(name));
        }
        for (name, project) in [("root", "platform"), ("cart", "shop"), ("theirs", "other")] {
            layout.write(&application(name, project));
        }
        for object in more {
            layout.write(object);
        }
        Self {
            gateway: layout.start().await,
            webhook,
        }
    }

    /// Sends a review of the validating webhook.
    async fn judge(&self, user: &str, before: Option<&Value>, after: Option<&Value>) -> Answer {
        let (status, review) = self.post("/admission", &review(user, &[], before, after)).await;
        assert_eq!(status, 200, "{review}");
        self.answer(&review).await
    }

    async fn answer(&self, review: &Value) -> Answer {
        let latest = self.gateway.admin("/decisions?most=1").await;
        assert_eq!(latest[0]["front"], "admission");
        Answer {
            allowed: review["response"]["allowed"].as_bool().unwrap(),
            reason: latest[0]["reason"].as_str().unwrap().to_owned(),
            text: review["response"]["status"]["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        }
    }

    async fn allows(&self, user: &str, before: Option<&Value>, after: Option<&Value>, reason: &str) {
        let answer = self.judge(user, before, after).await;
        assert!(
            answer.allowed && answer.reason == reason,
            "{user}: {reason}: {answer:?}"
        );
    }

    async fn denies(&self, user: &str, before: Option<&Value>, after: Option<&Value>, reason: &str, text: &str) {
        let answer = self.judge(user, before, after).await;
        assert!(
            !answer.allowed && answer.reason == reason && answer.text.contains(text),
            "{user}: {reason}: {text}: {answer:?}"
        );
    }

    /// The object after the mutating webhook.
    async fn mutated(&self, user: &str, groups: &[&str], before: Option<&Value>, after: &Value) -> Value {
        let (status, review) = self
            .post("/admission/author", &review(user, groups, before, Some(after)))
            .await;
        assert_eq!(status, 200, "{review}");
        let mut object = after.clone();
        // Go takes a list of numbers for bytes, too.
        let patch: Option<Vec<u8>> = serde_json::from_value(review["response"]["patch"].clone()).unwrap();
        let Some(patch) = patch else {
            return object;
        };
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch[0]["path"], "/metadata/annotations");
        match patch[0]["op"].as_str().unwrap() {
            "add" => object["metadata"]["annotations"] = patch[0]["value"].clone(),
            "remove" => drop(object["metadata"].as_object_mut().unwrap().remove("annotations")),
            other => panic!("{other}"),
        }
        object
    }

    async fn post(&self, path: &str, review: &Value) -> (u16, Value) {
        let response = self
            .client()
            .post(format!("{}{path}", self.webhook.url()))
            .json(review)
            .send()
            .await;
        let response = response.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// A client as API servers are.
    fn client(&self) -> reqwest::Client {
        let Pair { certificate, key } = self.webhook.client_certificate();
        let identity = reqwest::Identity::from_pem(format!("{certificate}{key}").as_bytes()).unwrap();
        let authority = self.gateway.authority().unwrap();
        let authority = reqwest::Certificate::from_pem(authority.as_bytes()).unwrap();
        let builder = reqwest::Client::builder().no_proxy().tls_certs_only([authority]);
        builder.identity(identity).build().unwrap()
    }

    /// Stores a set. The gateway reads it when it judges what it generates.
    fn store(&self, object: &Value) {
        self.gateway.rewrite(object);
    }
}

fn review(user: &str, groups: &[&str], before: Option<&Value>, after: Option<&Value>) -> Value {
    let object = after.or(before).unwrap();
    let kind = object["kind"].as_str().unwrap();
    let operation = match (before, after) {
        (None, _) => "CREATE",
        (Some(_), Some(_)) => "UPDATE",
        (Some(_), None) => "DELETE",
    };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": operation,
            "namespace": object["metadata"]["namespace"], "name": object["metadata"]["name"],
            "kind": {"group": "argoproj.io", "version": "v1alpha1", "kind": kind},
            "resource": {
                "group": "argoproj.io", "version": "v1alpha1", "resource": format!("{}s", kind.to_lowercase()),
            },
            "userInfo": {"username": user, "groups": groups}, "object": after, "oldObject": before,
            "options": null, "dryRun": false,
        },
    })
}

fn project(name: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}]},
    })
}

fn application(name: &str, project: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "project": project,
            "source": {"repoURL": "https://git.invalid/shop", "path": "."},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": NAMESPACE},
        },
    })
}

fn set(name: &str, project: &str) -> Value {
    let template = application("{{name}}", project);
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("uid-of-{name}")},
        "spec": {
            "generators": [{"list": {"elements": [{"name": format!("{name}-a"), "project": "team-a"}]}}],
            "template": {"metadata": {"name": "{{name}}"}, "spec": template["spec"]},
        },
    })
}

/// An Application as the set generates it.
fn generated(name: &str, project: &str, set: &Value) -> Value {
    let owner = json!([{
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "controller": true,
        "blockOwnerDeletion": true, "name": set["metadata"]["name"], "uid": set["metadata"]["uid"],
    }]);
    with(application(name, project), "/metadata/ownerReferences", owner)
}

/// An object with the tracking id that Argo CD gives it when it deploys it for an Application.
fn tracked(object: &Value, by: &str) -> Value {
    let (kind, name) = (
        object["kind"].as_str().unwrap(),
        object["metadata"]["name"].as_str().unwrap(),
    );
    let id = format!("{by}:argoproj.io/{kind}:{NAMESPACE}/{name}");
    annotated(object, TRACKING, &id)
}

fn annotated(object: &Value, key: &str, value: &str) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.entry("annotations").or_insert(json!({}))[key] = json!(value);
    object
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (above, name) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(above).unwrap()[name] = value;
    object
}

fn merged(object: &Value, more: &Value) -> Value {
    let mut object = object.clone();
    for (key, value) in more.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

/// A rotation that went wrong is seen before writes fail, and where it fails.
#[tokio::test]
async fn failed_handshakes_and_the_ends_of_certificates_are_metrics() {
    let world = Scene::start().await;
    let authority = world.gateway.authority().unwrap();
    let authority = reqwest::Certificate::from_pem(authority.as_bytes()).unwrap();
    let stranger = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([authority])
        .build()
        .unwrap();
    let answer = stranger.post(format!("{}/admission", world.webhook.url())).send().await;
    assert!(answer.is_err(), "{answer:?}");
    let counted = "tollgate_tls_handshakes_failed_total{listener=\"admission\",reason=\"client_certificate_missing\"}";
    let text = eventually("the handshake is counted", async || {
        let text = world.gateway.admin_text("/metrics").await;
        text.contains(counted).then_some(text)
    })
    .await;
    for used in ["admission", "admission_clients"] {
        let line = format!("tollgate_certificate_end_timestamp_seconds{{use=\"{used}\",name=\"\"}} ");
        let value = text.lines().find_map(|found| found.strip_prefix(&line));
        let end: i64 = value.unwrap_or_else(|| panic!("{line}: {text}")).parse().unwrap();
        assert!(end > 1_700_000_000, "{end}");
    }
}
