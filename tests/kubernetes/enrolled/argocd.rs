//! A whole, unmodified Argo CD that reaches its destination through the gateway, and holds no
//! credential of it.

use serde_json::{Value, json};

use super::{COMPONENT, OWN, Scene, credential, prepare, through};
use test_support::kubernetes::argocd::{ArgoCd, Cli, NAMESPACE, Wire};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::daemon::Daemon;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout};
use test_support::token;

const SESSION_KEY: &str = "a-key-only-tests-know-0123456789abcdef";

/// Namespace of the Application in the destination.
const HOME: &str = "shop";

/// Fields end in this order.
struct World {
    _gateway: Gateway,
    argocd: ArgoCd,
    _controllers: Daemon,
    control: Cluster,
    destination: Cluster,
}

impl World {
    async fn start() -> Self {
        let (control, destination) = (Cluster::start().await, Cluster::start().await);
        let controllers = destination.start_controllers();
        for namespace in [OWN, HOME] {
            destination.admin().succeed(&["create", "namespace", namespace]).await;
        }
        let token = prepare(&destination, OWN, HOME).await;
        let settings = json!({
            "accounts.controller": "apiKey, login",
            "application.sync.impersonation.enabled": "true",
            "resource.respectRBAC": "normal",
            "timeout.reconciliation": "10s",
        });
        let argocd = ArgoCd::start(&control, Wire::Plain, &settings, SESSION_KEY).await;
        control.admin().succeed(&["create", "namespace", OWN]).await;
        let own = credential(OWN, destination.url(), &token, destination.authority());
        control.admin().apply(&own.to_string()).await;

        let mut layout = Layout::new_in(NAMESPACE, &[], "");
        layout.tls();
        layout.policies("applications");
        layout.settings(json!({
            "applications": {},
            "controlPlane": {
                "reader": format!("{OWN}:reader"),
                "callers": [{"issuer": "argocd", "user": COMPONENT}],
                "credentialsNamespace": OWN,
            },
            "state": {"namespace": NAMESPACE, "kubernetes": {"kubeconfig": control.admin().kubeconfig()}},
        }));
        let gateway = layout.start().await;
        // Argo CD's own Secret of the destination.
        let component = token::session(SESSION_KEY, COMPONENT);
        let config = through(&gateway.url(), &gateway.authority().unwrap(), &component);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "destination", "namespace": NAMESPACE,
                "labels": {"argocd.argoproj.io/secret-type": "cluster"},
            },
            "stringData": {"name": "destination", "server": destination.url(), "config": config.to_string()},
        });
        control.admin().apply(&secret.to_string()).await;
        Self {
            _gateway: gateway,
            argocd,
            _controllers: controllers,
            control,
            destination,
        }
    }

    async fn cli(&self) -> Cli {
        let cli = Cli::new(self.argocd.address(), &["--plaintext"]);
        let login = cli.login("admin", self.argocd.password()).await;
        assert!(login.status.success(), "{}", login.stderr);
        cli
    }

    async fn create_project(&self) {
        let server = self.destination.url();
        let project = super::project("shop", server, HOME, "deployer");
        self.control.admin().apply(&project.to_string()).await;
    }

    /// Every request in the destination that was not its own, and as whom it was judged.
    fn judged(&self) -> Vec<(String, Value)> {
        let gateway = Scene::account(OWN, "gateway");
        let events = self.destination.audit().events();
        let of_gateway = events
            .into_iter()
            .filter(|event| event["user"]["username"] == gateway.as_str());
        let judged = of_gateway.map(|event| {
            let who = event["impersonatedUser"]["username"].as_str().unwrap_or_default();
            (who.to_owned(), event)
        });
        judged.collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unmodified_argo_cd_deploys_through_the_gateway_without_a_credential_of_the_cluster() {
    let world = World::start().await;
    world.create_project().await;
    let cli = world.cli().await;
    let server = world.destination.url();
    let create = ["app", "create", "shop", "--project", "shop", "--path", "app"];
    let source = ["--repo", world.argocd.repository()];
    let destination = ["--dest-server", server, "--dest-namespace", HOME];
    cli.succeed(&[&create[..], &source, &destination].concat()).await;
    cli.succeed(&["app", "sync", "shop", "--timeout", "60"]).await;
    cli.succeed(&["app", "wait", "shop", "--timeout", "60"]).await;
    let namespace = format!("--namespace={HOME}");
    let get = ["get", "configmap", "hello", &namespace];
    assert_eq!(world.destination.admin().json(&get).await["data"]["a"], "1");

    // Self-heal puts back what somebody changed.
    cli.succeed(&["app", "set", "shop", "--sync-policy", "automated", "--self-heal"])
        .await;
    let change = [
        "patch",
        "configmap",
        "hello",
        &namespace,
        "--patch={\"data\":{\"a\":\"changed\"}}",
    ];
    world.destination.admin().succeed(&change).await;
    eventually("the change is put back", async || {
        let map = world.destination.admin().json(&get).await;
        (map["data"]["a"] == "1").then_some(())
    })
    .await;
    cli.succeed(&["app", "delete", "shop", "--yes", "--wait"]).await;
    assert!(!world.destination.admin().run(&get).await.status.success());

    let (reader, deployer) = (Scene::account(OWN, "reader"), Scene::account(HOME, "deployer"));
    let mut writes = 0;
    for (who, event) in world.judged() {
        let reads = matches!(event["verb"].as_str(), Some("get" | "list" | "watch"));
        let is_review = event["objectRef"]["apiGroup"] == "authorization.k8s.io";
        if who.is_empty() {
            // The gateway asks what it may do itself, and which kinds there are.
            assert!(is_review || (reads && event["objectRef"].is_null()), "{event}");
        } else if reads || is_review {
            assert!(who == reader || who == deployer, "{who}: {event}");
        } else {
            writes += 1;
            assert_eq!(who, deployer, "{event}");
        }
    }
    assert!(writes >= 3, "{writes} writes");
    let admins = world.destination.audit().events();
    let by_argocd = admins.iter().filter(|event| {
        let agent = event["userAgent"].as_str().unwrap_or_default();
        agent.starts_with("argocd") && event["user"]["username"] != Scene::account(OWN, "gateway").as_str()
    });
    assert_eq!(by_argocd.count(), 0, "Argo CD came past the gateway");
}
