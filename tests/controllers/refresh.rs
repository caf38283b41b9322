//! How long the application controller takes to refresh Applications in many clusters, straight and
//! through the gateway: with the caches of the clusters that it has, and with caches that it must fill
//! again.
//!
//! All clusters are one API server, each at a TCP relay with its own port, which both ways pass.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::{Applications, Effort, Instant, NAMESPACE, REFRESH, Rounds, SESSION_KEY, until};
use test_support::kubernetes::argocd::{ArgoCd, Wire};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::gateway::{Gateway, Layout, base64, session};
use test_support::relay::Relay;

/// The account of Argo CD as which its components come to the gateway.
const COMPONENT: &str = "controller";
/// Namespace of the gateway's and the reader's accounts, and of the gateway's credentials.
const OWN: &str = "tollgate";
/// Label of Applications and clusters: which way they are reached.
const WAY: &str = "way";
/// Changes that are sent to the API server at a time.
const PARALLEL: usize = 16;

/// Fields end in this order.
struct World {
    gateway: Gateway,
    argocd: ArgoCd,
    control: Cluster,
    destination: Cluster,
    relays: Vec<Relay>,
}

pub(super) async fn measure(effort: Effort) {
    eprintln!("{} Applications in {} clusters", effort.applications, effort.clusters);
    let mut world = World::start().await;
    let applications = Applications::of(&world.control);
    for is_with in [false, true] {
        world.fill(effort, is_with).await;
    }
    for is_with in [false, true] {
        applications
            .until_compared(&format!("{WAY}={}", way(is_with)), effort.applications)
            .await;
    }
    let rounds = Rounds::measure(effort, async |is_with| world.refresh(&applications, way(is_with)).await);
    rounds.await.print("refresh");
    let rounds = Rounds::measure(effort, async |is_with| {
        world.invalidate(way(is_with)).await;
        world.refresh(&applications, way(is_with)).await
    });
    rounds.await.print("refresh with new caches");
}

fn way(is_with: bool) -> &'static str {
    if is_with { "gateway" } else { "direct" }
}

impl World {
    async fn start() -> Self {
        let (control, destination) = tokio::join!(Cluster::start(), Cluster::start());
        let settings = json!({
            "accounts.controller": "apiKey, login",
            "application.sync.impersonation.enabled": "true",
            // No refresh but those that are measured.
            "timeout.reconciliation": "0s",
        });
        let argocd = ArgoCd::start(&control, Wire::Plain, &settings, SESSION_KEY).await;
        let project = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "shop", "namespace": NAMESPACE},
            "spec": {
                "sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}],
                "destinationServiceAccounts": [
                    {"server": "*", "namespace": "*", "defaultServiceAccount": "shop:deployer"},
                ],
            },
        });
        control.admin().succeed(&["create", "namespace", OWN]).await;
        control.admin().apply(&project.to_string()).await;
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
        Self {
            gateway: layout.start().await,
            argocd,
            control,
            destination,
            relays: Vec::new(),
        }
    }

    /// Makes the clusters of one way, and their Applications.
    async fn fill(&mut self, effort: Effort, is_with: bool) {
        let way = way(is_with);
        let account = if is_with { "reader" } else { "direct" };
        let token = self.account(account).await;
        let (mut secrets, mut applications) = (Vec::new(), Vec::new());
        for cluster in 0..effort.clusters {
            let relay = Relay::to(self.destination.url()).await;
            let server = relay.url().trim_end_matches('/').to_owned();
            self.relays.push(relay);
            let name = format!("{way}-{cluster}");
            let tls = json!({"caData": base64(self.destination.authority())});
            let direct = json!({"bearerToken": token, "tlsClientConfig": tls});
            let config = if is_with {
                let own = json!({"bearerToken": self.impersonator().await, "tlsClientConfig": tls});
                secrets.push(secret(OWN, "tollgate.dev/secret-type", way, (&name, &server, &own)));
                json!({
                    "proxyUrl": self.gateway.url(), "bearerToken": session(COMPONENT),
                    "tlsClientConfig": {
                        "caData": base64(&self.gateway.authority().unwrap()), "serverName": "localhost",
                    },
                })
            } else {
                direct
            };
            let label = "argocd.argoproj.io/secret-type";
            secrets.push(secret(NAMESPACE, label, way, (&name, &server, &config)));
            for at in (cluster..effort.applications).step_by(effort.clusters) {
                applications.push(json!({
                    "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
                    "metadata": {"name": format!("{way}-{at}"), "namespace": NAMESPACE, "labels": {WAY: way}},
                    "spec": {
                        "project": "shop",
                        "source": {"repoURL": self.argocd.repository(), "path": "app"},
                        "destination": {"server": server, "namespace": format!("shop-{at}")},
                    },
                }));
            }
        }
        self.apply(&secrets).await;
        if is_with {
            // Argo CD waits after a failed attempt.
            for relay in self.relays.iter().rev().take(effort.clusters) {
                self.until_served(relay.url().trim_end_matches('/')).await;
            }
        }
        self.apply(&applications).await;
    }

    async fn apply(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.control.admin().apply(&list.to_string()).await;
    }

    /// Waits until the gateway passes requests to this server.
    async fn until_served(&self, server: &str) {
        let user = json!({"token": session(COMPONENT)});
        let kubectl = self.gateway.kubectl_through(server, &user);
        until("the gateway serves a cluster", async || {
            kubectl.run(&["get", "--raw", "/version"]).await.status.success()
        })
        .await;
    }

    /// A token of an account that may read everything.
    async fn account(&self, name: &str) -> String {
        let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
        self.account_with(name, &rules).await
    }

    /// A token of an account that may impersonate service accounts, and nothing else.
    async fn impersonator(&self) -> String {
        let rules = json!([{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]}]);
        self.account_with("gateway", &rules).await
    }

    async fn account_with(&self, name: &str, rules: &Value) -> String {
        let admin = self.destination.admin();
        let metadata = json!({"name": name});
        let rbac = "rbac.authorization.k8s.io";
        for object in [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": OWN}}),
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": rules,
            }),
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": OWN}],
            }),
        ] {
            admin.apply(&object.to_string()).await;
        }
        let token = admin.succeed(&["create", "token", name, "--namespace", OWN]).await;
        token.trim().to_owned()
    }

    /// Has each Application of one way refreshed, and returns how long that takes.
    async fn refresh(&self, applications: &Applications, way: &str) -> Duration {
        let label = format!("{WAY}={way}");
        let names: Vec<String> = applications.names(&label).await;
        let patch = json!({"metadata": {"annotations": {REFRESH: "normal"}}});
        let started = Instant::now();
        stream::iter(&names)
            .for_each_concurrent(PARALLEL, async |name| applications.patch(name, &patch).await)
            .await;
        until("the refresh", async || applications.are_refreshed(&label).await).await;
        started.elapsed()
    }

    /// Has Argo CD fill the caches of all clusters of one way again.
    async fn invalidate(&self, way: &str) {
        let now = format!(
            "{REFRESH}={}",
            jiff::Timestamp::now().round(jiff::Unit::Second).unwrap()
        );
        let selector = format!("{WAY}={way},argocd.argoproj.io/secret-type=cluster");
        let annotate = ["annotate", "secrets", "--overwrite", &now, "--selector", &selector];
        self.control
            .admin()
            .succeed(&[&annotate[..], &["--namespace", NAMESPACE]].concat())
            .await;
    }
}

fn secret(namespace: &str, label: &str, way: &str, (name, server, config): (&str, &str, &Value)) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {label: "cluster", WAY: way}},
        "stringData": {"name": name, "server": server, "config": config.to_string()},
    })
}
