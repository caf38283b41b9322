//! Restrictions of a project, on an account that could do everything. No restricted write reaches
//! the cluster in any form.

use serde_json::{Value, json};

use super::fixture::{Fixture, FixtureBuilder, Source, account, project, role, user};
use test_support::kubernetes::eventually;
use test_support::kubernetes::kubectl::{Kubectl, Run};

/// Rights for an account to do everything in a namespace, and to manage namespaces and priority
/// classes.
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

/// An Application whose account may do everything in `guestbook`, with a project of this spec. The
/// Deployment `there` exists.
pub(super) async fn start(source: Source, spec: &Value) -> Fixture {
    let mut builder = FixtureBuilder::new(source).await;
    let there = builder.guestbook.clone();
    builder.deployer(&there, "robot", &[]);
    builder.objects(everything(&there, "robot"));
    builder.objects([account(&there, "other"), deployment(&there, "there")]);
    let spec = with_account(&builder.acts("*", "robot"), spec);
    builder.project("my-project", &spec);
    builder.application("guestbook", "my-project", &builder.to(&there));
    builder.start().await
}

pub(super) fn with_account(acts: &Value, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["destinationServiceAccounts"] = json!([acts]);
    spec
}

/// Runs kubectl with every kind of write.
pub(super) async fn writes(kubectl: &Kubectl, namespace: &str) -> Vec<(&'static str, Run)> {
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

/// Every kind of write of a denied kind is refused, and permitted once the kind is no longer
/// denied.
async fn denied_kind(source: Source) {
    let spec = json!({"namespaceResourceBlacklist": [{"group": "apps", "kind": "Deployment"}]});
    let fixture = start(source, &spec).await;
    let (there, kubectl) = (&fixture.guestbook, fixture.kubectl("alice", "guestbook"));
    for (name, run) in writes(&kubectl, there).await {
        assert!(!run.status.success(), "{name}: {run:?}");
        let wanted = "resource apps/Deployment is not permitted in project my-project: namespaceResourceBlacklist";
        assert!(
            run.stderr.contains("Forbidden") && run.stderr.contains(wanted),
            "{name}: {}",
            run.stderr
        );
    }
    assert_eq!(fixture.arrived(there), [] as [Value; 0]);
    // The denied kind cannot be read either. Other kinds can be written.
    let complaint = kubectl.fail(&["get", "deployment", "there", "-n", there]).await;
    assert!(complaint.contains("namespaceResourceBlacklist"), "{complaint}");
    let replicas = [
        "get",
        "deployments",
        "--output=jsonpath={.items[*].spec.replicas}",
        "-n",
        there,
    ];
    assert_eq!(fixture.cluster.admin().succeed(&replicas).await, "1");
    kubectl.succeed(&["create", "configmap", "kept", "-n", there]).await;
    fixture.wrote(there, "kept", &user(there, "robot")).await;

    let acts = json!({"server": fixture.cluster.url(), "namespace": "*", "defaultServiceAccount": "robot"});
    let spec = with_account(&acts, &json!({"namespaceResourceBlacklist": []}));
    fixture.put(&project(&fixture.control, "my-project", &spec)).await;
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

/// Cluster-scoped kinds must be listed, with the name if the entry has one.
#[tokio::test]
async fn cluster_scoped_kinds_are_written_only_if_listed() {
    let mut builder = FixtureBuilder::new(Source::Kubernetes).await;
    let there = builder.guestbook.clone();
    let (listed, other) = (format!("listed-{there}"), format!("other-{there}"));
    builder.deployer(&there, "robot", &[]);
    builder.objects(everything(&there, "robot"));
    let spec = json!({"clusterResourceWhitelist": [{"group": "", "kind": "Namespace", "name": listed}]});
    builder.project("my-project", &with_account(&builder.acts("*", "robot"), &spec));
    builder.project("nothing", &with_account(&builder.acts("*", "robot"), &json!({})));
    builder.application("guestbook", "my-project", &builder.to(&there));
    builder.application("closed", "nothing", &builder.to(&there));
    let fixture = builder.start().await;
    let (open, closed) = (
        fixture.kubectl("alice", "guestbook"),
        fixture.kubectl("alice", "closed"),
    );
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
    // An entry with a name requires a readable body, and kubectl sends these in Protobuf.
    let complaint = open.fail(&["create", "namespace", &other]).await;
    assert!(
        complaint.contains("resource Namespace is not permitted in project my-project: clusterResourceWhitelist"),
        "{complaint}"
    );
    open.succeed(&["create", "namespace", &listed]).await;
    let event = fixture
        .cluster
        .audit()
        .find_with(&listed, |event| {
            event["objectRef"]["resource"] == "namespaces" && event["objectRef"]["name"] == *listed
        })
        .await;
    assert_eq!(event["impersonatedUser"]["username"], user(&there, "robot"));
    for name in [&other, &class] {
        let events = fixture.cluster.audit().events_with(name);
        assert!(
            !events.iter().any(|event| event["objectRef"]["name"] == **name),
            "{name}"
        );
    }
}

/// Callers with read access cannot write, and others learn nothing about the Application.
#[tokio::test]
async fn writes_need_sync_and_strangers_learn_nothing() {
    let fixture = start(Source::Directory, &json!({})).await;
    let there = &fixture.guestbook;
    let bob = fixture.kubectl("bob", "guestbook");
    bob.succeed(&["get", "--raw", "/version"]).await;
    for (name, run) in writes(&bob, there).await {
        assert!(!run.status.success(), "{name}: {run:?}");
        assert!(run.stderr.contains("Forbidden"), "{name}: {}", run.stderr);
    }
    assert_eq!(fixture.arrived(there), [] as [Value; 0]);
    // An absent Application and one that the caller may not see get the same response.
    let read = ["get", "--raw", "/version"];
    let refusal = async |application| {
        let complaint = fixture.kubectl("mallory", application).fail(&read).await;
        let (text, trace) = complaint.split_once(" Trace ID: ").unwrap();
        assert_eq!(trace.trim().len(), 36, "{complaint}");
        text.to_owned()
    };
    let existing = refusal("guestbook").await;
    assert_eq!(existing, refusal("unknown").await);
    let wanted = r#"User "mallory" cannot get path "/version": you may not see this application."#;
    assert!(existing.ends_with(wanted), "{existing}");
}
