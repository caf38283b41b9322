//! `tollgate cluster enroll` and `release` with Secrets of a real API server, which is the cluster that
//! is enrolled too.

use std::process::Stdio;
use std::sync::Mutex;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::{COMPONENT, STRANGER, Scene, application, prepare, project};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout, base64, kubeconfig, session};
use test_support::kubernetes::kubectl::Kubectl;

mod refused;

/// What a command printed, and its exit code.
#[derive(Debug)]
struct Output {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// A control plane whose objects are in a namespace of the cluster.
struct World {
    cluster: &'static Cluster,
    gateway: Gateway,
    files: TempDir,
    /// Argo CD's namespace.
    argocd: String,
    /// Namespace of the gateway's accounts, and of its Secrets.
    own: String,
    /// Namespace of the Application `shop`, which acts as `deployer` there.
    home: String,
    /// The token that Argo CD has for the cluster: of an administrator.
    administrator: String,
    /// A token of the account `gateway`, which may only impersonate.
    only_impersonates: String,
    /// Everything that the commands printed.
    printed: Mutex<String>,
}

impl World {
    async fn start() -> Self {
        let cluster = Cluster::shared().await.with_crds().await;
        let (argocd, own) = (cluster.namespace("argocd").await, cluster.namespace("own").await);
        let home = cluster.namespace("shop").await;
        let only_impersonates = prepare(cluster, &own, &home).await;
        let administrator = administrator(cluster, &argocd).await;

        let mut layout = Layout::new_in(&argocd, &[COMPONENT, STRANGER], "");
        layout.tls();
        layout.policies("applications");
        layout.policies("controlplane");
        layout.settings(json!({
            "applications": {},
            "controlPlane": {
                "reader": format!("{own}:reader"),
                "callers": [{"issuer": "argocd", "user": COMPONENT}],
                "credentialsNamespace": own,
            },
            "state": {"namespace": argocd, "kubernetes": {"kubeconfig": cluster.admin().kubeconfig()}},
        }));
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": layout.objects()});
        cluster.admin().apply(&objects.to_string()).await;
        let mut objects = vec![
            project("shop", cluster.url(), &home, "deployer"),
            application("shop", "shop", cluster.url(), &home),
            application("lost", "shop", cluster.url(), "unknown"),
        ];
        for object in &mut objects {
            object["metadata"]["namespace"] = json!(argocd);
            cluster.admin().apply(&object.to_string()).await;
        }
        let files = tempfile::tempdir().unwrap();
        let world = Self {
            cluster,
            gateway: layout.start().await,
            files,
            argocd,
            own,
            home,
            administrator,
            only_impersonates,
            printed: Mutex::default(),
        };
        world.argocd_cm(&[]).await;
        world.file("token", &session(COMPONENT));
        world.file("own-token", &world.only_impersonates);
        world
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.files.path().join(name);
        std::fs::write(&path, format!("{text}\n")).unwrap();
        path.display().to_string()
    }

    /// Sets what a control plane behind the gateway needs in argocd-cm, changed by `more`.
    async fn argocd_cm(&self, more: &[(&str, &str)]) {
        let mut data = json!({
            "application.sync.impersonation.enabled": "true",
            "resource.respectRBAC": "normal",
        });
        for (key, value) in more {
            data[*key] = json!(value);
        }
        let patch = json!({ "data": data }).to_string();
        let namespace = format!("--namespace={}", self.argocd);
        let patch = format!("--patch={patch}");
        let arguments = ["patch", "configmap", "argocd-cm", &namespace, "--type=merge", &patch];
        self.cluster.admin().succeed(&arguments).await;
    }

    /// `config` of Argo CD's Secret, as an operator may have written it.
    fn config(&self, token: &str) -> String {
        let authority = base64(self.cluster.authority());
        format!("{{ \"tlsClientConfig\": {{\"caData\": \"{authority}\"}},\n  \"bearerToken\": \"{token}\" }}")
    }

    /// Creates Argo CD's Secret of a cluster, or replaces it.
    async fn secret(&self, name: &str, server: &str, config: &str) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": name, "namespace": self.argocd,
                "labels": {"argocd.argoproj.io/secret-type": "cluster"},
            },
            "stringData": {"name": name, "server": server, "config": config, "shard": "1"},
        });
        self.cluster.admin().apply(&secret.to_string()).await;
    }

    /// The Secret of the cluster with the administrator's token.
    async fn prod(&self) -> String {
        let config = self.config(&self.administrator);
        self.secret("prod", self.cluster.url(), &config).await;
        config
    }

    /// A stored Secret.
    async fn get(&self, namespace: &str, name: &str) -> Value {
        let namespace = format!("--namespace={namespace}");
        self.cluster.admin().json(&["get", "secret", name, &namespace]).await
    }

    async fn exists(&self, namespace: &str, name: &str) -> bool {
        let namespace = format!("--namespace={namespace}");
        let run = self.cluster.admin().run(&["get", "secret", name, &namespace]).await;
        run.status.success()
    }

    /// Runs `tollgate cluster …`, without a terminal.
    async fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, "tollgate.yaml").await
    }

    async fn run_with(&self, arguments: &[&str], settings: &str) -> Output {
        let mut command = Command::new(test_support::tollgate());
        command.arg("cluster").args(arguments).stdin(Stdio::null());
        command.arg("--config").arg(self.gateway.path(settings));
        let output = command.output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let output = Output {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        let mut printed = self.printed.lock().unwrap();
        printed.push_str(&output.stdout);
        printed.push_str(&output.stderr);
        output
    }

    /// Runs `tollgate cluster enroll`. A later option takes the place of an earlier one.
    async fn enroll(&self, cluster: &str, more: &[&str]) -> Output {
        self.run(
            &self
                .enrollment(cluster, more)
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        )
        .await
    }

    fn enrollment(&self, cluster: &str, more: &[&str]) -> Vec<String> {
        let ca = self.gateway.path("gateway-ca.pem").display().to_string();
        let token = self.files.path().join("token").display().to_string();
        let url = self.gateway.url();
        let mut arguments = vec!["enroll".to_owned(), cluster.to_owned()];
        for (option, value) in [("--proxy-url", &url), ("--ca", &ca), ("--token-file", &token)] {
            if !more.contains(&option) {
                arguments.extend([option.to_owned(), value.clone()]);
            }
        }
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        arguments
    }

    /// kubectl that reaches the cluster as Argo CD's Secret says.
    async fn kubectl(&self) -> Kubectl {
        let secret = self.get(&self.argocd, "prod").await;
        let config: Value = serde_json::from_str(&decoded(&secret["data"]["config"])).unwrap();
        let cluster = json!({
            "server": decoded(&secret["data"]["server"]),
            "proxy-url": config["proxyUrl"],
            "certificate-authority-data": config["tlsClientConfig"]["caData"],
            "tls-server-name": config["tlsClientConfig"]["serverName"],
        });
        Kubectl::with_kubeconfig(&kubeconfig(&cluster, &json!({"token": config["bearerToken"]})))
    }

    /// SECURITY: no command prints a credential.
    fn check_output(&self) {
        let printed = self.printed.lock().unwrap();
        assert!(!printed.is_empty());
        let component = std::fs::read_to_string(self.files.path().join("token")).unwrap();
        for token in [&self.administrator, &self.only_impersonates, &component] {
            for part in token.trim().split('.') {
                assert!(!printed.contains(part), "{printed}");
            }
        }
    }
}

/// Makes the account that `argocd cluster add` makes, and returns its token.
async fn administrator(cluster: &Cluster, namespace: &str) -> String {
    let token = cluster.service_account(namespace, "argocd-manager").await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{namespace}-argocd-manager")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "argocd-manager", "namespace": namespace}],
    });
    cluster.admin().apply(&binding.to_string()).await;
    token
}

/// A value of a stored Secret.
pub(super) fn decoded(value: &Value) -> String {
    use ::base64::Engine as _;
    let bytes = ::base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap());
    String::from_utf8(bytes.unwrap()).unwrap()
}

#[tokio::test]
async fn a_cluster_is_enrolled_and_released_with_the_gateway_stopped() {
    let mut world = World::start().await;
    let config = world.prod().await;
    let before = world.get(&world.argocd, "prod").await;

    // Neither shows nor changes more than it should.
    let dry = world.enroll("prod", &["--dry-run"]).await;
    assert_eq!(dry.code, Some(0), "{dry:?}");
    for line in [
        &format!("+++ secret/{}/prod", world.own),
        &format!("+++ secret/{}/prod", world.argocd),
        "-  bearerToken: …",
        &format!("+  proxyUrl: {}", world.gateway.url()),
        "Dry run: nothing was changed.",
    ] {
        assert!(dry.stdout.lines().any(|shown| shown == line), "{line}: {}", dry.stdout);
    }
    let warning = "no account acts for 1 Application, which will not sync";
    assert!(dry.stderr.contains(warning), "{}", dry.stderr);
    assert!(dry.stderr.contains("was made with `kubectl apply`"), "{}", dry.stderr);
    let unconfirmed = world.enroll("prod", &[]).await;
    assert_eq!(unconfirmed.code, Some(1), "{unconfirmed:?}");
    let text = "cluster.unconfirmed: standard input is not a terminal, so nobody can confirm: have Argo CD reach \
                `prod` through the gateway? (`--yes` agrees)";
    assert!(unconfirmed.stderr.contains(text), "{}", unconfirmed.stderr);
    assert_eq!(world.get(&world.argocd, "prod").await, before);
    assert!(!world.exists(&world.own, "prod").await);

    let enrolled = world.enroll("prod", &["--yes", "--server-name", "localhost"]).await;
    assert_eq!(enrolled.code, Some(0), "{enrolled:?}");
    assert!(
        enrolled.stdout.ends_with("Cluster `prod` is enrolled.\n"),
        "{}",
        enrolled.stdout
    );
    let after = world.get(&world.argocd, "prod").await;
    for key in ["name", "server", "shard"] {
        assert_eq!(after["data"][key], before["data"][key], "{key}");
    }
    // SECURITY: nothing of the Secret has the credential, kubectl's annotation included.
    let everything = format!("{after} {}", decoded(&after["data"]["config"]));
    assert!(!everything.contains(&world.administrator) && !everything.contains(&base64(&config)));
    let own = world.get(&world.own, "prod").await;
    assert_eq!(decoded(&own["data"]["config"]), config);

    let kubectl = world.kubectl().await;
    let namespace = format!("--namespace={}", world.home);
    eventually("the gateway knows the cluster", async || {
        let run = kubectl.run(&["get", "configmaps", &namespace]).await;
        run.status.success().then_some(())
    })
    .await;
    let deployer = format!("--as={}", Scene::account(&world.home, "deployer"));
    let create = ["create", "configmap", "made", &namespace];
    kubectl.succeed(&[&create[..], &[&deployer]].concat()).await;
    let refused = kubectl.fail(&["create", "configmap", "second", &namespace]).await;
    assert!(refused.contains("without impersonation"), "{refused}");

    let again = world.enroll("prod", &["--yes"]).await;
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(
        again.stderr.contains("cluster.enrolled: Argo CD reaches"),
        "{}",
        again.stderr
    );

    world.gateway.kill().await;
    let dry = world.run(&["release", "prod", "--dry-run"]).await;
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert!(
        dry.stdout.contains("-  proxyUrl: ") && dry.stdout.contains("+++ /dev/null"),
        "{}",
        dry.stdout
    );
    assert!(world.exists(&world.own, "prod").await);
    let released = world.run(&["release", world.cluster.url(), "--yes"]).await;
    assert_eq!(released.code, Some(0), "{released:?}");
    let back = world.get(&world.argocd, "prod").await;
    assert_eq!(back["data"], before["data"]);
    assert!(!world.exists(&world.own, "prod").await);
    let nothing = world.run(&["release", "prod", "--yes"]).await;
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    assert!(nothing.stderr.contains("cluster.not_enrolled: "), "{}", nothing.stderr);
    world.check_output();
}

#[tokio::test]
async fn a_run_that_broke_off_is_completed() {
    let world = World::start().await;
    let config = world.prod().await;
    // A first run created the gateway's Secret and nothing else.
    let own = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "other-name", "namespace": world.own, "labels": {"tollgate.dev/secret-type": "cluster"}},
        "stringData": {"server": world.cluster.url(), "config": config},
    });
    world.cluster.admin().apply(&own.to_string()).await;
    let enrolled = world.enroll("prod", &["--yes"]).await;
    assert_eq!(enrolled.code, Some(0), "{enrolled:?}");
    assert!(!world.exists(&world.own, "prod").await);
    // Another run put the credential back and did not delete the Secret.
    world.prod().await;
    let kept = world.run(&["release", "prod", "--keep"]).await;
    assert_eq!(
        (kept.code, kept.stdout.as_str()),
        (Some(0), "Cluster `prod` is released already.\n")
    );
    let released = world.run(&["release", "prod", "--yes"]).await;
    assert_eq!(released.code, Some(0), "{released:?}");
    assert!(!world.exists(&world.own, "other-name").await);

    // SECURITY: a Secret with another credential may be the only one that has it.
    let mut other = own;
    other["stringData"]["config"] = json!(world.config("another"));
    world.cluster.admin().apply(&other.to_string()).await;
    for refused in [
        world.enroll("prod", &["--yes"]).await,
        world.run(&["release", "prod", "--yes"]).await,
    ] {
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(
            refused.stderr.contains("cluster.credential_exists: "),
            "{}",
            refused.stderr
        );
    }
    assert!(world.exists(&world.own, "other-name").await);
    let secret = world.get(&world.argocd, "prod").await;
    assert_eq!(decoded(&secret["data"]["config"]), config);
    world.check_output();
}

#[tokio::test]
async fn the_gateway_gets_a_token_that_only_impersonates() {
    let world = World::start().await;
    world.prod().await;
    let own_token = world.files.path().join("own-token").display().to_string();
    let enrolled = world
        .enroll("prod", &["--yes", "--credential-token-file", &own_token])
        .await;
    assert_eq!(enrolled.code, Some(0), "{enrolled:?}");
    let kept_nowhere = "the credential that Argo CD has now is kept nowhere";
    assert!(enrolled.stderr.contains(kept_nowhere), "{}", enrolled.stderr);
    let own = decoded(&world.get(&world.own, "prod").await["data"]["config"]);
    assert!(own.contains(&world.only_impersonates) && !own.contains(&world.administrator));
    let (kubectl, namespace) = (world.kubectl().await, format!("--namespace={}", world.home));
    eventually("the gateway knows the cluster", async || {
        let run = kubectl.run(&["get", "configmaps", &namespace]).await;
        run.status.success().then_some(())
    })
    .await;

    let refused = world.run(&["release", "prod", "--yes"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("cluster.gateway_only: "), "{}", refused.stderr);
    let token = world.file("administrator", &world.administrator);
    let released = world
        .run(&["release", "prod", "--yes", "--credential-token-file", &token])
        .await;
    assert_eq!(released.code, Some(0), "{released:?}");
    let back: Value =
        serde_json::from_str(&decoded(&world.get(&world.argocd, "prod").await["data"]["config"])).unwrap();
    let expected: Value = serde_json::from_str(&world.config(&world.administrator)).unwrap();
    assert_eq!(back, expected);
    assert!(!world.exists(&world.own, "prod").await);
    world.check_output();
}
