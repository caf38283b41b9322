//! A whole Argo CD on loopback with a gateway in front of it. `cargo xtask world` builds and starts
//! this program; with `--check` it makes a tour and exits, and with `--pictures` it takes those of the
//! documentation.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "as in tests, a failure ends the program; the output is for people"
)]

use base64::Engine as _;
use serde_json::json;

use test_support::kubernetes::argocd::{ArgoCd, NAMESPACE, PERSON, PERSON_PASSWORD, Wire, program, with_dex};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::daemon::Daemon;
use test_support::kubernetes::gateway::{Gateway, Layout};
use test_support::port::free_port;
use test_support::redis::PASSWORD;
use tokio::signal::unix::{SignalKind, signal};

mod day;
mod tour;

/// Signs the sessions of argocd-server, which the gateway reads from its Secret.
const SESSION_KEY: &str = "a-key-only-tests-know-0123456789abcdef";

/// Fields end in this order.
struct World {
    gateway: Gateway,
    /// URL of the console.
    console: String,
    argocd: ArgoCd,
    _controllers: Daemon,
    cluster: Cluster,
}

impl World {
    async fn start() -> Self {
        println!("starting an API server with controllers …");
        let cluster = Cluster::start().await;
        let controllers = cluster.start_controllers();
        println!("starting Argo CD …");
        let port = free_port();
        let (listen, console) = (format!("127.0.0.1:{port}"), format!("http://localhost:{port}"));
        let mut settings = json!({
            "accounts.ci": "apiKey, login",
            format!("accounts.{}", day::TENANT): "login",
            format!("accounts.{}", day::OWNER): "login",
            format!("accounts.{}", day::ON_CALL): "login",
            "exec.enabled": "true",
            "timeout.reconciliation": "10s",
        });
        with_dex(&mut settings, &format!("http://{listen}"));
        let mut argocd = ArgoCd::start(&cluster, Wire::Plain, &settings, SESSION_KEY).await;
        ArgoCd::permit(&cluster, &format!("g, {PERSON}, role:admin\n{}", day::POLICY)).await;
        day::prepare(&cluster).await;
        add_cluster(&cluster).await;
        println!("starting the gateway …");
        let mut layout = Layout::new_in(NAMESPACE, &[], "");
        for front in ["argocd", "applications", "applicationsets", "kubernetes"] {
            layout.policies(front);
        }
        let mut redis = argocd.redis().settings();
        redis["passwordFile"] = json!(argocd.redis().file("password", PASSWORD));
        layout.settings(json!({
            "listen": listen,
            "argocd": {"server": argocd.url(), "redis": redis},
            "applications": {},
            "applicationSets": {},
            "clusters": {"forward": true},
            "kubernetes": {"users": [{"issuer": "argocd", "is": "username"}]},
            "console": {"url": console, "contact": "#platform in the chat"},
            "state": {"namespace": NAMESPACE, "kubernetes": {"kubeconfig": cluster.admin().kubeconfig()}},
        }));
        Self {
            gateway: layout.start().await,
            console,
            argocd,
            _controllers: controllers,
            cluster,
        }
    }

    fn instructions(&self) -> String {
        let (address, policies) = (self.gateway.address(), self.gateway.path("policies/argocd"));
        format!(
            "\nArgo CD is at http://{address}, behind the gateway.\n\
             The gateway's console is at {console}/console/ (admin, {password}).\n\n\
             \x20 alias argocd={program}\n\
             \x20 argocd login {address} --plaintext --username admin --password {password}\n\
             \x20 argocd login {address} --plaintext --sso   # {PERSON}, {PERSON_PASSWORD}\n\
             \x20 argocd app create shop --repo {repository} --path app \\\n\
             \x20   --dest-server https://kubernetes.default.svc --dest-namespace default\n\
             \x20 argocd app sync shop\n\n\
             Refuse it: remove the `#` in front of the example in {policy} (it is read again on each change).\n\
             Decisions: {decisions}\n\
             Straight to argocd-server: {direct}\n\
             kubectl: KUBECONFIG={kubeconfig}\n\n\
             A gateway of your own in front of the same Argo CD:\n\
             \x20 tollgate init gate --kubeconfig {kubeconfig} --argocd-server {server}\n\n\
             Ctrl-C ends it and removes everything.\n",
            console = self.console,
            program = program().display(),
            password = self.argocd.password(),
            repository = self.argocd.repository(),
            policy = policies.join("policy.rego").display(),
            decisions = self.gateway.path("decisions.jsonl").display(),
            direct = self.argocd.address(),
            server = self.argocd.url(),
            kubeconfig = self.cluster.admin().kubeconfig().display(),
        )
    }
}

/// Gives Argo CD a Secret for its own cluster, as `argocd cluster add` does. A gateway that runs in no
/// pod of a cluster enters it by such a Secret.
async fn add_cluster(cluster: &Cluster) {
    let pair = cluster.certificate("argocd-manager", Some("system:masters"));
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let config = json!({"tlsClientConfig": {
        "caData": encoded(cluster.authority()), "certData": encoded(&pair.certificate), "keyData": encoded(&pair.key),
    }});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "cluster-world", "namespace": NAMESPACE,
            "labels": {"argocd.argoproj.io/secret-type": "cluster"},
        },
        "stringData": {"name": "world", "server": cluster.url(), "config": config.to_string()},
    });
    cluster.admin().apply(&secret.to_string()).await;
}

#[tokio::main]
async fn main() {
    let argument = std::env::args().nth(1);
    let world = World::start().await;
    match argument.as_deref() {
        Some("--check") => {
            tour::run(&world).await;
            println!("the tour is done");
        }
        Some("--pictures") => tour::take_pictures(&world).await,
        _ => {
            println!("{}", world.instructions());
            let mut terminated = signal(SignalKind::terminate()).unwrap();
            tokio::select! {
                interrupted = tokio::signal::ctrl_c() => interrupted.unwrap(),
                _ = terminated.recv() => {}
            }
        }
    }
}
