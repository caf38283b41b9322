//! A whole, unmodified Argo CD that reaches its destinations through the gateway, and holds no
//! credential of them.
//!
//! `sync` has what it does with one Application, `accounts` has the accounts that projects name,
//! `failures` has gateways that end meanwhile, and `exchange` has tokens that a web API issues.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Mutex;

use super::{COMPONENT, OWN, Scene, credential, prepare, through};
use test_support::kubernetes::argocd::{ArgoCd, Cli, NAMESPACE, Wire};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::daemon::Daemon;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout};
use test_support::token;

pub(super) const SESSION_KEY: &str = "a-key-only-tests-know-0123456789abcdef";

/// A namespace of the destination, where the account `deployer` edits ConfigMaps.
pub(super) const HOME: &str = "shop";

/// Fields end in this order.
pub(super) struct World {
    pub(super) gateway: Gateway,
    pub(super) argocd: ArgoCd,
    _controllers: Daemon,
    pub(super) control: Cluster,
    pub(super) destination: Cluster,
    commits: Mutex<()>,
}

impl World {
    pub(super) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// - `configure`: what differs about the gateway.
    pub(super) async fn start_with(configure: impl FnOnce(&mut Layout)) -> Self {
        let (world, token) = Self::start_without_clusters(|layout, _| configure(layout)).await;
        let server = world.destination.url();
        world.enroll("destination", server, &world.destination, &token).await;
        world
    }

    /// The same, but neither Argo CD nor the gateway knows the destination yet. Returns the token of
    /// the gateway's account there, too.
    ///
    /// - `configure`: what differs about the gateway; it gets the cluster of Argo CD.
    pub(super) async fn start_without_clusters(configure: impl FnOnce(&mut Layout, &Cluster)) -> (Self, String) {
        let (control, destination) = tokio::join!(Cluster::start(), Cluster::start());
        let controllers = destination.start_controllers();
        for namespace in [OWN, HOME] {
            destination.admin().succeed(&["create", "namespace", namespace]).await;
        }
        let token = prepare(&destination, OWN, HOME).await;
        let settings = json!({
            "accounts.controller": "apiKey, login",
            "application.sync.impersonation.enabled": "true",
            "resource.respectRBAC": "normal",
            "exec.enabled": "true",
            "timeout.reconciliation": "10s",
        });
        let argocd = ArgoCd::start(&control, Wire::Plain, &settings, SESSION_KEY).await;
        control.admin().succeed(&["create", "namespace", OWN]).await;

        let mut layout = Layout::new_in(NAMESPACE, &[], "");
        layout.tls();
        layout.policies("applications");
        layout.policies("controlplane");
        layout.settings(json!({
            "applications": {},
            "controlPlane": {
                "reader": format!("{OWN}:reader"),
                "callers": [{"issuer": "argocd", "user": COMPONENT}],
                "credentialsNamespace": OWN,
            },
            "state": {"namespace": NAMESPACE, "kubernetes": {"kubeconfig": control.admin().kubeconfig()}},
        }));
        configure(&mut layout, &control);
        let world = Self {
            gateway: layout.start().await,
            argocd,
            _controllers: controllers,
            control,
            destination,
            commits: Mutex::default(),
        };
        (world, token)
    }

    /// Lets Argo CD reach a cluster through the gateway.
    ///
    /// - `server`: a URL of `cluster`.
    /// - `token`: the gateway's credential there.
    pub(super) async fn enroll(&self, name: &str, server: &str, cluster: &Cluster, token: &str) {
        let mut own = credential(OWN, server, token, cluster.authority());
        own["metadata"]["name"] = json!(name);
        self.control.admin().apply(&own.to_string()).await;
        self.write_argocd_secret(name, server, &self.gateway.url()).await;
    }

    /// Writes Argo CD's own Secret of a cluster, by which it reaches a gateway.
    ///
    /// - `proxy`: URL of the gateway.
    pub(super) async fn write_argocd_secret(&self, name: &str, server: &str, proxy: &str) {
        let config = through(proxy, &self.gateway.authority().unwrap(), &component());
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": name, "namespace": NAMESPACE,
                "labels": {"argocd.argoproj.io/secret-type": "cluster"},
            },
            "stringData": {"name": name, "server": server, "config": config.to_string()},
        });
        self.control.admin().apply(&secret.to_string()).await;
    }

    pub(super) async fn cli(&self) -> Cli {
        let cli = Cli::new(self.argocd.address(), &["--plaintext"]);
        let login = cli.login("admin", self.argocd.password()).await;
        assert!(login.status.success(), "{}", login.stderr);
        cli
    }

    /// Writes files into the repository that Argo CD reads, and commits them. `None` removes a file.
    pub(super) async fn commit(&self, files: &[(&str, Option<Value>)]) {
        let _one = self.commits.lock().await;
        commit(self.argocd.repository(), files).await;
    }

    /// Creates an Application of the project `shop` for a folder of the repository, in the namespace
    /// of the same name.
    pub(super) async fn create_application(&self, cli: &Cli, name: &str, more: &[&str]) {
        let create = ["app", "create", name, "--project", "shop", "--path", name];
        let source = ["--repo", self.argocd.repository()];
        let destination = ["--dest-server", self.destination.url(), "--dest-namespace", name];
        cli.succeed(&[&create[..], &source, &destination, more].concat()).await;
    }

    /// Syncs an Application, which must fail. Returns what Argo CD says about that.
    pub(super) async fn sync_fails(&self, cli: &Cli, name: &str) -> String {
        let run = cli.run(&["app", "sync", name, "--timeout", "60"]).await;
        assert!(!run.status.success(), "{name} is synced: {}", run.stdout);
        let state = self.operation(name).await;
        assert!(matches!(state["phase"].as_str(), Some("Failed" | "Error")), "{state}");
        messages(&state)
    }

    /// `status.operationState` of an Application.
    pub(super) async fn operation(&self, name: &str) -> Value {
        let get = ["get", "application", name, "--namespace", NAMESPACE];
        self.control.admin().json(&get).await["status"]["operationState"].take()
    }

    /// Waits until the gateway has read that an Application acts as an account.
    pub(super) async fn until_acting(&self, server: &str, account: &str) {
        let user = json!({"token": component()});
        let kubectl = self.gateway.kubectl_through(server, &user);
        let get = ["get", "--raw=/version", &format!("--as={account}")];
        eventually("the gateway knows the account", async || {
            kubectl.run(&get).await.status.success().then_some(())
        })
        .await;
    }

    /// Waits until the destination has recorded that an account changed an object.
    pub(super) async fn wrote(&self, account: &str, verb: &str, (resource, name): (&str, &str)) -> Value {
        let gateway = Scene::account(OWN, "gateway");
        let audit = self.destination.audit();
        let wanted = |event: &Value| {
            event["user"]["username"] == gateway.as_str()
                && event["impersonatedUser"]["username"] == account
                && event["verb"] == verb
                && event["objectRef"]["resource"] == resource
                && event["objectRef"]["name"] == name
                && is_done(event)
        };
        audit.find_with(account, wanted).await
    }

    /// Waits until the destination has recorded that an account tried a change of an object without
    /// making it.
    pub(super) async fn dry_ran(&self, account: &str, (resource, name): (&str, &str)) {
        let wanted = |event: &Value| {
            event["impersonatedUser"]["username"] == account
                && event["verb"] == "patch"
                && event["objectRef"]["resource"] == resource
                && event["objectRef"]["name"] == name
                && event["requestURI"]
                    .as_str()
                    .is_some_and(|target| target.contains("dryRun=All"))
        };
        self.destination.audit().find_with(account, wanted).await;
    }

    /// Asserts who did what in the destination: see [`assert_actors`].
    pub(super) fn assert_actors(&self, accounts: &[String]) {
        assert_actors(&self.destination, &[Scene::account(OWN, "gateway")], accounts);
    }
}

/// Writes files into a repository, and commits them. `None` removes a file.
pub(super) async fn commit(repository: &str, files: &[(&str, Option<Value>)]) {
    let folder = Path::new(repository.trim_start_matches("file://"));
    for (name, content) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        match content {
            Some(content) => std::fs::write(path, content.to_string()).unwrap(),
            None => std::fs::remove_file(path).unwrap(),
        }
    }
    let identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.com"];
    for arguments in [
        &["add", "--all"][..],
        &[&identity[..], &["commit", "--quiet", "--message=more"]].concat(),
    ] {
        let status = Command::new("git").args(arguments).current_dir(folder).status().await;
        assert!(status.unwrap().success(), "git {arguments:?}");
    }
}

/// A session of Argo CD's components.
pub(super) fn component() -> String {
    token::session(SESSION_KEY, COMPONENT)
}

/// A project for destinations (server, namespace), and accounts for some of them.
pub(super) fn project(name: &str, destinations: &[(&str, &str)], accounts: &[(&str, &str, &str)]) -> Value {
    let destinations = destinations
        .iter()
        .map(|(server, namespace)| json!({"server": server, "namespace": namespace}));
    let accounts = accounts.iter().map(|(server, namespace, account)| {
        json!({"server": server, "namespace": namespace, "defaultServiceAccount": account})
    });
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "sourceRepos": ["*"],
            "clusterResourceWhitelist": [{"group": "", "kind": "Namespace"}],
            "destinations": destinations.collect::<Vec<_>>(),
            "destinationServiceAccounts": accounts.collect::<Vec<_>>(),
        },
    })
}

pub(super) fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

/// A Deployment that no controller looks at.
pub(super) fn deployment(name: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "none.invalid/main"}]},
            },
        },
    })
}

/// Lets an account do everything with these resources, `group/resource`, and waits until the API
/// server knows. An earlier grant of the same name is replaced.
///
/// - `account`: namespace and name.
/// - `namespace`: `None` for the whole cluster.
pub(super) async fn grant(
    cluster: &Cluster,
    name: &str,
    account: (&str, &str),
    (namespace, verbs, resources): (Option<&str>, &[&str], &[&str]),
) {
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let rules = resources.iter().map(|resource| {
        let (group, resource) = resource.split_once('/').unwrap();
        json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
    });
    let api = "rbac.authorization.k8s.io";
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    let role = json!({
        "apiVersion": format!("{api}/v1"), "kind": kind, "metadata": metadata, "rules": rules.collect::<Vec<_>>(),
    });
    let binding = json!({
        "apiVersion": format!("{api}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
        "roleRef": {"apiGroup": api, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": account.0, "name": account.1}],
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [role, binding]});
    cluster.admin().apply(&list.to_string()).await;
    for resource in resources {
        let (group, resource) = resource.split_once('/').unwrap();
        until_may(
            cluster,
            account,
            (namespace, verbs[0], format!("{resource}.{group}").trim_end_matches('.')),
            true,
        )
        .await;
    }
}

/// Waits until an account may do something, or may not.
pub(super) async fn until_may(
    cluster: &Cluster,
    account: (&str, &str),
    (namespace, verb, resource): (Option<&str>, &str, &str),
    may: bool,
) {
    let user = format!("--as={}", Scene::account(account.0, account.1));
    let scope = namespace.map_or_else(|| "--all-namespaces".to_owned(), |name| format!("--namespace={name}"));
    let verb = if verb == "*" { "create" } else { verb };
    eventually("the API server knows the right", async || {
        let run = cluster
            .admin()
            .run(&["auth", "can-i", verb, resource, &scope, &user])
            .await;
        (run.status.success() == may).then_some(())
    })
    .await;
}

/// The message of an operation and those of its resources.
pub(super) fn messages(state: &Value) -> String {
    let resources = state["syncResult"]["resources"].as_array();
    let all = resources.into_iter().flatten().chain([state]);
    let texts = all.filter_map(|one| one["message"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// Whether a request changes something, regardless of its outcome.
pub(super) fn is_write(event: &Value) -> bool {
    let reads = matches!(event["verb"].as_str(), Some("get" | "list" | "watch"));
    !reads && event["objectRef"]["apiGroup"] != "authorization.k8s.io"
}

/// Whether a request changed something.
pub(super) fn is_done(event: &Value) -> bool {
    let is_dry = event["requestURI"]
        .as_str()
        .is_some_and(|target| target.contains("dryRun="));
    let is_accepted = event["responseStatus"]["code"]
        .as_u64()
        .is_some_and(|code| (200..300).contains(&code));
    is_write(event) && is_accepted && !is_dry
}

/// Every request in a cluster that came from the gateway's account, and the identity as which it was
/// judged.
pub(super) fn judged(cluster: &Cluster, gateway: &str) -> Vec<(String, Value)> {
    let events = cluster.audit().events_with(gateway).into_iter();
    let of_gateway = events.filter(|event| event["user"]["username"] == gateway);
    let judged = of_gateway.map(|event| {
        let who = event["impersonatedUser"]["username"].as_str().unwrap_or_default();
        (who.to_owned(), event)
    });
    judged.collect()
}

/// Asserts of the whole audit log of a cluster that each write from an account of the gateway is of
/// one of `accounts`, that each of them wrote, that only they and the reader read, and that Argo CD
/// did not come past the gateway.
pub(super) fn assert_actors(cluster: &Cluster, gateways: &[String], accounts: &[String]) {
    let reader = Scene::account(OWN, "reader");
    let judged: Vec<_> = gateways.iter().flat_map(|gateway| judged(cluster, gateway)).collect();
    let agent = |event: &Value| event["userAgent"].as_str().unwrap_or_default().to_owned();
    let is_argocd = |event: &Value| agent(event).starts_with("argocd");
    for (who, event) in &judged {
        if who.is_empty() {
            // The gateway asks what it may do itself, and whether the accounts exist.
            assert!(!is_write(event) && !is_argocd(event), "{event}");
        } else {
            let is_reader = *who == reader && !is_write(event);
            assert!(is_reader || accounts.contains(who), "{who}: {event}");
        }
    }
    for account in accounts {
        let mut writes = judged.iter().filter(|(who, event)| who == account && is_done(event));
        assert!(writes.next().is_some(), "{account} wrote nothing");
    }
    assert!(
        judged.iter().any(|(_, event)| is_argocd(event)),
        "Argo CD has another User-Agent"
    );
    for event in cluster.audit().events() {
        let agent = agent(&event);
        let is_ours = agent.is_empty() || agent.starts_with("kubectl/") || agent.starts_with("kube-controller-manager");
        let is_gateway = gateways
            .iter()
            .any(|gateway| event["user"]["username"] == gateway.as_str());
        assert!(is_gateway || is_ours, "past the gateway: {event}");
    }
}
