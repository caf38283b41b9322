//! What a project keeps from its Applications, though the account could do it: no
//! such write reaches the cluster, in whatever shape it comes.

use serde_json::{Value, json};

use super::world::{Plan, Source, World, account, project, role, user};
use test_support::kubernetes::eventually;
use test_support::kubernetes::kubectl::{Kubectl, Run};

/// Lets an account do everything in a namespace, and make and remove namespaces and
/// priority classes.
fn everything(namespace: &str, name: &str) -> Vec<Value> {
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let mut objects: Vec<Value> = role(namespace, "everything", &all, (namespace, name)).into();
    let cluster = format!("everything-{namespace}");
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": cluster},
        "rules": [
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["*"]},
            {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["*"]},
        ],
    }));
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": cluster},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }));
    objects
}

fn deployment(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "ui", "image": "none.invalid/ui"}]},
        }},
    })
}

/// A world whose account may do everything in `guestbook`, and whose project says
/// what of it an Application may. The deployment `there` is there.
async fn start(source: Source, spec: &Value) -> World {
    let mut plan = Plan::new(source).await;
    let there = plan.guestbook.clone();
    plan.deployer(&there, "robot", &[]);
    plan.objects(everything(&there, "robot"));
    plan.objects([account(&there, "other"), deployment(&there, "there")]);
    let spec = with_account(&plan.acts("*", "robot"), spec);
    plan.project("my-project", &spec);
    plan.application("guestbook", "my-project", &plan.to(&there));
    plan.start().await
}

fn with_account(acts: &Value, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["destinationServiceAccounts"] = json!([acts]);
    spec
}

/// Every way of writing that kubectl has.
async fn writes(kubectl: &Kubectl, namespace: &str) -> Vec<(&'static str, Run)> {
    let there = format!("--namespace={namespace}");
    let new = deployment(namespace, "new").to_string();
    let mut changed = deployment(namespace, "there");
    changed["spec"]["replicas"] = 5.into();
    let changed = changed.to_string();
    let replicas = r#"--patch={"spec":{"replicas":5}}"#;
    let collection = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let patch = ["patch", "deployment", "there", &there];
    let asked: [(&str, Vec<&str>, &str); 11] = [
        (
            "create, dry run",
            vec!["create", "--dry-run=server", "--filename=-"],
            &new,
        ),
        ("create", vec!["create", "--filename=-"], &new),
        (
            "server-side apply",
            vec!["apply", "--server-side", "--force-conflicts", "--filename=-"],
            &changed,
        ),
        (
            "server-side apply of a new one",
            vec!["apply", "--server-side", "--filename=-"],
            &new,
        ),
        ("strategic patch", [&patch[..], &[replicas]].concat(), ""),
        ("merge patch", [&patch[..], &["--type=merge", replicas]].concat(), ""),
        ("update", vec!["replace", "--filename=-"], &changed),
        (
            "scale",
            vec!["scale", "deployment", "there", "--replicas=5", &there],
            "",
        ),
        (
            "status",
            [
                &patch[..],
                &["--subresource=status", r#"--patch={"status":{"replicas":5}}"#],
            ]
            .concat(),
            "",
        ),
        ("delete", vec!["delete", "deployment", "there", &there], ""),
        ("deletecollection", vec!["delete", "--raw", &collection], ""),
    ];
    let mut runs = Vec::new();
    for (name, arguments, input) in asked {
        runs.push((name, kubectl.run_with(&arguments, input).await));
    }
    runs
}

/// A denied kind stays denied in every shape, and passes in every shape once it is
/// no longer denied.
async fn denied_kind(source: Source) {
    let spec = json!({"namespaceResourceBlacklist": [{"group": "apps", "kind": "Deployment"}]});
    let world = start(source, &spec).await;
    let (there, kubectl) = (&world.guestbook, world.kubectl("alice", "guestbook"));
    for (name, run) in writes(&kubectl, there).await {
        assert!(!run.status.success(), "{name}: {run:?}");
        let wanted = "resource apps/Deployment is not permitted in project my-project: namespaceResourceBlacklist";
        assert!(
            run.stderr.contains("Forbidden") && run.stderr.contains(wanted),
            "{name}: {}",
            run.stderr
        );
    }
    assert_eq!(world.arrived(there), [] as [Value; 0]);
    // Nor is it read; kinds that are not denied are.
    let complaint = kubectl.fail(&["get", "deployment", "there", "-n", there]).await;
    assert!(complaint.contains("namespaceResourceBlacklist"), "{complaint}");
    let replicas = [
        "get",
        "deployments",
        "--output=jsonpath={.items[*].spec.replicas}",
        "-n",
        there,
    ];
    assert_eq!(world.cluster.admin().succeed(&replicas).await, "1");
    kubectl.succeed(&["create", "configmap", "kept", "-n", there]).await;
    world.wrote(there, "kept", &user(there, "robot")).await;

    let acts = json!({"server": world.cluster.url(), "namespace": "*", "defaultServiceAccount": "robot"});
    let spec = with_account(&acts, &json!({"namespaceResourceBlacklist": []}));
    world.put(&project(&world.control, "my-project", &spec)).await;
    eventually("deployments are no longer denied", async || {
        let patch = [
            "patch",
            "deployment",
            "there",
            "--dry-run=server",
            r#"--patch={"spec":{"replicas":3}}"#,
            "-n",
            there,
        ];
        kubectl.run(&patch).await.status.success().then_some(())
    })
    .await;
    for (name, run) in writes(&kubectl, there).await {
        assert!(run.status.success(), "{name}: {run:?}");
    }
    assert_eq!(kubectl.succeed(&replicas).await, "");
}

#[tokio::test]
async fn a_denied_kind_is_not_written_with_objects_in_a_folder() {
    denied_kind(Source::Directory).await;
}

#[tokio::test]
async fn a_denied_kind_is_not_written_with_objects_in_the_cluster() {
    denied_kind(Source::Kubernetes).await;
}

/// Of cluster-scoped kinds only those of the list pass, by name where it has one.
#[tokio::test]
async fn cluster_scoped_kinds_are_written_only_when_they_are_listed() {
    let mut plan = Plan::new(Source::Kubernetes).await;
    let there = plan.guestbook.clone();
    let (listed, other) = (format!("listed-{there}"), format!("other-{there}"));
    plan.deployer(&there, "robot", &[]);
    plan.objects(everything(&there, "robot"));
    let spec = json!({"clusterResourceWhitelist": [{"group": "", "kind": "Namespace", "name": listed}]});
    plan.project("my-project", &with_account(&plan.acts("*", "robot"), &spec));
    plan.project("nothing", &with_account(&plan.acts("*", "robot"), &json!({})));
    plan.application("guestbook", "my-project", &plan.to(&there));
    plan.application("closed", "nothing", &plan.to(&there));
    let world = plan.start().await;
    let (open, closed) = (world.kubectl("alice", "guestbook"), world.kubectl("alice", "closed"));
    let class = format!("class-{there}");
    let object = |kind: &str, name: &str| {
        let version = if kind == "Namespace" {
            "v1"
        } else {
            "scheduling.k8s.io/v1"
        };
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        if kind != "Namespace" {
            object["value"] = 1.into();
        }
        object.to_string()
    };
    let create = ["create", "--filename=-"];
    for (kubectl, kind, name, project) in [
        (&closed, "Namespace", &listed, "nothing"),
        (&closed, "PriorityClass", &class, "nothing"),
        (&open, "Namespace", &other, "my-project"),
        (&open, "PriorityClass", &class, "my-project"),
    ] {
        let run = kubectl.run_with(&create, &object(kind, name)).await;
        let group = if kind == "Namespace" { "" } else { "scheduling.k8s.io/" };
        let wanted = format!("resource {group}{kind} is not permitted in project {project}: clusterResourceWhitelist");
        assert!(
            !run.status.success() && run.stderr.contains(&wanted),
            "{kind} {name}: {run:?}"
        );
    }
    // Where the name decides it must be read, and kubectl sends this one in Protobuf.
    let complaint = open.fail(&["create", "namespace", &listed]).await;
    assert!(
        complaint.contains("the request has none that can be read"),
        "{complaint}"
    );
    let run = open.run_with(&create, &object("Namespace", &listed)).await;
    assert!(run.status.success(), "{run:?}");
    let event = world
        .cluster
        .audit()
        .find(|event| event["objectRef"]["resource"] == "namespaces" && event["objectRef"]["name"] == *listed)
        .await;
    assert_eq!(event["impersonatedUser"]["username"], user(&there, "robot"));
    let events = world.cluster.audit().events();
    for name in [&other, &class] {
        assert!(
            !events.iter().any(|event| event["objectRef"]["name"] == **name),
            "{name}"
        );
    }
}

/// Who may only look gets nothing written, and a stranger learns nothing.
#[tokio::test]
async fn writes_need_sync_and_strangers_learn_nothing() {
    let world = start(Source::Directory, &json!({})).await;
    let there = &world.guestbook;
    let bob = world.kubectl("bob", "guestbook");
    bob.succeed(&["get", "--raw", "/version"]).await;
    for (name, run) in writes(&bob, there).await {
        assert!(!run.status.success(), "{name}: {run:?}");
        assert!(run.stderr.contains("Forbidden"), "{name}: {}", run.stderr);
    }
    assert_eq!(world.arrived(there), [] as [Value; 0]);
    // There is no difference between what is not there and what is not yours.
    let read = ["get", "--raw", "/version"];
    let told = async |application| {
        let complaint = world.kubectl("mallory", application).fail(&read).await;
        let (text, trace) = complaint.split_once(" Trace ID: ").unwrap();
        assert_eq!(trace.trim().len(), 36, "{complaint}");
        text.to_owned()
    };
    let yours = told("guestbook").await;
    assert_eq!(yours, told("unknown").await);
    let wanted = r#"User "mallory" cannot get path "/version": you may not see this application."#;
    assert!(yours.ends_with(wanted), "{yours}");
}
