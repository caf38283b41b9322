//! Clusters that Argo CD reaches through the gateway: a real client opens tunnels to it (`proxyUrl`),
//! and acts in a real cluster only as accounts that projects name.
//!
//! `argocd` has a whole Argo CD, which `sync`, `accounts`, `failures` and `exchange` use, `command` tests
//! the commands that enroll and release a cluster, `in_cluster` has the cluster that Argo CD itself runs
//! in, `service_accounts` has Argo CD's components as ServiceAccounts, and `guide` runs the page that
//! leads through all of it.

use serde_json::{Value, json};

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout, base64, session};
use test_support::kubernetes::kubectl::Kubectl;

mod accounts;
mod agent;
mod argocd;
mod audit;
mod command;
mod exchange;
mod failures;
mod guide;
mod in_cluster;
mod objects;
mod policy;
mod service_accounts;
mod sync;
mod withdrawal;

/// The account of Argo CD as which its components come, and one as which nobody should.
const COMPONENT: &str = "controller";
const STRANGER: &str = "mallory";

/// Namespace of the gateway's own accounts in each cluster.
const OWN: &str = "tollgate";

/// Who may do what in a cluster: the gateway only impersonates, the reader reads everything but
/// Secrets, and the account of the project edits its namespace.
///
/// - `own`: namespace of the gateway's accounts.
fn rights(own: &str, home: &str) -> String {
    let role = |name: &str, rules: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("{own}-{name}")}, "rules": rules,
        })
    };
    let binding = |kind: &str, name: &str, namespace: &str, (of, role): (&str, &str)| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": format!("{namespace}-{name}"), "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": of}],
        })
    };
    let impersonate = json!([{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]}]);
    // Secrets are of the core group; of its other kinds these are enough for Argo CD's cache.
    let read = json!([
        {"apiGroups": [""], "resources": ["configmaps", "pods", "namespaces", "serviceaccounts"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
    ]);
    let edit = json!([
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
    ]);
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        role("impersonator", impersonate),
        role("reader", read),
        role("editor", edit),
        binding("ClusterRoleBinding", "gateway", own, (own, &format!("{own}-impersonator"))),
        binding("ClusterRoleBinding", "reader", own, (own, &format!("{own}-reader"))),
        binding("RoleBinding", "deployer", home, (home, &format!("{own}-editor"))),
    ]});
    objects.to_string()
}

/// Makes the accounts in a cluster, and returns the gateway's token for it.
async fn prepare(cluster: &Cluster, own: &str, home: &str) -> String {
    let token = cluster.service_account(own, "gateway").await;
    cluster.service_account(own, "reader").await;
    cluster.service_account(home, "deployer").await;
    cluster.admin().apply(&rights(own, home)).await;
    token
}

/// The Secret by which the gateway reaches a cluster.
fn credential(namespace: &str, server: &str, token: &str, authority: &str) -> Value {
    let config = json!({"bearerToken": token, "tlsClientConfig": {"caData": base64(authority)}});
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "destination", "namespace": namespace, "labels": {"tollgate.dev/secret-type": "cluster"}},
        "stringData": {"server": server, "config": config.to_string()},
    })
}

/// `config` of the Secret by which Argo CD reaches the gateway instead of a cluster.
fn through(gateway: &str, authority: &str, token: &str) -> Value {
    json!({
        "proxyUrl": gateway,
        "bearerToken": token,
        "tlsClientConfig": {"caData": base64(authority), "serverName": "localhost"},
    })
}

fn application(name: &str, project: &str, server: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": name, "namespace": "argocd"},
        "spec": {
            "project": project, "source": {"repoURL": "https://git.invalid/app", "path": "."},
            "destination": {"server": server, "namespace": namespace},
        },
    })
}

fn project(name: &str, server: &str, namespace: &str, account: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": {"name": name, "namespace": "argocd"},
        "spec": {
            "sourceRepos": ["*"],
            "destinations": [{"server": server, "namespace": namespace}],
            "destinationServiceAccounts": [{"server": server, "namespace": namespace, "defaultServiceAccount": account}],
            "namespaceResourceBlacklist": [{"group": "", "kind": "Event"}],
        },
    })
}

struct Scene {
    cluster: &'static Cluster,
    gateway: Gateway,
    /// Namespace of the gateway's accounts.
    own: String,
    /// Namespace of the Application `shop`, which acts as `deployer` there.
    home: String,
    /// A namespace whose account `deployer` acts for nobody in this cluster.
    other: String,
    /// The objects that the gateway started with.
    objects: Vec<Value>,
}

impl Scene {
    async fn start() -> Self {
        Self::start_in("enforce").await
    }

    /// - `mode`: of the front.
    async fn start_in(mode: &str) -> Self {
        Self::start_with(|layout, _| layout.setting("/controlPlane/mode", json!(mode))).await
    }

    /// - `configure`: what differs about the gateway; it gets the cluster.
    async fn start_with(configure: impl FnOnce(&mut Layout, &Cluster)) -> Self {
        let cluster = Cluster::shared().await;
        let (own, home) = (cluster.namespace(OWN).await, cluster.namespace("shop").await);
        let other = cluster.namespace("other").await;
        let token = prepare(cluster, &own, &home).await;
        cluster.service_account(&other, "deployer").await;
        let mut layout = Layout::new(&[COMPONENT, STRANGER], "");
        layout.tls();
        let server = cluster.url();
        let config = through("https://gateway.invalid", "unused", "unused");
        layout.cluster(
            "destination",
            &json!({"name": "destination", "server": server, "config": config.to_string()}),
        );
        layout.write(&credential(OWN, server, &token, cluster.authority()));
        // In another cluster, which is not there, the other account acts for an Application.
        let elsewhere = "https://elsewhere.invalid";
        layout.cluster(
            "elsewhere",
            &json!({"name": "elsewhere", "server": elsewhere, "config": config.to_string()}),
        );
        for object in [
            project("shop", server, &home, "deployer"),
            application("shop", "shop", server, &home),
            // In the same namespace, with another account.
            project("cart", server, &home, "cart"),
            application("cart", "cart", server, &home),
            project("elsewhere", elsewhere, &other, "deployer"),
            application("elsewhere", "elsewhere", elsewhere, &other),
            // Its project does not permit the destination.
            project("closed", "https://nowhere.invalid", &other, "deployer"),
            application("closed", "closed", server, &other),
        ] {
            layout.write(&object);
        }
        layout.policies("applications");
        layout.policies("controlplane");
        layout.settings(json!({
            "applications": {},
            "controlPlane": {
                "reader": format!("{own}:reader"),
                "callers": [{"issuer": "argocd", "user": COMPONENT}],
            },
        }));
        configure(&mut layout, cluster);
        let objects = layout.objects();
        let gateway = layout.start().await;
        Self {
            cluster,
            gateway,
            own,
            home,
            other,
            objects,
        }
    }

    /// kubectl for the cluster's own URL, which goes through the gateway with this account's token.
    fn kubectl(&self, account: &str) -> Kubectl {
        self.kubectl_of(&json!({"token": session(account)}))
    }

    /// The same as this user of a kubeconfig.
    fn kubectl_of(&self, user: &Value) -> Kubectl {
        self.gateway.kubectl_through(self.cluster.url(), user)
    }

    /// A pod of the Application `shop` that appears to run.
    async fn pod_of_application(&self) {
        self.cluster.running_pod(&self.home, "pod").await;
        let tracked = json!({"metadata": {"annotations": {
            "argocd.argoproj.io/tracking-id": format!("shop:/Pod:{}/pod", self.home),
        }}});
        let namespace = format!("--namespace={}", self.home);
        let patch = format!("--patch={tracked}");
        let admin = self.cluster.admin();
        admin.succeed(&["patch", "pod", "pod", &namespace, &patch]).await;
    }

    /// Waits until this many watches in the namespace of the Application `shop` have begun.
    async fn until_watches(&self, count: usize) {
        eventually("the watches begin", async || {
            let events = self.cluster.audit().events_with(&self.home);
            let is_open = |event: &&Value| event["verb"] == "watch" && event["stage"] == "ResponseStarted";
            (events.iter().filter(is_open).count() >= count).then_some(())
        })
        .await;
    }

    fn account(namespace: &str, name: &str) -> String {
        format!("system:serviceaccount:{namespace}:{name}")
    }

    /// The requests that the API server saw from the gateway, each with the identity that it acted as.
    fn arrived(&self) -> Vec<(String, Value)> {
        let gateway = Self::account(&self.own, "gateway");
        let events = self.cluster.audit().events_with(&gateway);
        let of_gateway = events
            .into_iter()
            .filter(|event| event["user"]["username"] == gateway.as_str());
        let seen = of_gateway.map(|event| {
            let who = event["impersonatedUser"]["username"].as_str().unwrap_or_default();
            (who.to_owned(), event)
        });
        seen.collect()
    }
}

#[tokio::test]
async fn a_component_reads_as_the_reader_and_writes_only_as_an_account_of_an_application() {
    let scene = Scene::start().await;
    let kubectl = scene.kubectl(COMPONENT);
    let namespace = format!("--namespace={}", scene.home);
    kubectl.succeed(&["get", "configmaps", &namespace]).await;
    kubectl.succeed(&["auth", "can-i", "list", "pods", &namespace]).await;
    // The API server decides what the reader may read.
    let refused = kubectl.fail(&["get", "secrets", &namespace]).await;
    let reader = Scene::account(&scene.own, "reader");
    assert!(
        refused.contains(&format!("User \"{reader}\" cannot list resource \"secrets\"")),
        "{refused}"
    );

    let deployer = format!("--as={}", Scene::account(&scene.home, "deployer"));
    kubectl
        .succeed(&["create", "configmap", "made", &namespace, &deployer])
        .await;
    kubectl
        .succeed(&["label", "configmap", "made", "a=b", &namespace, &deployer])
        .await;
    kubectl.succeed(&["get", "secrets", &namespace, &deployer]).await;
    kubectl
        .succeed(&["delete", "configmap", "made", &namespace, &deployer])
        .await;
    // The project permits the kind, and the cluster decides whether the account may create it.
    let refused = kubectl
        .fail(&["create", "serviceaccount", "made", &namespace, &deployer])
        .await;
    assert!(
        refused.contains(&format!(
            "User \"{}\" cannot create",
            Scene::account(&scene.home, "deployer")
        )),
        "{refused}"
    );

    let arrived = scene.arrived();
    assert!(!arrived.is_empty());
    for (who, event) in arrived {
        let verb = event["verb"].as_str().unwrap();
        let is_review = event["objectRef"]["apiGroup"] == "authorization.k8s.io";
        let reads = matches!(verb, "get" | "list" | "watch") || is_review;
        // The gateway itself asks which kinds there are.
        let asks_for_kinds = who.is_empty() && event["objectRef"].is_null();
        let by_reader = reads && (who == reader || asks_for_kinds);
        let allowed = who == Scene::account(&scene.home, "deployer") || by_reader;
        assert!(allowed, "{who}: {event}");
    }
    let created = eventually("the creation is recorded", async || {
        let mut records = scene.gateway.decisions().into_iter();
        records.find(|record| record["kubernetes"]["attributes"]["verb"] == "create" && record["status"] == 201)
    })
    .await;
    assert_eq!(created["front"], "control-plane", "{created}");
    assert_eq!(created["principal"]["username"], COMPONENT, "{created}");
}

/// What a thief of a component's token could try: its arguments, the reason, and the account of
/// kubectl.
#[tokio::test]
async fn a_stolen_token_is_refused_whatever_an_account_may_not() {
    let scene = Scene::start().await;
    let namespace = format!("--namespace={}", scene.home);
    let deployer = format!("--as={}", Scene::account(&scene.home, "deployer"));
    let other = format!("--as={}", Scene::account(&scene.other, "deployer"));
    let gateway = format!("--as={}", Scene::account(&scene.own, "gateway"));
    let create = &["create", "configmap", "stolen", &namespace][..];
    let attacks: Vec<(&str, Vec<&str>, &str)> = vec![
        (COMPONENT, create.to_vec(), "write_without_account"),
        (
            COMPONENT,
            vec!["delete", "configmap", "kube-root-ca.crt", &namespace],
            "write_without_account",
        ),
        (COMPONENT, [create, &[&other]].concat(), "account_of_no_application"),
        (COMPONENT, [create, &[&gateway]].concat(), "account_of_no_application"),
        (
            COMPONENT,
            [create, &["--as=admin"]].concat(),
            "account_of_no_application",
        ),
        (
            COMPONENT,
            [create, &["--as=system:admin"]].concat(),
            "account_of_no_application",
        ),
        (
            COMPONENT,
            vec!["get", "configmaps", &namespace, "--as=admin"],
            "account_of_no_application",
        ),
        (
            COMPONENT,
            [create, &[&deployer, "--as-group=system:masters"]].concat(),
            "client_impersonates",
        ),
        (
            COMPONENT,
            [create, &[&deployer, "--as-uid=1"]].concat(),
            "client_impersonates",
        ),
        (
            COMPONENT,
            [create, &[&deployer, "--as-user-extra=scopes=x"]].concat(),
            "client_impersonates",
        ),
        (
            COMPONENT,
            vec!["create", "token", "deployer", &namespace, &deployer],
            "subresource_refused",
        ),
        (
            COMPONENT,
            vec![
                "get",
                "--raw",
                "/api/v1/namespaces/default/services/https:kubernetes:443/proxy/",
            ],
            "subresource_refused",
        ),
        (
            COMPONENT,
            vec!["get", "--raw", "/api/v1/namespaces/default/pods/x/exec?command=sh"],
            "subresource_refused",
        ),
        (STRANGER, vec!["get", "configmaps", &namespace], "permission_denied"),
        (STRANGER, [create, &[&deployer]].concat(), "permission_denied"),
    ];
    for (account, arguments, reason) in attacks {
        let before = scene.gateway.decisions().len();
        let refused = scene.kubectl(account).fail(&arguments).await;
        assert!(refused.to_lowercase().contains("forbidden"), "{arguments:?}: {refused}");
        let denied = eventually("the denial is recorded", async || {
            let records = scene.gateway.decisions();
            let mut new = records.into_iter().skip(before);
            new.find(|record| record["outcome"] == "denied")
        })
        .await;
        assert_eq!(
            (&denied["reason"], &denied["status"]),
            (&json!(reason), &json!(403)),
            "{denied}"
        );
        assert!(denied["kubernetes"]["impersonated"].is_null(), "{denied}");
    }
    // None of it reached the API server: it saw only discovery, and reads as the reader that tell
    // which Application an object belongs to.
    for (who, event) in scene.arrived() {
        assert!(who.is_empty() || who == Scene::account(&scene.own, "reader"), "{event}");
        assert_eq!(event["verb"], "get", "{event}");
        let is_known = event["objectRef"].is_null() || event["objectRef"]["name"] == "kube-root-ca.crt";
        assert!(is_known, "{event}");
    }
}
