//! Unmodified kubectl and helm with an Application's cluster.

use serde_json::{Value, json};

use super::fixture::{Fixture, FixtureBuilder, Source, guestbook, role, run_apply, user};
use crate::kubelet::{assert_protocol, use_pod};
use test_support::kubernetes::gateway::session;
use test_support::kubernetes::kubectl::{Kubectl, Protocol};
use test_support::kubernetes::{eventually, helm};

/// The rights of the account, which are enough for the tools.
fn rules() -> Value {
    json!([
        {"apiGroups": ["", "apps"], "resources": ["*"], "verbs": ["*"]},
    ])
}

/// An Application whose account may do what the tools need. With `forwards_user`, the gateway may
/// send the user and Application as extra keys.
async fn start(source: Source, forwards_user: bool) -> Fixture {
    let mut builder = FixtureBuilder::new(source).await;
    let there = builder.guestbook.clone();
    builder.deployer(&there, "deployer", &[]);
    builder.objects(role(&there, "tools", &rules(), (&there, "deployer")));
    if forwards_user {
        let control = builder.control.clone();
        builder.objects(extra_rights(&control));
    }
    builder.project(
        "my-project",
        &json!({"destinationServiceAccounts": [builder.acts("*", "deployer")]}),
    );
    builder.application("guestbook", "my-project", &builder.to(&there));
    builder.cluster.running_pod(&there, "pod").await;
    builder.start().await
}

/// The gateway's right to send the user and Application as extra keys.
fn extra_rights(control: &str) -> [Value; 2] {
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

/// kubectl with the kubeconfig that `tollgate kubeconfig` prints for alice and the Application.
async fn kubeconfig(fixture: &Fixture) -> Kubectl {
    // The kubeconfig refers to this file.
    let token = fixture.gateway.path("alice.token");
    std::fs::write(&token, session("alice")).unwrap();
    let application = format!("{}/guestbook", fixture.control);
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args([
            "kubeconfig",
            "--application",
            &application,
            "--namespace",
            &fixture.guestbook,
        ])
        .args([
            "--server",
            &fixture.gateway.url(),
            "--auth-token",
            &session("alice"),
            "--token-file",
        ])
        .arg(&token)
        .arg("--certificate-authority")
        .arg(fixture.gateway.path("gateway-ca.pem"))
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    Kubectl::with_kubeconfig(&String::from_utf8(output.stdout).unwrap())
}

/// The common commands of kubectl.
#[tokio::test]
async fn kubectl_works_unchanged() {
    let fixture = start(Source::Directory, false).await;
    let (there, kubectl) = (&fixture.guestbook, kubeconfig(&fixture).await);
    let objects = guestbook(there, "guestbook");
    let apply = ["apply", "--server-side", "--filename=-"];
    let run = kubectl.run_with(&apply, &objects).await;
    assert!(
        run.status.success() && run.stdout.contains("serverside-applied"),
        "{run:?}"
    );
    fixture.wrote(there, "guestbook", &user(there, "deployer")).await;

    // First without a difference, then with one.
    let diff = ["diff", "--server-side", "--filename=-"];
    let run = kubectl.run_with(&diff, &objects).await;
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(0), ""), "{run:?}");
    let run = kubectl
        .run_with(&diff, &objects.replace(r#""port":80"#, r#""port":81"#))
        .await;
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    assert!(run.stdout.contains("+  - port: 81"), "{run:?}");

    rolled_out(&fixture, &kubectl).await;
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

    // Objects that are no longer in the list are deleted.
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
async fn rolled_out(fixture: &Fixture, kubectl: &Kubectl) {
    let mut waiting = kubectl.start(&["rollout", "status", "deployment/guestbook", "--timeout=60s"]);
    waiting.line("Waiting for deployment").await.unwrap();
    let status = json!({"status": {
        "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
    }});
    let patch = format!("--patch={status}");
    fixture
        .cluster
        .admin()
        .succeed(&[
            "patch",
            "deployment",
            "guestbook",
            "--subresource=status",
            &patch,
            "-n",
            &fixture.guestbook,
        ])
        .await;
    let run = waiting.end().await;
    assert!(
        run.status.success() && run.stdout.contains("successfully rolled out"),
        "{run:?}"
    );
}

/// Callers with the right to exec use pods as the account. Others are refused.
#[tokio::test]
async fn pods_are_used_as_the_account() {
    let fixture = start(Source::Directory, false).await;
    let there = &fixture.guestbook;
    for protocol in [Protocol::WebSocket, Protocol::Spdy] {
        let other = fixture.kubectl("alice", "guestbook").speak(protocol);
        other.succeed(&["exec", "-n", there, "pod", "--", "true"]).await;
    }
    let kubectl = fixture.kubectl("alice", "guestbook").speak(Protocol::WebSocket);
    use_pod(&kubectl, there).await;
    let is = |event: &Value| {
        event["objectRef"]["subresource"] == "exec" && event["objectRef"]["namespace"] == there.as_str()
    };
    let event = fixture.cluster.audit().find_with(there, is).await;
    assert_eq!(
        event["impersonatedUser"]["username"],
        user(there, "deployer"),
        "{event}"
    );

    let before = fixture
        .cluster
        .audit()
        .events_with(there)
        .iter()
        .filter(|event| is(event))
        .count();
    let bob = fixture.kubectl("bob", "guestbook");
    // kubectl reads the pod first, which is not tracked by the Application.
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
    let after = fixture
        .cluster
        .audit()
        .events_with(there)
        .iter()
        .filter(|event| is(event))
        .count();
    assert_eq!(before, after);
}

/// Streams with SPDY only, as of old clients.
#[tokio::test]
async fn pods_are_used_with_spdy() {
    let fixture = start(Source::Kubernetes, false).await;
    let kubectl = fixture.kubectl("alice", "guestbook").speak(Protocol::Spdy);
    use_pod(&kubectl, &fixture.guestbook).await;
    assert_protocol(fixture.cluster, &fixture.guestbook, Protocol::Spdy).await;
}

/// The cluster's audit log has the user, if the gateway may send extra keys.
#[tokio::test]
async fn the_user_is_in_the_audit_log_if_extra_keys_are_granted() {
    for granted in [true, false] {
        let fixture = start(Source::Kubernetes, granted).await;
        let there = &fixture.guestbook;
        let kubectl = fixture.kubectl("alice", "guestbook");
        // The gateway asks the cluster about its rights after it has started.
        eventually("the gateway asked the cluster", async || {
            let report = fixture.gateway.admin("/applications").await;
            report["clusters"].as_array()?.first().map(|_| ())
        })
        .await;
        if granted {
            eventually("the gateway sends the user", async || {
                let whoami = kubectl.json(&["auth", "whoami"]).await;
                whoami["status"]["userInfo"]["extra"]
                    .get("tollgate.dev/user")
                    .map(|_| ())
            })
            .await;
        }
        let run = run_apply(&kubectl, &guestbook(there, "guestbook")).await;
        assert!(run.status.success(), "{granted}: {run:?}");
        let event = fixture.wrote(there, "guestbook", &user(there, "deployer")).await;
        let extra = &event["impersonatedUser"]["extra"];
        if granted {
            assert_eq!(extra["tollgate.dev/user"], json!(["alice"]), "{event}");
            let application = format!("{}/guestbook", fixture.control);
            assert_eq!(extra["tollgate.dev/application"], json!([application]), "{event}");
        } else {
            assert!(extra.get("tollgate.dev/user").is_none(), "{event}");
        }
    }
}

/// A chart with a hook, in a temporary folder.
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

/// helm installs, upgrades, rolls back and uninstalls. Hooks and release records are written as the
/// account too.
#[tokio::test]
async fn helm_works_unchanged() {
    let fixture = start(Source::Directory, false).await;
    let (there, kubectl) = (&fixture.guestbook, kubeconfig(&fixture).await);
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
        fixture.wrote(there, name, &account).await;
    }
    let arrived = fixture.arrived(there);
    let all = arrived
        .iter()
        .all(|event| event["impersonatedUser"]["username"] == account.as_str());
    assert!(all, "{arrived:?}");
}
