//! A whole Argo CD behind the gateway: the same commands of its CLI through the gateway and
//! straight to argocd-server.
//!
//! Needs the programs of Kubernetes (`cargo xtask kubernetes`), Argo CD (`cargo xtask argocd`) and
//! Redis.

use serde_json::{Value, json};

use test_support::kubernetes::argocd::{ArgoCd, Cli, NAMESPACE, Wire};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout};

/// Signs the sessions of argocd-server, which the gateway reads from its Secret.
const SESSION_KEY: &str = "a-key-only-tests-know-0123456789abcdef";

/// Argo CD, and a gateway in front of it.
struct Fixture {
    gateway: Gateway,
    argocd: ArgoCd,
    wire: Wire,
    // Ends after what uses it.
    cluster: Cluster,
}

impl Fixture {
    async fn start(wire: Wire) -> Self {
        let cluster = Cluster::start().await;
        let settings = json!({"accounts.ci": "apiKey, login", "timeout.reconciliation": "10s"});
        let argocd = ArgoCd::start(&cluster, wire, &settings, SESSION_KEY).await;
        let mut layout = Layout::new_in(NAMESPACE, &[], "");
        let mut server = json!({"server": argocd.url()});
        if let Some(authority) = argocd.authority() {
            layout.tls();
            std::fs::write(layout.root().join("argocd-ca.pem"), authority).unwrap();
            server["ca"] = json!("argocd-ca.pem");
        }
        let kubeconfig = cluster.admin().kubeconfig();
        layout.settings(json!({
            "argocd": server,
            "state": {"namespace": NAMESPACE, "kubernetes": {"kubeconfig": kubeconfig}},
        }));
        Self {
            gateway: layout.start().await,
            argocd,
            wire,
            cluster,
        }
    }

    /// The CLI for the gateway, or for argocd-server.
    fn cli(&self, through: Through, more: &[&'static str]) -> Cli {
        let address = match through {
            Through::Gateway => self.gateway.address().to_string(),
            Through::Nothing => self.argocd.address().to_owned(),
        };
        let connection: &[&str] = match self.wire {
            Wire::Plain => &["--plaintext"],
            Wire::Tls => &["--insecure"],
        };
        Cli::new(&address, &[connection, more].concat())
    }
}

#[derive(Clone, Copy, Debug)]
enum Through {
    Gateway,
    Nothing,
}

/// Signs in, and goes with an Application through its life.
async fn assert_life_cycle(fixture: &Fixture, more: &[&'static str], name: &str) {
    let argocd = &fixture.argocd;
    let cli = fixture.cli(Through::Gateway, more);
    let wrong = cli.login("admin", "not-the-password").await;
    assert!(!wrong.status.success(), "{}", wrong.stdout);
    assert!(
        wrong.stderr.contains("Invalid username or password"),
        "{}",
        wrong.stderr
    );
    let right = cli.login("admin", argocd.password()).await;
    assert!(right.status.success(), "{}", right.stderr);
    let info = cli.succeed(&["account", "get-user-info"]).await;
    assert!(
        info.contains("Logged In: true") && info.contains("Username: admin"),
        "{info}"
    );

    let direct = fixture.cli(Through::Nothing, more);
    assert!(direct.login("admin", argocd.password()).await.status.success());
    for command in [
        &["account", "list"][..],
        &["account", "can-i", "sync", "applications", "*"],
        &["proj", "list"],
        &["proj", "get", "default"],
        &["repo", "list"],
        &["cluster", "list"],
        &["cluster", "get", "https://kubernetes.default.svc"],
        &["appset", "list"],
        &["app", "list"],
        &["cert", "list"],
    ] {
        assert_eq!(cli.succeed(command).await, direct.succeed(command).await, "{command:?}");
    }
    let destination = [
        "--dest-server",
        "https://kubernetes.default.svc",
        "--dest-namespace",
        "default",
    ];
    let create = ["app", "create", name, "--repo", argocd.repository(), "--path", "app"];
    cli.succeed(&[&create[..], &destination].concat()).await;
    cli.succeed(&["app", "sync", name, "--timeout", "60"]).await;
    cli.succeed(&["app", "wait", name, "--timeout", "60"]).await;
    let shown: Value = serde_json::from_str(&cli.succeed(&["app", "get", name, "-o", "json"]).await).unwrap();
    assert_eq!(shown["status"]["sync"]["status"], "Synced", "{shown}");
    let history = cli.succeed(&["app", "history", name]).await;
    assert_eq!(history, direct.succeed(&["app", "history", name]).await);
    let applied = fixture.cluster.admin().json(&["get", "configmap", "hello"]).await;
    assert_eq!(applied["data"]["a"], "1");
    cli.succeed(&["app", "delete", name, "--yes", "--cascade=false"]).await;
    eventually("the Application is gone", async || {
        let names = cli.succeed(&["app", "list", "-o", "name"]).await;
        (!names.contains(name)).then_some(())
    })
    .await;
    fixture.cluster.admin().succeed(&["delete", "configmap", "hello"]).await;
}

/// The record of the gateway says who called.
fn assert_recorded(gateway: &Gateway, path: &str) {
    let records = gateway.decisions();
    let of_path: Vec<&Value> = records.iter().filter(|record| record["path"] == path).collect();
    assert!(!of_path.is_empty(), "no record of {path}");
    for record in of_path {
        assert_eq!(
            (&record["front"], &record["outcome"]),
            (&json!("argocd"), &json!("allowed")),
            "{record}"
        );
        assert_eq!(record["principal"]["username"], "admin", "{record}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cli_works_as_without_the_gateway_over_plain_tcp() {
    let fixture = Fixture::start(Wire::Plain).await;
    assert_life_cycle(&fixture, &[], "grpc").await;
    assert_recorded(&fixture.gateway, "/application.ApplicationService/Sync");
    assert_life_cycle(&fixture, &["--grpc-web"], "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cli_works_as_without_the_gateway_over_tls() {
    let fixture = Fixture::start(Wire::Tls).await;
    assert_life_cycle(&fixture, &[], "grpc").await;
    assert_life_cycle(&fixture, &["--grpc-web"], "web").await;
    assert_recorded(&fixture.gateway, "/application.ApplicationService/Sync");
}
