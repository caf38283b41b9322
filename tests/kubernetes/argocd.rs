//! A whole Argo CD behind the gateway: the same commands of its CLI through the gateway and
//! straight to argocd-server.
//!
//! `sessions` has sign-in, sign-out and accounts; `wire` has HTTP/2, WebSockets and root paths.
//!
//! Needs the programs of Kubernetes (`cargo xtask kubernetes`), Argo CD (`cargo xtask argocd`) and
//! Redis.

use reqwest::redirect::Policy;
use reqwest::{Certificate, Method, Response};
use serde_json::{Value, json};

use test_support::kubernetes::argocd::{ArgoCd, Cli, NAMESPACE, READS, Wire};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout};
use test_support::redis::PASSWORD;
use test_support::token;

mod crashes;
mod sessions;
mod sets;
mod wire;

/// Signs the sessions of argocd-server, which the gateway reads from its Secret.
pub(crate) const SESSION_KEY: &str = "a-key-only-tests-know-0123456789abcdef";

/// Argo CD, and a gateway in front of it.
pub(crate) struct Fixture {
    pub(crate) gateway: Gateway,
    pub(crate) argocd: ArgoCd,
    wire: Wire,
    // Ends after what uses it.
    pub(crate) cluster: Cluster,
}

/// What differs between fixtures.
pub(crate) struct Setup {
    wire: Wire,
    /// `data` of `argocd-cm`.
    pub(crate) argocd_cm: Value,
    /// Address of a Dex of the tests; `None` for a real one, if `argocd_cm` has `dex.config`.
    dex: Option<String>,
    /// Where the gateway listens.
    pub(crate) listen: String,
}

impl Setup {
    pub(crate) fn new(wire: Wire) -> Self {
        Self {
            wire,
            argocd_cm: json!({"accounts.ci": "apiKey, login", "timeout.reconciliation": "10s"}),
            dex: None,
            listen: "127.0.0.1:0".to_owned(),
        }
    }

    /// Signs people in with Dex, all as one person of the group `authors`.
    ///
    /// - `url`: where people reach Argo CD.
    fn with_dex(mut self, url: &str) -> Self {
        self.argocd_cm["url"] = json!(url);
        self.argocd_cm["dex.config"] = json!("connectors: [{type: mockCallback, id: mock, name: Mock}]");
        self
    }

    /// - `configure`: what else differs about the gateway.
    pub(crate) async fn start(self, configure: impl FnOnce(&mut Layout)) -> Fixture {
        let wire = self.wire;
        let cluster = Cluster::start().await;
        let argocd = ArgoCd::start_with_dex(&cluster, wire, (&self.argocd_cm, SESSION_KEY), self.dex.as_deref());
        let mut argocd = argocd.await;
        let mut layout = Layout::new_in(NAMESPACE, &[], "");
        for front in ["argocd", "applicationsets"] {
            layout.policies(front);
        }
        let password = argocd.redis().file("password", PASSWORD);
        let mut redis = argocd.redis().settings();
        redis["passwordFile"] = json!(password);
        let mut server = json!({"server": argocd.url(), "redis": redis});
        if let Some(authority) = argocd.authority() {
            layout.tls();
            std::fs::write(layout.root().join("argocd-ca.pem"), authority).unwrap();
            server["ca"] = json!("argocd-ca.pem");
        }
        let kubeconfig = cluster.admin().kubeconfig();
        layout.settings(json!({
            "listen": self.listen,
            "argocd": server,
            "applicationSets": {},
            "state": {"namespace": NAMESPACE, "kubernetes": {"kubeconfig": kubeconfig}},
        }));
        configure(&mut layout);
        Fixture {
            gateway: layout.start().await,
            argocd,
            wire,
            cluster,
        }
    }
}

impl Fixture {
    async fn start(wire: Wire) -> Self {
        Self::start_with(wire, |_| {}).await
    }

    /// - `configure`: what differs about the gateway.
    async fn start_with(wire: Wire, configure: impl FnOnce(&mut Layout)) -> Self {
        Setup::new(wire).start(configure).await
    }

    /// Signs in through the gateway as the pages do, and returns the session.
    async fn session(&self, user: &str, password: &str) -> String {
        let client = self.gateway.plain_client();
        let request = client.post(format!("{}/api/v1/session", self.gateway.url()));
        let answer = request
            .json(&json!({"username": user, "password": password}))
            .send()
            .await;
        let answer: Value = answer.unwrap().json().await.unwrap();
        answer["token"].as_str().expect("a session").to_owned()
    }

    /// Sends a request with a session as a browser does.
    async fn send(&self, method: Method, path: &str, session: &str) -> Response {
        let authority = self.gateway.authority();
        let authority = authority
            .iter()
            .map(|pem| Certificate::from_pem(pem.as_bytes()).unwrap());
        let client = reqwest::Client::builder().no_proxy().redirect(Policy::none());
        let client = client.tls_certs_only(authority).build().unwrap();
        let request = client.request(method, format!("{}{path}", self.gateway.url()));
        let request = request.header("cookie", format!("argocd.token={session}"));
        request.send().await.unwrap()
    }

    /// Status and reason of the answer to a GET.
    async fn outcome(&self, path: &str, session: &str) -> (u16, String) {
        let answer = self.send(Method::GET, path, session).await;
        let status = answer.status().as_u16();
        let body: Value = answer.json().await.unwrap_or_default();
        (status, body["reason"].as_str().unwrap_or_default().to_owned())
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
    for command in READS {
        cli.assert_same_output(&direct, command).await;
    }
    cli.assert_destination_service_accounts(&direct).await;
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

/// A line in `policies/argocd` that refuses syncs of the Application `frozen`, and nothing else.
const FREEZE: &str = "deny contains \"frozen until Monday\" if { input.request.method == \"Sync\"; \
                      input.application.name == \"frozen\" }\n";

#[tokio::test(flavor = "multi_thread")]
async fn one_line_of_policy_stops_a_sync_by_the_cli_and_by_rest() {
    let freeze = |layout: &mut Layout| {
        let policy = layout.root().join("policies/argocd/policy.rego");
        let shipped = std::fs::read_to_string(&policy).unwrap();
        std::fs::write(policy, format!("{shipped}\n{FREEZE}")).unwrap();
    };
    let fixture = Fixture::start_with(Wire::Plain, freeze).await;
    let cli = fixture.cli(Through::Gateway, &[]);
    assert!(cli.login("admin", fixture.argocd.password()).await.status.success());
    let repository = fixture.argocd.repository();
    for name in ["frozen", "free"] {
        let destination = [
            "--dest-server",
            "https://kubernetes.default.svc",
            "--dest-namespace",
            "default",
        ];
        let create = ["app", "create", name, "--repo", repository, "--path", "app"];
        cli.succeed(&[&create[..], &destination].concat()).await;
    }
    // By gRPC and by gRPC-Web.
    for more in [&[][..], &["--grpc-web"]] {
        let cli = fixture.cli(Through::Gateway, more);
        assert!(cli.login("admin", fixture.argocd.password()).await.status.success());
        let refused = cli.run(&["app", "sync", "frozen", "--timeout", "60"]).await;
        assert!(!refused.status.success(), "{}", refused.stdout);
        assert!(refused.stderr.contains("PermissionDenied"), "{}", refused.stderr);
        assert!(refused.stderr.contains("frozen until Monday"), "{}", refused.stderr);
        // What the command reads before the sync passes.
        cli.succeed(&["app", "get", "frozen"]).await;
    }
    let url = |name: &str| format!("http://{}/api/v1/applications/{name}/sync", fixture.gateway.address());
    let sync = async |name: &str| {
        let client = reqwest::Client::new();
        let request = client.post(url(name)).bearer_auth(token::session(SESSION_KEY, "admin"));
        let answer = request.json(&json!({})).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, body) = sync("frozen").await;
    assert_eq!(
        (status, &body["message"]),
        (403, &json!("frozen until Monday")),
        "{body}"
    );
    let shown = cli.succeed(&["app", "get", "frozen", "-o", "json"]).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert!(
        shown.get("operation").is_none() && shown["status"].get("operationState").is_none(),
        "{shown}"
    );
    eventually("the three refusals are recorded", async || {
        let records = fixture.gateway.decisions().into_iter();
        let syncs = records.filter(|record| {
            record["outcome"] == "denied" && record["api_method"] == "application.ApplicationService/Sync"
        });
        (syncs.count() == 3).then_some(())
    })
    .await;

    // The twin passes by each of them.
    assert_eq!(sync("free").await.0, 200);
    cli.succeed(&["app", "wait", "free", "--timeout", "60"]).await;
    cli.succeed(&["app", "sync", "free", "--timeout", "60"]).await;
}
