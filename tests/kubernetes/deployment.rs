//! The manifests of `deploy/kubernetes`, tested with a real API server. It accepts them, the
//! gateway runs with the rights they grant, and every right is necessary.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::applications::fixture::{apply, project};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout, base64, kubeconfig};
use test_support::world::copy_guest;
use xtask::image::PLUGINS;

mod argocd;
mod chart;
mod examples;
mod metrics;
mod pods;

pub(crate) use argocd::argocd_with;
use pods::{only_restricted_pods_are_created, restricted_namespace};

/// A kustomization that deploys `deploy/kubernetes` to another namespace.
pub(crate) struct Overlay {
    folder: TempDir,
    namespace: String,
}

impl Overlay {
    /// A kustomization for this namespace with these components.
    pub(crate) fn new(namespace: &str, components: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = std::fs::read_to_string(shipped("base/tollgate.yaml")).unwrap();
        let settings = settings.replace("namespace: argocd", &format!("namespace: {namespace}"));
        std::fs::write(folder.path().join("tollgate.yaml"), settings).unwrap();
        let path = |name: &str| relative(folder.path(), &shipped(name));
        let kustomization = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": namespace,
            "resources": [path("base")],
            "components": components.iter().map(|name| path(&format!("components/{name}"))).collect::<Vec<_>>(),
            "configMapGenerator": [{"name": "tollgate", "behavior": "replace", "files": ["tollgate.yaml"]}],
        });
        std::fs::write(folder.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
        Self {
            folder,
            namespace: namespace.to_owned(),
        }
    }

    /// Replaces the settings.
    fn with_settings(self, settings: &Value) -> Self {
        std::fs::write(self.folder.path().join("tollgate.yaml"), settings.to_string()).unwrap();
        self
    }

    fn path(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    /// The objects of the kustomization.
    pub(crate) async fn objects(&self, cluster: &Cluster) -> Vec<Value> {
        kustomize(cluster, self.path()).await
    }

    /// Applies it. Returns kubectl's warnings.
    async fn apply(&self, cluster: &Cluster, more: &[&str]) -> String {
        let apply = [&["apply", "--server-side", "-k", self.path()], more].concat();
        let run = cluster.admin().run(&apply).await;
        assert!(run.status.success(), "{run:?}");
        run.stderr
    }
}

/// The objects of a kustomization.
async fn kustomize(cluster: &Cluster, folder: &str) -> Vec<Value> {
    let text = cluster.admin().succeed(&["kustomize", folder]).await;
    let objects = text.split("\n---\n");
    objects.map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/kubernetes")
        .join(name)
}

/// The relative path from a folder. kustomize accepts no absolute paths.
fn relative(from: &Path, to: &Path) -> String {
    let (from, to) = (from.canonicalize().unwrap(), to.canonicalize().unwrap());
    let up = "../".repeat(from.components().count() - 1);
    format!("{up}{}", to.strip_prefix("/").unwrap().display())
}

/// They are not applied, because the cluster of all tests would ask a gateway that does not run.
#[tokio::test]
async fn the_webhooks_are_accepted_and_call_the_gateways_own_service() {
    let cluster = Cluster::shared().await;
    let namespace = restricted_namespace(cluster).await;
    let overlay = Overlay::new(&namespace, &["admission", "admission-author"]);
    let webhooks = overlay.objects(cluster).await.into_iter();
    let webhooks = webhooks.filter(|object| object["webhooks"].is_array());
    let services = webhooks.map(|object| object["webhooks"][0]["clientConfig"]["service"]["namespace"].clone());
    assert_eq!(services.collect::<Vec<_>>(), [json!(namespace), json!(namespace)]);
    assert_eq!(
        overlay.apply(cluster, &["--dry-run=server"]).await,
        "",
        "kubectl printed a warning"
    );
}

#[tokio::test]
async fn the_manifests_are_accepted() {
    let cluster = Cluster::shared().await.with_crds().await;
    let definitions = shipped("crds");
    let definitions = [
        "apply",
        "--server-side",
        "--dry-run=server",
        "-k",
        definitions.to_str().unwrap(),
    ];
    let taken = cluster.admin().succeed(&definitions).await;
    let files = std::fs::read_dir(shipped("crds")).unwrap().count() - 1;
    assert_eq!(taken.lines().count(), files, "the kustomization lacks a file: {taken}");
    let namespace = restricted_namespace(cluster).await;
    let overlay = Overlay::new(
        &namespace,
        &[
            "connectors",
            "all-namespaces",
            "only-through-tollgate",
            "write-applicationsets",
            "write-projects",
        ],
    );
    assert_eq!(
        overlay.apply(cluster, &["--dry-run=server"]).await,
        "",
        "kubectl printed a warning"
    );
    let there = format!("--namespace={namespace}");
    let all = [
        "get",
        "deployments,services,configmaps,serviceaccounts,roles",
        "--output=name",
        &there,
    ];
    assert_eq!(cluster.admin().succeed(&all).await, "");
    assert_eq!(overlay.apply(cluster, &[]).await, "", "kubectl printed a warning");

    let deployment = cluster.admin().json(&["get", "deployment", "tollgate", &there]).await;
    assert_eq!(deployment["spec"]["replicas"], 2);
    let template = &deployment["spec"]["template"];
    only_restricted_pods_are_created(cluster, &namespace, template).await;

    // Every selector matches the pods, and the settings that they mount exist.
    let labels = &template["metadata"]["labels"];
    for (kind, pointer) in [
        ("service", "/spec/selector"),
        ("poddisruptionbudget", "/spec/selector/matchLabels"),
        ("networkpolicy", "/spec/podSelector/matchLabels"),
    ] {
        let object = cluster.admin().json(&["get", kind, "tollgate", &there]).await;
        let wanted = object.pointer(pointer).unwrap().as_object().unwrap();
        assert!(
            !wanted.is_empty() && wanted.iter().all(|(key, value)| labels[key] == *value),
            "{kind}"
        );
    }
    // Each replica says where the others reach it, at a port that only they reach.
    let container = &template["spec"]["containers"][0];
    let ports = container["ports"].as_array().unwrap();
    let peers = ports.iter().find(|port| port["name"] == "peers").unwrap();
    assert_eq!(peers["containerPort"], 8445);
    let environment = container["env"].as_array().unwrap().iter();
    let environment: Vec<_> = environment.map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(environment, ["POD_IP", "TOLLGATE_PEER_URL"]);
    let policy = ["get", "networkpolicy", "tollgate-peers", &there];
    let policy = cluster.admin().json(&policy).await;
    let rule = json!([{"from": [{"podSelector": policy["spec"]["podSelector"]}],
        "ports": [{"port": "peers", "protocol": "TCP"}]}]);
    assert_eq!(policy["spec"]["ingress"], rule);
    let wanted = &policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"];
    assert_eq!(labels["app.kubernetes.io/name"], *wanted);
    let settings = template["spec"]["volumes"][0]["configMap"]["name"].as_str().unwrap();
    let settings = cluster.admin().json(&["get", "configmap", settings, &there]).await;
    let text = settings["data"]["tollgate.yaml"].as_str().unwrap();
    assert!(text.contains(&format!("namespace: {namespace}")), "{text}");
}

/// No rule has wildcards or permits impersonation, and only components permit writes.
#[tokio::test]
async fn no_rule_is_wider_than_it_must_be() {
    let cluster = Cluster::shared().await;
    let rules = async |components: &[&str]| {
        let objects = Overlay::new("some", components).objects(cluster).await;
        let roles = objects
            .into_iter()
            .filter(|object| object["kind"].as_str().unwrap().ends_with("Role"));
        roles.collect::<Vec<Value>>()
    };
    let changes = |role: &Value| {
        let verbs = role["rules"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|rule| rule["verbs"].as_array().unwrap());
        verbs
            .filter(|verb| !["get", "list", "watch"].iter().any(|read| **verb == *read))
            .count()
    };
    let base = rules(&[]).await;
    assert_eq!(base.iter().map(|role| &role["kind"]).collect::<Vec<_>>(), ["Role"]);
    assert_eq!(changes(&base[0]), 0);
    let components = [
        "admission",
        "admission-author",
        "all-namespaces",
        "write-applicationsets",
        "write-projects",
    ];
    let everything = rules(&components).await;
    assert_eq!(everything.len(), 7);
    assert!(!json!(everything).to_string().contains('*'), "{everything:?}");
    // The folder is the same as the base in the namespace `argocd`.
    let itself = kustomize(cluster, shipped("").to_str().unwrap()).await;
    assert_eq!(itself, Overlay::new("argocd", &[]).objects(cluster).await);
    for role in &everything {
        let name = role["metadata"]["name"].as_str().unwrap();
        let wanted = match name {
            // One Secret or webhook configuration, by its name.
            "tollgate-admission" | "tollgate-admission-author" => {
                let rules = role["rules"].as_array().unwrap();
                assert!(rules.iter().all(|rule| rule["resourceNames"][0].is_string()), "{role}");
                1
            }
            "tollgate-write-projects" => 1,
            // create, patch and delete, and the right to set owner references.
            "tollgate-write-applicationsets" => 4,
            _ => 0,
        };
        assert_eq!(changes(role), wanted, "{role}");
        assert!(!role.to_string().contains("impersonate"), "{role}");
    }
}

/// What rules grant: API group, resource, and optional resource name.
pub(crate) type Grants = BTreeSet<(String, String, Option<String>)>;

pub(crate) fn grants<'a>(rules: impl IntoIterator<Item = &'a Value>) -> Grants {
    let list = |rule: &Value, key: &str| -> Vec<String> {
        let words = rule[key].as_array().into_iter().flatten();
        words.map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut grants = Grants::new();
    for rule in rules {
        let names = list(rule, "resourceNames");
        let names = match names.is_empty() {
            true => vec![None],
            false => names.into_iter().map(Some).collect(),
        };
        for (group, resource) in list(rule, "apiGroups").into_iter().flat_map(|group| {
            let resources = list(rule, "resources").into_iter();
            resources.map(move |resource| (group.clone(), resource))
        }) {
            grants.extend(names.iter().map(|name| (group.clone(), resource.clone(), name.clone())));
        }
    }
    grants
}

/// The rules that a message of the gateway reports as missing.
pub(crate) fn missing(text: &str) -> Vec<Value> {
    let rules = text.split("with the rule `").skip(1);
    let rules = rules.map(|rest| rest.split('`').next().unwrap().replace("\\\"", "\""));
    rules.map(|rule| serde_saphyr::from_str(&rule).unwrap()).collect()
}

/// A control plane in a new namespace: the applied manifests, some objects, and a gateway with the
/// settings of the manifests except those that depend on the machine.
///
/// - `more`: further settings.
async fn control_plane(cluster: &'static Cluster, more: &Value) -> (Overlay, Layout) {
    let namespace = cluster.namespace("running").await;
    let overlay = Overlay::new(&namespace, &[]);
    overlay.apply(cluster, &[]).await;
    let objects = overlay.objects(cluster).await;
    let settings = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    let settings = settings["data"]["tollgate.yaml"].as_str().unwrap();
    let mut settings: Value = serde_saphyr::from_str(settings).unwrap();
    for key in ["listen", "admin", "tls", "policies"] {
        settings.as_object_mut().unwrap().remove(key).unwrap();
    }
    settings
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    assert_eq!(settings["plugins"]["directory"], "/usr/share/tollgate/plugins");
    settings["plugins"]["directory"] = json!("plugins");
    settings["plugins"]["cache"] = json!("cache");
    let mut layout = Layout::new_in(&namespace, &["alice"], "p, alice, applications, *, */*, allow\n");
    layout.policies("applications");
    layout.policies("argocd");
    for name in PLUGINS {
        copy_guest(name, &layout.root().join("plugins"));
    }
    layout.tls();
    let there = format!("--namespace={namespace}");
    let token = cluster.admin().succeed(&["create", "token", "tollgate", &there]).await;
    let token = token.trim();
    let server = json!({"server": cluster.url(), "certificate-authority-data": base64(cluster.authority())});
    let file = layout.root().join("kubeconfig");
    std::fs::write(&file, kubeconfig(&server, &json!({"token": token}))).unwrap();
    settings["state"]["kubernetes"]["kubeconfig"] = json!(file);
    layout.settings(settings);
    let config = json!({"bearerToken": token, "tlsClientConfig": {"caData": base64(cluster.authority())}});
    layout.cluster(
        "home",
        &json!({"name": "home", "server": cluster.url(), "config": config.to_string()}),
    );
    let on = json!({"accounts.alice": "login", "application.sync.impersonation.enabled": "true"});
    layout.object("ConfigMap", "argocd-cm", &json!({}), &on);
    let entry = json!({"server": "*", "namespace": "*", "defaultServiceAccount": "deployer"});
    layout.write(&project(
        &namespace,
        "shop",
        &json!({"destinationServiceAccounts": [entry]}),
    ));
    layout.write(&json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": "guestbook", "namespace": namespace},
        "spec": {
            "project": "shop", "source": {"repoURL": "https://git.invalid/guestbook", "path": "."},
            "destination": {"name": "home", "namespace": "web"},
        },
    }));
    apply(cluster, &layout.objects()).await;
    (overlay, layout)
}

/// The message with which alice's request to the Application's cluster is refused.
async fn refusal(gateway: &Gateway, namespace: &str) -> String {
    let url = format!("{}/applications/{namespace}/guestbook/k8s/version", gateway.url());
    let answer = gateway.client("alice").get(url).send().await.unwrap();
    assert_eq!(answer.status(), 403);
    answer.text().await.unwrap()
}

/// Waits for a decision record that names the account.
async fn acted_as(gateway: &Gateway, account: &str) {
    eventually("the decision is recorded", async || {
        let mut records = gateway.decisions().into_iter();
        records.find(|record| record.to_string().contains(account)).map(|_| ())
    })
    .await;
}

/// The findings of the gateway's admin listener, such as kinds it may not watch.
async fn findings(gateway: &Gateway) -> String {
    gateway.admin("/configuration").await["findings"].to_string()
}

/// With the manifests' rights, the gateway can read its state and do nothing else: it knows the
/// Application, but cannot impersonate its account.
async fn runs(cluster: &'static Cluster) {
    let (overlay, layout) = control_plane(cluster, &json!({})).await;
    let gateway = layout.start().await;
    let text = refusal(&gateway, &overlay.namespace).await;
    assert!(text.contains("cannot impersonate"), "{text}");
    acted_as(&gateway, "system:serviceaccount:web:deployer").await;
    let findings = findings(&gateway).await;
    assert!(missing(&findings).is_empty(), "{findings}");
    for name in PLUGINS {
        assert!(!findings.contains(name), "{name}: {findings}");
    }
}

/// The image has the plugins for which the settings have grants, in the folder that they name.
#[tokio::test]
async fn the_settings_grant_what_the_plugins_of_the_image_need() {
    let settings = std::fs::read_to_string(shipped("base/tollgate.yaml")).unwrap();
    let settings: Value = serde_saphyr::from_str(&settings).unwrap();
    let grants = settings["plugins"]["grants"].as_object().unwrap();
    assert_eq!(grants.keys().collect::<Vec<_>>(), PLUGINS);

    // With a plugin that has no grant, the gateway does not start.
    let cluster = Cluster::shared().await.with_crds().await;
    let none = json!({"plugins": {"directory": "/usr/share/tollgate/plugins"}});
    let (_overlay, layout) = control_plane(cluster, &none).await;
    let log = layout.fail().await;
    for name in PLUGINS {
        assert!(
            log.contains(&format!("plugins.grants.{name}.imports: [clock]")),
            "{log}"
        );
    }
}

/// Without its rules the gateway reports which it needs: exactly those of the manifests.
async fn asks_for_each_rule(cluster: &'static Cluster) {
    let (overlay, layout) = control_plane(cluster, &json!({})).await;
    let there = format!("--namespace={}", overlay.namespace);
    let roles = overlay.objects(cluster).await;
    let mut role = roles.into_iter().find(|object| object["kind"] == "Role").unwrap();
    let shipped = grants(role["rules"].as_array().unwrap());
    cluster.admin().succeed(&["delete", "role", "tollgate", &there]).await;
    // First it reports the rules that it waits for.
    let needed = layout.replica().waits_for(missing).await;
    role["rules"] = needed.clone().into();
    apply(cluster, &[role]).await;
    let gateway = layout.start().await;
    let text = refusal(&gateway, &overlay.namespace).await;
    assert!(text.contains("cannot impersonate"), "{text}");
    // Then it reports the optional ones.
    let wanted = missing(&findings(&gateway).await);
    assert_eq!(grants(needed.iter().chain(&wanted)), shipped, "{needed:?} {wanted:?}");
}

#[tokio::test]
async fn the_gateway_runs_with_these_rights_and_reports_missing_ones() {
    let cluster = Cluster::shared().await.with_crds().await;
    tokio::join!(runs(cluster), asks_for_each_rule(cluster));
}

/// The gateway reads with its own rights who can reach argocd-server past it, and the component
/// closes these ways.
#[tokio::test]
async fn ways_past_the_gateway_are_named_until_they_are_closed() {
    let cluster = Cluster::shared().await.with_crds().await;
    let front = json!({"argocd": {"server": "https://argocd-server.invalid"}});
    let (overlay, layout) = control_plane(cluster, &front).await;
    let gateway = layout.start().await;
    let there = |kind: &str, version: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": version, "kind": kind,
            "metadata": {"name": name, "namespace": overlay.namespace}, "spec": spec,
        })
    };
    let pods = json!({"app.kubernetes.io/name": "argocd-server"});
    let policy = json!({"podSelector": {"matchLabels": pods}, "policyTypes": ["Ingress"], "ingress": [{}]});
    let open = [
        there(
            "Service",
            "v1",
            "argocd-server",
            json!({"type": "NodePort", "selector": pods, "ports": [{"port": 443, "targetPort": 8080}]}),
        ),
        there(
            "Ingress",
            "networking.k8s.io/v1",
            "people",
            json!({"defaultBackend": {"service": {"name": "argocd-server", "port": {"number": 443}}}}),
        ),
        there(
            "NetworkPolicy",
            "networking.k8s.io/v1",
            "argocd-server-network-policy",
            policy,
        ),
    ];
    let ways = [
        "Service `argocd-server` opens argocd-server by a port of every node",
        "Ingress `people` leads to Service `argocd-server`",
        "NetworkPolicy `argocd-server-network-policy` admits others than Tollgate",
    ];
    apply(cluster, &open).await;
    eventually("each way is named", async || {
        let text = findings(&gateway).await;
        ways.iter().all(|way| text.contains(way)).then_some(())
    })
    .await;
    let closing = Overlay::new(&overlay.namespace, &["only-through-tollgate"]);
    closing.apply(cluster, &["--force-conflicts"]).await;
    eventually("no way is left", async || {
        let text = findings(&gateway).await;
        ways.iter().all(|way| !text.contains(way)).then_some(())
    })
    .await;
}
