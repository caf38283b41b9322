//! Requests into clusters through Applications: who may send them, what projects deny, and which
//! identity the API server sees.

mod entering;
mod modes;
mod objects;
mod open;
mod oracle;
mod policy_inputs;
mod sync;

use serde_json::{Value, json};

use crate::clusters::{bearer, cluster};
use test_support::api_server::{Answer, Api, Seen};
use test_support::world::{Setup, application, map, object};

/// alice may override; dave may sync, change some of the objects, read logs and exec; carol may
/// only read; bob has no permissions; mallory may do everything, but in another project.
const POLICY: &str = "p, alice, applications, get, shop/*, allow\np, alice, applications, sync, shop/*, allow\n\
                      p, alice, applications, override, shop/*, allow\n\
                      p, dave, applications, get, shop/*, allow\np, dave, applications, sync, shop/*, allow\n\
                      p, dave, applications, update/apps/Deployment/cart/*, shop/*, allow\n\
                      p, dave, applications, delete/*/ConfigMap/*, shop/*, allow\n\
                      p, dave, logs, get, shop/*, allow\np, dave, exec, create, shop/*, allow\n\
                      p, carol, applications, get, shop/*, allow\np, mallory, applications, *, other/*, allow\n";

/// The path of the Application `cart`.
const CART: &str = "/applications/argocd/cart/k8s";

/// The kinds of the fake cluster, in the format of discovery.
fn kinds() -> Value {
    let kind = |resource: &str, kind: &str, scope: &str| {
        json!({"resource": resource, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": scope,
               "singularResource": kind.to_lowercase(), "verbs": ["get"]})
    };
    let group = |name: &str, resources: Vec<Value>| json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": resources}]});
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": [
            group("", vec![
                kind("configmaps", "ConfigMap", "Namespaced"),
                kind("secrets", "Secret", "Namespaced"),
                kind("pods", "Pod", "Namespaced"),
                kind("namespaces", "Namespace", "Cluster"),
            ]),
            group("apps", vec![kind("deployments", "Deployment", "Namespaced"), kind("replicasets", "ReplicaSet", "Namespaced")]),
            group("rbac.authorization.k8s.io", vec![
                kind("clusterrolebindings", "ClusterRoleBinding", "Cluster"),
                kind("rolebindings", "RoleBinding", "Namespaced"),
            ]),
            group("authorization.k8s.io", vec![kind("selfsubjectaccessreviews", "SelfSubjectAccessReview", "Cluster")]),
        ],
    })
}

/// The media type and body of discovery; `None` for other targets.
pub(crate) fn discovery(target: &str) -> Option<(&'static str, String)> {
    if !matches!(target, "/api" | "/apis") {
        return None;
    }
    let mut all = kinds();
    let groups = all["items"].as_array_mut().unwrap();
    groups.retain(|group| (group["metadata"]["name"] == "") == (target == "/api"));
    let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    Some((media, all.to_string()))
}

/// An API server that answers discovery with [`kinds`] and everything else with `answer`.
pub(crate) async fn api(answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Api {
    Api::start(move |seen| match discovery(&seen.target) {
        Some((media, body)) => (200, vec![("content-type", media.to_owned())], body),
        None => answer(seen),
    })
    .await
}

fn good(_: &Seen) -> Answer {
    let json = vec![("content-type", "application/json".to_owned())];
    (200, json, "{\"kind\":\"Status\",\"status\":\"Success\"}".to_owned())
}

/// The requests that the cluster received, without those that the gateway sends for itself.
fn asked(api: &Api) -> Vec<Seen> {
    // For itself, it asks for the kinds, its permissions, and whether the accounts exist.
    let own = ["selfsubject", "/serviceaccounts/"];
    let mut seen = api.seen();
    seen.retain(|seen| {
        !matches!(seen.target.as_str(), "/api" | "/apis") && !own.iter().any(|own| seen.target.contains(own))
    });
    seen
}

/// The project `shop`, whose service account is `deployer` of the destination namespace.
fn shop(more: &Value) -> Value {
    let mut spec = json!({
        "sourceRepos": ["https://git.example/*"],
        "destinations": [{"server": "*", "namespace": "cart"}, {"server": "*", "namespace": "cart-*"}],
        "destinationServiceAccounts": [{"server": "*", "namespace": "cart", "defaultServiceAccount": "deployer"}],
        "namespaceResourceBlacklist": [{"group": "", "kind": "Secret"}],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object(
        "argoproj.io/v1alpha1",
        "AppProject",
        "shop",
        "argocd",
        json!({"spec": spec}),
    )
}

/// The Application `cart` of the project `shop`.
fn cart(api: &Api) -> Value {
    let mut cart = application("cart", "shop");
    cart["spec"]["destination"] = json!({"server": api.url(), "namespace": "cart"});
    cart["spec"]["source"] = json!({"repoURL": "https://git.example/cart", "path": "."});
    cart
}

/// A gateway with `/applications` enabled. `enabled` is the setting for impersonation in
/// `argocd-cm`.
fn setup(api: &Api, enabled: &str, project: Value) -> Setup {
    Setup {
        argocd_cm: map(&[
            ("accounts.alice", "login"),
            ("accounts.bob", "login"),
            ("accounts.carol", "login"),
            ("accounts.dave", "login"),
            ("accounts.mallory", "login"),
            ("application.sync.impersonation.enabled", enabled),
        ]),
        rbac_cm: map(&[("policy.csv", POLICY)]),
        objects: vec![
            cluster("prod", &api.url(), &bearer(api, "cluster-token"), &[]),
            project,
            cart(api),
        ],
        settings: json!({"applications": {}}),
        ..Setup::default()
    }
}

/// The status of a response, and `message` of its Kubernetes `Status`.
async fn status_message(answer: reqwest::Response) -> (u16, String) {
    let status = answer.status().as_u16();
    let body: Value = answer.json().await.unwrap();
    assert_eq!(
        (&body["kind"], &body["code"]),
        (&json!("Status"), &json!(status)),
        "{body}"
    );
    let message = body["message"].as_str().unwrap();
    let message = message.split(". Trace ID: ").next().unwrap();
    (status, message.to_owned())
}
