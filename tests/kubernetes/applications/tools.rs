//! Unmodified tools, by way of an Application: kubectl and helm.

use serde_json::{Value, json};

use super::world::{Plan, Source, World, guestbook, role, run_apply, user};
use crate::kubelet::{enter, spoken};
use test_support::kubernetes::gateway::session;
use test_support::kubernetes::kubectl::{Kubectl, Protocol};
use test_support::kubernetes::{eventually, helm};

/// Rights of the account, for all a tool does.
fn rules() -> Value {
    json!([
        {"apiGroups": ["", "apps"], "resources": ["*"], "verbs": ["*"]},
    ])
}

/// A world whose account may do everything with what tools write, and where the
/// cluster may be told who asked.
async fn start(source: Source, human: bool) -> World {
    let mut plan = Plan::new(source).await;
    let there = plan.guestbook.clone();
    plan.deployer(&there, "deployer", &[]);
    plan.objects(role(&there, "tools", &rules(), (&there, "deployer")));
    if human {
        let control = plan.control.clone();
        plan.objects(tells_who(&control));
    }
    plan.project(
        "my-project",
        &json!({"destinationServiceAccounts": [plan.acts("*", "deployer")]}),
    );
    plan.application("guestbook", "my-project", &plan.to(&there));
    plan.cluster.running_pod(&there, "pod").await;
    plan.start().await
}

/// Lets the gateway say who asked.
fn tells_who(control: &str) -> [Value; 2] {
    let name = format!("tells-who-{control}");
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{
                "apiGroups": ["authentication.k8s.io"],
                "resources": ["userextras/tollgate.dev/user", "userextras/tollgate.dev/application"],
                "verbs": ["impersonate"],
            }],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "tollgate", "namespace": control}],
        }),
    ]
}

/// What `tollgate kubeconfig` gives alice for the Application.
async fn kubeconfig(world: &World) -> Kubectl {
    // The kubeconfig names the file.
    let token = world.gateway.path("alice.token");
    std::fs::write(&token, session("alice")).unwrap();
    let application = format!("{}/guestbook", world.control);
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args([
            "kubeconfig",
            "--application",
            &application,
            "--namespace",
            &world.guestbook,
        ])
        .args([
            "--server",
            &world.gateway.url(),
            "--auth-token",
            &session("alice"),
            "--token-file",
        ])
        .arg(&token)
        .arg("--certificate-authority")
        .arg(world.gateway.path("gateway-ca.pem"))
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    Kubectl::with_kubeconfig(&String::from_utf8(output.stdout).unwrap())
}

/// The steps of a day with kubectl.
#[tokio::test]
async fn kubectl_works_unchanged() {
    let world = start(Source::Directory, false).await;
    let (there, kubectl) = (&world.guestbook, kubeconfig(&world).await);
    let objects = guestbook(there, "guestbook");
    let apply = ["apply", "--server-side", "--filename=-"];
    let run = kubectl.run_with(&apply, &objects).await;
    assert!(
        run.status.success() && run.stdout.contains("serverside-applied"),
        "{run:?}"
    );
    world.wrote(there, "guestbook", &user(there, "deployer")).await;

    // Nothing differs; then one thing does.
    let diff = ["diff", "--server-side", "--filename=-"];
    let run = kubectl.run_with(&diff, &objects).await;
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(0), ""), "{run:?}");
    let run = kubectl
        .run_with(&diff, &objects.replace(r#""port":80"#, r#""port":81"#))
        .await;
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    assert!(run.stdout.contains("+  - port: 81"), "{run:?}");

    rolled_out(&world, &kubectl).await;
    kubectl
        .succeed(&["wait", "--for=condition=Ready", "pod/pod", "--timeout=30s"])
        .await;
    assert!(kubectl.succeed(&["logs", "pod", "--tail=2"]).await.contains("line 10"));
    let whoami = kubectl.json(&["auth", "whoami"]).await;
    assert_eq!(whoami["status"]["userInfo"]["username"], user(there, "deployer"));
    assert_eq!(
        kubectl.succeed(&["auth", "can-i", "create", "deployments"]).await,
        "yes\n"
    );
    assert!(
        !kubectl
            .run(&["auth", "can-i", "create", "roles.rbac.authorization.k8s.io"])
            .await
            .status
            .success()
    );

    // What is no longer among the objects goes.
    let kept = |names: &[&str]| {
        let object = |name: &&str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": there, "labels": {"app": "pruned"}},
            })
        };
        let items: Vec<Value> = names.iter().map(object).collect();
        json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
    };
    let prune = [
        "apply",
        "--prune",
        "--selector=app=pruned",
        "--prune-allowlist=core/v1/ConfigMap",
        "--filename=-",
    ];
    for names in [&["one", "two"][..], &["one"]] {
        let run = kubectl.run_with(&prune, &kept(names)).await;
        assert!(run.status.success(), "{run:?}");
    }
    let left = kubectl
        .succeed(&["get", "configmaps", "--selector=app=pruned", "--output=name"])
        .await;
    assert_eq!(left, "configmap/one\n");
}

/// `rollout status` watches until the cluster says that it is done.
async fn rolled_out(world: &World, kubectl: &Kubectl) {
    let mut waiting = kubectl.start(&["rollout", "status", "deployment/guestbook", "--timeout=60s"]);
    waiting.line("Waiting for deployment").await.unwrap();
    let status = json!({"status": {
        "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
    }});
    let patch = format!("--patch={status}");
    world
        .cluster
        .admin()
        .succeed(&[
            "patch",
            "deployment",
            "guestbook",
            "--subresource=status",
            &patch,
            "-n",
            &world.guestbook,
        ])
        .await;
    let run = waiting.end().await;
    assert!(
        run.status.success() && run.stdout.contains("successfully rolled out"),
        "{run:?}"
    );
}

/// Pods are entered as the account, by those who may run programs, and by nobody else.
#[tokio::test]
async fn pods_are_entered_as_the_account() {
    let world = start(Source::Directory, false).await;
    let there = &world.guestbook;
    for protocol in [Protocol::WebSocket, Protocol::Spdy] {
        let other = world.kubectl("alice", "guestbook").speak(protocol);
        other.succeed(&["exec", "-n", there, "pod", "--", "true"]).await;
    }
    let kubectl = world.kubectl("alice", "guestbook").speak(Protocol::WebSocket);
    enter(&kubectl, there).await;
    let is = |event: &Value| {
        event["objectRef"]["subresource"] == "exec" && event["objectRef"]["namespace"] == there.as_str()
    };
    let event = world.cluster.audit().find_with(there, is).await;
    assert_eq!(
        event["impersonatedUser"]["username"],
        user(there, "deployer"),
        "{event}"
    );

    let before = world
        .cluster
        .audit()
        .events_with(there)
        .iter()
        .filter(|event| is(event))
        .count();
    let bob = world.kubectl("bob", "guestbook");
    // kubectl looks at the pod first, and nobody made it the Application's.
    let not_owned = "the object is not a resource of this application";
    for asked in [
        &["exec", "-n", there, "pod", "--", "true"][..],
        &["logs", "-n", there, "pod"],
    ] {
        let complaint = bob.fail(asked).await;
        assert!(complaint.contains(not_owned), "{complaint}");
    }
    let log = format!("/api/v1/namespaces/{there}/pods/pod/log");
    let complaint = bob.fail(&["get", "--raw", &log]).await;
    assert!(
        complaint.contains("you may not read logs of this application"),
        "{complaint}"
    );
    let after = world
        .cluster
        .audit()
        .events_with(there)
        .iter()
        .filter(|event| is(event))
        .count();
    assert_eq!(before, after);
}

/// Streams by SPDY alone, as old clients have them.
#[tokio::test]
async fn pods_are_entered_by_spdy() {
    let world = start(Source::Kubernetes, false).await;
    let kubectl = world.kubectl("alice", "guestbook").speak(Protocol::Spdy);
    enter(&kubectl, &world.guestbook).await;
    spoken(world.cluster, &world.guestbook, Protocol::Spdy).await;
}

/// Where the cluster lets the gateway say who asked, its audit log has it.
#[tokio::test]
async fn the_human_is_in_the_audit_log_where_that_is_granted() {
    for granted in [true, false] {
        let world = start(Source::Kubernetes, granted).await;
        let there = &world.guestbook;
        let kubectl = world.kubectl("alice", "guestbook");
        // The gateway asks the cluster what it may say once it runs.
        eventually("the gateway asked the cluster", async || {
            let report = world.gateway.admin("/applications").await;
            report["clusters"].as_array()?.first().map(|_| ())
        })
        .await;
        if granted {
            eventually("the cluster is told who asks", async || {
                let whoami = kubectl.json(&["auth", "whoami"]).await;
                whoami["status"]["userInfo"]["extra"]
                    .get("tollgate.dev/user")
                    .map(|_| ())
            })
            .await;
        }
        let run = run_apply(&kubectl, &guestbook(there, "guestbook")).await;
        assert!(run.status.success(), "{granted}: {run:?}");
        let event = world.wrote(there, "guestbook", &user(there, "deployer")).await;
        let extra = &event["impersonatedUser"]["extra"];
        if granted {
            assert_eq!(extra["tollgate.dev/user"], json!(["alice"]), "{event}");
            let application = format!("{}/guestbook", world.control);
            assert_eq!(extra["tollgate.dev/application"], json!([application]), "{event}");
        } else {
            assert!(extra.get("tollgate.dev/user").is_none(), "{event}");
        }
    }
}

/// A chart with a hook, in a folder of its own.
fn chart() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("templates")).unwrap();
    write("Chart.yaml", "apiVersion: v2\nname: guestbook\nversion: 0.1.0\n");
    write("values.yaml", "greeting: hello\n");
    write(
        "templates/objects.yaml",
        r#"
apiVersion: v1
kind: ConfigMap
metadata: { name: {{ .Release.Name }}-text }
data: { greeting: {{ .Values.greeting | quote }} }
---
apiVersion: v1
kind: Service
metadata: { name: {{ .Release.Name }}-ui }
spec: { selector: { app: ui }, ports: [{ port: 80 }] }
"#,
    );
    write(
        "templates/hook.yaml",
        r#"
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-hook
  annotations: { helm.sh/hook: "pre-install,pre-upgrade" }
"#,
    );
    folder
}

/// helm installs, upgrades, rolls back and uninstalls; hooks and its own records are
/// the account's too.
#[tokio::test]
async fn helm_works_unchanged() {
    let world = start(Source::Directory, false).await;
    let (there, kubectl) = (&world.guestbook, kubeconfig(&world).await);
    let (helm, chart) = (kubectl.beside(helm()), chart());
    let folder = chart.path().to_str().unwrap();
    let greeting = ["get", "configmap", "book-text", "--output=jsonpath={.data.greeting}"];
    helm.succeed(&["install", "book", folder, "--wait", "--timeout=60s"])
        .await;
    assert_eq!(kubectl.succeed(&greeting).await, "hello");
    helm.succeed(&["upgrade", "book", folder, "--set", "greeting=bye"])
        .await;
    assert_eq!(kubectl.succeed(&greeting).await, "bye");
    helm.succeed(&["rollback", "book", "1"]).await;
    assert_eq!(kubectl.succeed(&greeting).await, "hello");
    let listed: Value = serde_json::from_str(&helm.succeed(&["list", "--output=json"]).await).unwrap();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["revision"]),
        (&json!("book"), &json!("3"))
    );
    helm.succeed(&["uninstall", "book"]).await;
    kubectl.fail(&greeting).await;

    let account = user(there, "deployer");
    for name in ["book-text", "book-ui", "book-hook", "sh.helm.release.v1.book.v1"] {
        world.wrote(there, name, &account).await;
    }
    let arrived = world.arrived(there);
    let all = arrived
        .iter()
        .all(|event| event["impersonatedUser"]["username"] == account.as_str());
    assert!(all, "{arrived:?}");
}
