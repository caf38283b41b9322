//! Requests into clusters through the gateway: who may send them, with which credential, and what
//! the API server receives.

mod commands;
mod forward;
mod handout;
pub(crate) mod minted;
mod promises;
mod traces;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use test_support::api_server::Api;
use test_support::token;
use test_support::world::{CONTROL_PLANE, SESSION_KEY, Setup, World, map, object};

/// alice may do everything; carol may see and connect to clusters; dora may see and update
/// clusters, but not connect; bob has no permissions.
const POLICY: &str = "p, alice, clusters, get, *, allow\np, alice, clusters, update, *, allow\n\
                      p, alice, clusters, connect, *, allow\np, alice, credentials, get, *, allow\n\
                      p, carol, clusters, get, *, allow\np, carol, clusters, connect, *, allow\n\
                      p, dora, clusters, get, *, allow\np, dora, clusters, update, *, allow\n";

/// A cluster Secret.
pub(crate) fn cluster(name: &str, server: &str, config: &Value, values: &[(&str, &str)]) -> Value {
    let mut data: BTreeMap<String, String> = map(values);
    data.extend(map(&[
        ("name", name),
        ("server", server),
        ("config", &config.to_string()),
    ]));
    let labels = json!({"labels": {"argocd.argoproj.io/secret-type": "cluster"}});
    let secret = format!("cluster-{}", name.to_lowercase());
    let body = json!({"metadata": labels, "stringData": data});
    object("v1", "Secret", &secret, CONTROL_PLANE, body)
}

/// `config` of a cluster with this token.
pub(crate) fn bearer(api: &Api, token: &str) -> Value {
    json!({"bearerToken": token, "tlsClientConfig": {"caData": STANDARD.encode(&api.ca_pem)}})
}

/// A gateway with these clusters, and with forwarding to them enabled.
fn setup(objects: Vec<Value>) -> Setup {
    Setup {
        argocd_cm: map(&[
            ("accounts.alice", "login"),
            ("accounts.bob", "login"),
            ("accounts.carol", "login"),
            ("accounts.dora", "login"),
        ]),
        rbac_cm: map(&[("policy.csv", POLICY)]),
        objects,
        settings: json!({"clusters": {"forward": true}}),
        ..Setup::default()
    }
}

/// A request as `user` to any path.
pub(crate) fn ask(world: &World, method: reqwest::Method, user: &str, path: &str) -> reqwest::RequestBuilder {
    reqwest::Client::new()
        .request(method, format!("http://{}{path}", world.address()))
        .bearer_auth(token::session(SESSION_KEY, user))
}

fn get(world: &World, user: &str, path: &str) -> reqwest::RequestBuilder {
    ask(world, reqwest::Method::GET, user, path)
}

/// Status, `reason` and `code` of a refusal.
pub(crate) async fn refusal(answer: reqwest::Response) -> (u16, String, String) {
    let status = answer.status().as_u16();
    let body: Value = answer.json().await.unwrap();
    let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    (status, text("reason"), text("code"))
}
