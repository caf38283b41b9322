//! The admission webhook of the shipped manifests in a real API server: what kubectl may write, and what
//! happens while the gateway is away. `argocd` has a whole Argo CD.

use serde_json::{Value, json};
use tokio::time::Instant;

use test_support::authority::{Authority, Pair};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::gateway::{Gateway, Layout};
use test_support::kubernetes::kubectl::Run;
use test_support::kubernetes::webhook::Webhook;
use test_support::kubernetes::{PATIENCE, eventually};

mod argocd;
mod certificate;

const NAMESPACE: &str = "argocd";
const CONTROLLER: &str = "system:serviceaccount:argocd:argocd-application-controller";
const SET_CONTROLLER: &str = "system:serviceaccount:argocd:argocd-applicationset-controller";
const SERVER: &str = "system:serviceaccount:argocd:argocd-server";
const GATEWAY: &str = "system:serviceaccount:argocd:tollgate";
const AUTHOR: &str = "tollgate.dev/author";

/// alice has everything in the project `shop`, the group `readers` nothing but reads, and
/// administrators of the cluster are administrators of Argo CD.
const POLICY: &str = "\
p, alice, applications, *, shop/*, allow
p, alice, applicationsets, *, shop/*, allow
p, role:editor, applications, update, shop/*, allow
g, editors, role:editor
p, alice, repositories, get, *, allow
p, alice, clusters, get, *, allow
g, readers, role:readonly
g, system:masters, role:admin
";

/// Fields end in this order.
struct Scene {
    cluster: Cluster,
    gateway: Gateway,
    _webhook: Webhook,
}

impl Scene {
    async fn start(more: &Value) -> Self {
        let webhook = Webhook::new();
        let cluster = webhook.start_cluster().await;
        cluster.with_crds().await;
        cluster.admin().succeed(&["create", "namespace", NAMESPACE]).await;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "everybody"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}],
        });
        cluster.admin().apply(&binding.to_string()).await;
        write_control_plane(&cluster).await;
        let mut layout = Layout::new_in(NAMESPACE, &[], "");
        webhook.configure(&mut layout, more);
        layout.settings(json!({
            "state": {"namespace": NAMESPACE, "kubernetes": {"kubeconfig": cluster.admin().kubeconfig()}},
        }));
        let gateway = layout.start().await;
        webhook.register(&cluster, &gateway.authority().unwrap()).await;
        let scene = Self {
            cluster,
            gateway,
            _webhook: webhook,
        };
        // An API server takes a moment to see a new webhook.
        eventually("the webhook is called", async || {
            let run = scene
                .write_as("nobody", &application("probe", "other"), &["--dry-run=server"])
                .await;
            (!run.status.success() || !run.stderr.is_empty()).then_some(())
        })
        .await;
        scene
    }

    /// Applies an object on the client side, as somebody.
    async fn write_as(&self, user: &str, object: &Value, more: &[&str]) -> Run {
        let identity = format!("--as={user}");
        let arguments = [&["apply", "--filename=-", &identity][..], more].concat();
        self.cluster.admin().run_with(&arguments, &object.to_string()).await
    }

    async fn run_as(&self, user: &str, arguments: &[&str]) -> Run {
        let common = [&format!("--as={user}"), "--namespace", NAMESPACE];
        self.cluster.admin().run(&[arguments, &common].concat()).await
    }

    async fn refuses(&self, user: &str, object: &Value, reason: &str) {
        let run = self.write_as(user, object, &[]).await;
        assert!(!run.status.success(), "{user}: {object}");
        assert!(run.stderr.contains("admission.tollgate.dev"), "{}", run.stderr);
        assert!(run.stderr.contains(reason), "{reason}: {}", run.stderr);
    }

    async fn takes(&self, user: &str, object: &Value) {
        let run = self.write_as(user, object, &[]).await;
        assert!(run.status.success(), "{user}: {}", run.stderr);
    }

    async fn read(&self, kind: &str, name: &str) -> Value {
        let get = ["get", kind, name, "--namespace", NAMESPACE];
        self.cluster.admin().json(&get).await
    }

    /// The reason and the notes of the last review, from memory: the file has it a moment later.
    async fn last_review(&self) -> Value {
        let latest = self.gateway.admin("/decisions?most=1000").await;
        let mut latest = latest.as_array().unwrap().iter();
        let review = latest.find(|record| record["front"] == "admission" && record["path"] == "/admission");
        review.unwrap().clone()
    }
}

/// Argo CD's configuration, two projects, and an Application in `other`.
async fn write_control_plane(cluster: &Cluster) {
    let object = |kind: &str, name: &str, key: &str, data: Value| {
        json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {
                "name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/part-of": "argocd"},
            },
            key: data,
        })
    };
    let key = json!({"server.secretkey": "a-key-only-tests-know-0123456789abcdef"});
    for object in [
        object("ConfigMap", "argocd-cm", "data", json!({"accounts.alice": "login"})),
        object("ConfigMap", "argocd-rbac-cm", "data", json!({"policy.csv": POLICY})),
        object("Secret", "argocd-secret", "stringData", key),
        project("shop", &json!({})),
        project("other", &json!({})),
        application("theirs", "other"),
    ] {
        cluster.admin().apply(&object.to_string()).await;
    }
}

fn project(name: &str, more: &Value) -> Value {
    let mut spec = json!({
        "sourceRepos": ["https://git.invalid/shop"],
        "destinations": [{"server": "https://kubernetes.default.svc", "namespace": "shop"}],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    })
}

fn application(name: &str, project: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "project": project,
            "source": {"repoURL": "https://git.invalid/shop", "path": "."},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"},
        },
    })
}

fn set(name: &str, project: &str) -> Value {
    let template = application("{{name}}", project);
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "generators": [{"list": {"elements": [{"name": format!("{name}-a")}]}}],
            "template": {"metadata": {"name": "{{name}}"}, "spec": template["spec"]},
        },
    })
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (above, name) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(above).unwrap()[name] = value;
    object
}

fn patch(value: &Value) -> String {
    format!("--patch={value}")
}

#[tokio::test]
async fn kubectl_makes_no_application_that_its_user_may_not() {
    let scene = Scene::start(&json!({})).await;
    let cart = application("cart", "shop");
    scene
        .refuses("bob", &cart, "`applications, create` is not permitted")
        .await;
    scene
        .refuses(
            "alice",
            &application("cart", "other"),
            "`applications, create` is not permitted",
        )
        .await;
    scene.takes("alice", &cart).await;
    assert_eq!(scene.last_review().await["reason"], "permitted");
    assert_eq!(scene.last_review().await["principal"]["username"], "alice");

    // Only what the project permits, also for its administrators.
    let elsewhere = with(
        application("far", "shop"),
        "/spec/destination/namespace",
        json!("kube-system"),
    );
    scene
        .refuses("alice", &elsewhere, "do not match any of the allowed destinations")
        .await;
    let foreign = with(
        application("far", "shop"),
        "/spec/source/repoURL",
        json!("https://git.invalid/evil"),
    );
    scene
        .refuses("alice", &foreign, "is not permitted in project 'shop'")
        .await;

    // Each change of one that exists.
    let moved = with(cart.clone(), "/spec/project", json!("other"));
    scene
        .refuses("alice", &moved, "`applications, create` is not permitted")
        .await;
    scene
        .refuses(
            "bob",
            &with(cart.clone(), "/metadata/labels", json!({"a": "b"})),
            "`applications, update`",
        )
        .await;
    scene
        .takes("alice", &with(cart.clone(), "/metadata/labels", json!({"a": "b"})))
        .await;
    let run = scene.run_as("bob", &["delete", "application", "cart"]).await;
    assert!(
        run.stderr
            .contains("application `shop/cart`: `applications, delete` is not permitted"),
        "{}",
        run.stderr
    );
    let sync = patch(&json!({"operation": {"sync": {"revision": "HEAD"}}}));
    let run = scene
        .run_as("bob", &["patch", "application", "cart", "--type=merge", &sync])
        .await;
    assert!(
        run.stderr.contains("`applications, sync` is not permitted"),
        "{}",
        run.stderr
    );
    let run = scene
        .run_as("alice", &["patch", "application", "cart", "--type=merge", &sync])
        .await;
    assert!(run.status.success(), "{}", run.stderr);

    // A group of the API server's authenticator counts, and the names of roles do not.
    let labelled = with(cart.clone(), "/metadata/labels", json!({"a": "c"}));
    let run = scene.write_as("carol", &labelled, &["--as-group=editors"]).await;
    assert!(run.status.success(), "{}", run.stderr);
    let labelled = with(cart, "/metadata/labels", json!({"a": "d"}));
    let run = scene.write_as("carol", &labelled, &["--as-group=readers"]).await;
    assert!(
        run.stderr.contains("`applications, update` is not permitted"),
        "{}",
        run.stderr
    );
    scene
        .refuses(
            "role:admin",
            &application("mine", "shop"),
            "`applications, create` is not permitted",
        )
        .await;
    let run = scene
        .write_as("carol", &application("mine", "shop"), &["--as-group=role:admin"])
        .await;
    assert!(
        run.stderr.contains("`applications, create` is not permitted"),
        "{}",
        run.stderr
    );

    let run = scene.run_as("alice", &["delete", "application", "cart"]).await;
    assert!(run.status.success(), "{}", run.stderr);
    let listed = scene
        .cluster
        .admin()
        .json(&["get", "applications", "--namespace", NAMESPACE])
        .await;
    let names: Vec<&str> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["theirs"]);
}

#[tokio::test]
async fn projects_are_for_who_may_change_projects() {
    let scene = Scene::start(&json!({})).await;
    let wider = project("shop", &json!({"destinations": [{"server": "*", "namespace": "*"}]}));
    scene
        .refuses("alice", &wider, "`projects, update` is not permitted on `shop`")
        .await;
    scene
        .refuses(
            "alice",
            &project("new", &json!({})),
            "`projects, create` is not permitted on `new`",
        )
        .await;
    let run = scene.run_as("alice", &["delete", "appproject", "other"]).await;
    assert!(
        run.stderr.contains("`projects, delete` is not permitted on `other`"),
        "{}",
        run.stderr
    );
    // Without `--as`, kubectl is an administrator.
    scene.cluster.admin().apply(&wider.to_string()).await;
    assert_eq!(scene.last_review().await["reason"], "permitted");
}

#[tokio::test]
async fn components_change_what_they_find_out_and_nothing_else() {
    let scene = Scene::start(&json!({})).await;
    let theirs = application("theirs", "other");
    for component in [CONTROLLER, SET_CONTROLLER] {
        let status = patch(&json!({"status": {"sync": {"status": "Synced"}}}));
        let run = scene
            .run_as(component, &["patch", "application", "theirs", "--type=merge", &status])
            .await;
        assert!(run.status.success(), "{}", run.stderr);
        // An operation is no progress, wherever it stands.
        for started in [
            json!({"operation": {"sync": {}}}),
            json!({"operation": {}}),
            json!({"status": {"operationState": {
                "phase": "Running", "startedAt": "2026-01-01T00:00:00Z", "operation": {"sync": {"manifests": ["{}"]}},
            }}}),
            json!({"metadata": {"annotations": {"argocd.argoproj.io/skip-reconcile": "true"}}}),
            json!({"metadata": {"finalizers": ["resources-finalizer.argocd.argoproj.io"]}}),
        ] {
            let run = scene
                .run_as(
                    component,
                    &["patch", "application", "theirs", "--type=merge", &patch(&started)],
                )
                .await;
            assert!(
                !run.status.success() && run.stderr.contains("admission.tollgate.dev"),
                "{started}: {}",
                run.stderr
            );
        }
        let moved = with(theirs.clone(), "/spec/project", json!("shop"));
        let run = scene.write_as(component, &moved, &[]).await;
        assert!(
            !run.status.success() && run.stderr.contains("admission.tollgate.dev"),
            "{}",
            run.stderr
        );
        let run = scene.write_as(component, &application("new", "shop"), &[]).await;
        assert!(
            !run.status.success() && run.stderr.contains("admission.tollgate.dev"),
            "{}",
            run.stderr
        );
        let run = scene.run_as(component, &["delete", "application", "theirs"]).await;
        assert!(
            !run.status.success() && run.stderr.contains("admission.tollgate.dev"),
            "{}",
            run.stderr
        );
    }
    assert_eq!(scene.read("application", "theirs").await["spec"]["project"], "other");
    // argocd-server has judged by the same RBAC, and the gateway by all of its rules.
    scene.takes(SERVER, &application("new", "shop")).await;
    assert_eq!(scene.last_review().await["reason"], "written_by_argocd");
    scene.takes(GATEWAY, &application("newer", "shop")).await;
    assert_eq!(scene.last_review().await["reason"], "written_by_gateway");
}

#[tokio::test]
async fn an_application_deploys_children_into_the_projects_that_its_own_lists() {
    let children = json!({"children": {"platform": ["team-*", "platform"]}});
    let scene = Scene::start(&children).await;
    for name in ["platform", "team-a"] {
        scene
            .cluster
            .admin()
            .apply(&project(name, &json!({})).to_string())
            .await;
    }
    for (name, project) in [("root", "platform"), ("shop-root", "shop")] {
        scene
            .cluster
            .admin()
            .apply(&application(name, project).to_string())
            .await;
    }
    let tracked = |object: Value, by: &str| {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let id = format!("{by}:argoproj.io/{kind}:{NAMESPACE}/{name}").replace('"', "");
        with(
            object,
            "/metadata/annotations",
            json!({"argocd.argoproj.io/tracking-id": id}),
        )
    };
    let of = |name: &str, project: &str, by: &str| tracked(application(name, project), by);
    scene.takes(CONTROLLER, &of("a", "team-a", "root")).await;
    let review = scene.last_review().await;
    assert_eq!(
        (&review["reason"], &review["project"]),
        (&json!("child_permitted"), &json!("platform"))
    );
    scene.takes(CONTROLLER, &of("b", "platform", "root")).await;
    scene
        .refuses(CONTROLLER, &of("c", "shop", "root"), "`admission.children`")
        .await;
    scene.takes(CONTROLLER, &of("d", "shop", "shop-root")).await;
    scene
        .refuses(CONTROLLER, &of("e", "team-a", "shop-root"), "`admission.children`")
        .await;
    // Neither takes over what is in a project of others, nor an Application out of it.
    scene
        .refuses(CONTROLLER, &of("theirs", "shop", "shop-root"), "project `other`")
        .await;
    scene
        .refuses(CONTROLLER, &of("a", "shop", "shop-root"), "project `team-a`")
        .await;
    scene
        .refuses(CONTROLLER, &of("f", "shop", "gone"), "for no Application that is known")
        .await;
    // A project may be changed only by one that lists it.
    scene
        .takes(CONTROLLER, &tracked(project("team-b", &json!({})), "root"))
        .await;
    scene
        .refuses(
            CONTROLLER,
            &tracked(project("shop", &json!({"sourceRepos": ["*"]})), "shop-root"),
            "that is project `shop`",
        )
        .await;
    // Pruning is bounded in the same way.
    let run = scene.run_as(CONTROLLER, &["delete", "application", "theirs"]).await;
    assert!(
        run.stderr.contains("for no Application that is known"),
        "{}",
        run.stderr
    );
    let run = scene.run_as(CONTROLLER, &["delete", "application", "a"]).await;
    assert!(run.status.success(), "{}", run.stderr);
}

#[tokio::test]
async fn a_set_has_the_author_who_wrote_it_and_generates_what_they_may_write() {
    let scene = Scene::start(&json!({})).await;
    let shop = set("shop", "shop");
    scene
        .refuses("bob", &shop, "`applicationsets, create` is not permitted")
        .await;
    scene.takes("alice", &shop).await;
    let stored = scene.read("applicationset", "shop").await;
    let statement = stored["metadata"]["annotations"][AUTHOR].as_str().unwrap().to_owned();
    let generated = |name: &str, project: &str, set: &Value| {
        let owner = json!([{
            "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "controller": true,
            "blockOwnerDeletion": true, "name": set["metadata"]["name"], "uid": set["metadata"]["uid"],
        }]);
        with(application(name, project), "/metadata/ownerReferences", owner)
    };
    scene.takes(SET_CONTROLLER, &generated("shop-a", "shop", &stored)).await;
    let review = scene.last_review().await;
    assert_eq!(
        (&review["reason"], &review["notes"]["author"]),
        (&json!("author_permitted"), &json!("alice"))
    );
    scene
        .refuses(
            SET_CONTROLLER,
            &generated("shop-b", "other", &stored),
            "`applications, create` is not permitted",
        )
        .await;
    // An owner of another uid, or nobody's.
    let gone = with(
        stored.clone(),
        "/metadata/uid",
        json!("00000000-0000-0000-0000-000000000000"),
    );
    scene
        .refuses(SET_CONTROLLER, &generated("shop-b", "shop", &gone), "that is gone")
        .await;

    // Nobody keeps the statement with another spec, or takes it to another set.
    let claimed = |set: Value| with(set, "/metadata/annotations", json!({AUTHOR: statement}));
    let run = scene
        .write_as(
            "administrator",
            &claimed(set("evil", "other")),
            &["--as-group=system:masters"],
        )
        .await;
    assert!(run.status.success(), "{}", run.stderr);
    let evil = scene.read("applicationset", "evil").await;
    assert_ne!(evil["metadata"]["annotations"][AUTHOR], json!(statement));
    scene.takes(SET_CONTROLLER, &generated("evil-a", "other", &evil)).await;
    assert_eq!(scene.last_review().await["notes"]["author"], "administrator");

    // A set that Argo CD's server wrote has no author that is known.
    scene.takes(SERVER, &claimed(set("served", "shop"))).await;
    let served = scene.read("applicationset", "served").await;
    assert_eq!(served["metadata"]["annotations"][AUTHOR], Value::Null);
    scene
        .refuses(
            SET_CONTROLLER,
            &generated("served-a", "shop", &served),
            "who wrote ApplicationSet `served` is unknown",
        )
        .await;
    let tracking = json!({"argocd.argoproj.io/tracking-id": "theirs:argoproj.io/ApplicationSet:argocd/tracked"});
    for writer in ["alice", SERVER] {
        let tracked = with(set("tracked", "shop"), "/metadata/annotations", tracking.clone());
        scene.refuses(writer, &tracked, "leave it out").await;
    }

    // What alice may not any more, her set does not either.
    let policy =
        json!({"data": {"policy.csv": POLICY.replace("p, alice, applications, *", "p, alice, applications, get")}});
    scene
        .run_as(
            "administrator",
            &["patch", "configmap", "argocd-rbac-cm", "--type=merge", &patch(&policy)],
        )
        .await;
    let changed = with(
        generated("shop-a", "shop", &stored),
        "/spec/source/path",
        json!("other"),
    );
    eventually("the policy is in force", async || {
        let run = scene.write_as(SET_CONTROLLER, &changed, &["--dry-run=server"]).await;
        run.stderr.contains("for `alice`: ").then_some(())
    })
    .await;
}

#[tokio::test]
async fn while_the_gateway_is_away_nothing_is_written_but_progress() {
    let mut scene = Scene::start(&json!({})).await;
    scene.gateway.kill().await;
    let run = scene.write_as("alice", &application("cart", "shop"), &[]).await;
    assert!(run.stderr.contains("failed calling webhook"), "{}", run.stderr);
    let status = patch(&json!({"status": {"sync": {"status": "Synced"}}}));
    let progress = ["patch", "application", "theirs", "--type=merge", &status];
    let run = scene.run_as(CONTROLLER, &progress).await;
    assert!(run.status.success(), "{}", run.stderr);
    let refresh = r#"--patch={"metadata": {"annotations": {"argocd.argoproj.io/refresh": "normal"}}}"#;
    let refreshed = ["patch", "application", "theirs", "--type=merge", refresh];
    let ended = [
        "patch",
        "application",
        "theirs",
        "--type=merge",
        r#"--patch={"operation": null}"#,
    ];
    for free in [&refreshed, &ended] {
        let run = scene.run_as(CONTROLLER, free).await;
        assert!(run.status.success(), "{}", run.stderr);
    }
    let run = scene.run_as("alice", &progress).await;
    assert!(run.stderr.contains("failed calling webhook"), "{}", run.stderr);
    let sync = patch(&json!({"operation": {"sync": {}}}));
    let started = ["patch", "application", "theirs", "--type=merge", &sync];
    let run = scene.run_as(CONTROLLER, &started).await;
    assert!(run.stderr.contains("failed calling webhook"), "{}", run.stderr);
    scene.gateway.restart().await;
    scene.takes("alice", &application("cart", "shop")).await;
}

#[tokio::test]
async fn audit_warns_and_writes_down_what_enforce_would_refuse() {
    let scene = Scene::start(&json!({"mode": "audit"})).await;
    let run = scene.write_as("bob", &application("cart", "shop"), &[]).await;
    assert!(run.status.success(), "{}", run.stderr);
    assert!(
        run.stderr.contains("Warning: Tollgate would refuse this: for `bob`: "),
        "{}",
        run.stderr
    );
    let review = scene.last_review().await;
    assert_eq!(
        (&review["outcome"], &review["reason"]),
        (&json!("allowed"), &json!("allowed"))
    );
    assert_eq!(review["notes"]["would_refuse_reason"], "permission_denied");
    let metrics = scene.gateway.admin_text("/metrics").await;
    let counted = |line: &str| line.starts_with("tollgate_admission_would_refuse_total ") && !line.ends_with(" 0");
    assert!(metrics.lines().any(counted), "{metrics}");
    let run = scene.write_as("alice", &application("mine", "shop"), &[]).await;
    assert_eq!(run.stderr, "");
}

/// A set whose project is the name of a cluster, of which somebody may add another one later.
fn by_cluster(name: &str) -> Value {
    let set = with(set(name, "{{name}}"), "/spec/generators", json!([{"clusters": {}}]));
    with(
        set,
        "/spec/template/metadata/name",
        json!(format!("{name}-{{{{name}}}}")),
    )
}

/// alice may write Applications in the only project that the set leads into so far.
async fn start_with_clusters(mode: &str) -> Scene {
    let scene = Scene::start(&json!({"mode": mode, "writers": {"gateway": "administrator"}})).await;
    let rows = json!({"data": {"policy.csv": format!("{POLICY}p, alice, applications, *, in-cluster/*, allow\n\
                                                      p, alice, applicationsets, *, in-cluster/*, allow\n\
                                                      p, alice, applicationsets, *, {{{{name}}}}/*, allow\n")}});
    let patch = ["patch", "configmap", "argocd-rbac-cm", "--namespace", NAMESPACE];
    scene
        .cluster
        .admin()
        .succeed(&[&patch[..], &["--type=merge", &self::patch(&rows)]].concat())
        .await;
    scene
        .cluster
        .admin()
        .apply(&project("in-cluster", &json!({})).to_string())
        .await;
    scene
}

impl Scene {
    /// Writes a set through the gateway as alice, until the answer has this status. Returns its text.
    async fn post_until(&self, set: &Value, status: u16) -> String {
        let client = self.gateway.client("alice");
        let url = format!("{}/api/v1/applicationsets?upsert=true", self.gateway.url());
        let mut other = String::new();
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let response = client.post(&url).json(set).send().await.unwrap();
            let found = response.status();
            let text = response.text().await.unwrap();
            if found == status {
                return text;
            }
            other = format!("{found}: {text}");
        }
        panic!("no answer with status {status}, but {other}");
    }
}

#[tokio::test]
async fn only_a_webhook_that_enforces_makes_rights_in_all_projects_unnecessary() {
    let lead = "which can lead into any project later";
    let enforced = async {
        let scene = start_with_clusters("enforce").await;
        scene.post_until(&by_cluster("with"), 200).await;
        scene
            .cluster
            .admin()
            .succeed(&["delete", "validatingwebhookconfigurations", "--all"])
            .await;
        let refused = scene.post_until(&by_cluster("without"), 403).await;
        assert!(refused.contains(lead), "{refused}");
        let log = scene.gateway.log();
        let is_told = |entry: &&Value| entry.to_string().contains("register the webhook");
        assert!(log.iter().any(|entry| is_told(&entry)), "{log:?}");
    };
    let audited = async {
        let scene = start_with_clusters("audit").await;
        let refused = scene.post_until(&by_cluster("audited"), 403).await;
        assert!(refused.contains(lead), "{refused}");
    };
    tokio::join!(enforced, audited);
}

/// Anyone who could send a review could become the author of a set as anybody.
#[tokio::test]
async fn nothing_is_signed_for_who_is_no_api_server() {
    let webhook = Webhook::new();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": "CREATE", "namespace": NAMESPACE, "name": "shop",
            "kind": {"group": "argoproj.io", "version": "v1alpha1", "kind": "ApplicationSet"},
            "resource": {"group": "argoproj.io", "version": "v1alpha1", "resource": "applicationsets"},
            "userInfo": {"username": "alice"}, "object": set("shop", "shop"),
        },
    });
    let post = async |gateway: &Gateway, path: &str, identity: Option<Pair>| {
        let authority = reqwest::Certificate::from_pem(gateway.authority().unwrap().as_bytes()).unwrap();
        let builder = reqwest::Client::builder().no_proxy().tls_certs_only([authority]);
        let builder = match identity {
            None => builder,
            Some(Pair { certificate, key }) => {
                let identity = reqwest::Identity::from_pem(format!("{certificate}{key}").as_bytes());
                builder.identity(identity.unwrap())
            }
        };
        let request = builder.build().unwrap().post(format!("{}{path}", webhook.url()));
        let response = request.json(&review).send().await.ok()?;
        Some((response.status().as_u16(), response.text().await.unwrap()))
    };
    let start = async |more: &Value| {
        let mut layout = Layout::new_in(NAMESPACE, &["alice"], POLICY);
        webhook.configure(&mut layout, more);
        layout.start().await
    };
    let gateway = start(&json!({})).await;
    let stranger = Authority::new("others").client("kube-apiserver", None);
    for identity in [None, Some(stranger)] {
        assert_eq!(post(&gateway, "/admission/author", identity).await, None);
    }
    let genuine = Some(webhook.client_certificate());
    let (status, text) = post(&gateway, "/admission/author", genuine).await.unwrap();
    assert!(status == 200 && text.contains("\"patch\""), "{status}: {text}");
    drop(gateway);

    let gateway = start(&json!({"clientCertificateAuthority": null})).await;
    let (status, text) = post(&gateway, "/admission/author", None).await.unwrap();
    assert_eq!(status, 404);
    assert!(text.contains("`admission.clientCertificateAuthority`"), "{text}");
    let (status, text) = post(&gateway, "/admission", None).await.unwrap();
    assert!(status == 200 && !text.contains("\"patch\""), "{status}: {text}");
}
