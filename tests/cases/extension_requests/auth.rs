//! Kind `auth_middleware`: who passes authentication.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::cookies;
use crate::suite::same;
use test_support::backend::{Backend, Reply};
use test_support::client::Client;
use test_support::issuer::Issuer;
use test_support::world::{Setup, map};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    server: Server,
    request: Request,
    token_verification: Verification,
    /// `unreachable`, or the response of the userinfo endpoint.
    userinfo: Option<Value>,
    expected: Expected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    auth_disabled: bool,
    sso_configured: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    cookies: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verification {
    error: Option<String>,
    claims: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    status: u16,
    body: Option<String>,
    body_contains: Option<String>,
}

/// Runs a case. RBAC allows everything to every authenticated caller.
pub(super) async fn run(case: Question) -> Result<(), String> {
    let issuer = Issuer::start().await;
    let backend = Backend::start(|_| Reply::ok("Ok")).await;
    let mut setup = Setup::with_backend(backend.address);
    setup.settings = json!({
        "extensions": {"compat": "argocd"},
        "authentication": {"anonymous": case.server.auth_disabled},
    });
    setup.argocd_cm.insert(
        "oidc.config".to_owned(),
        issuer.argocd_config(case.server.sso_configured),
    );
    let policy = "p, role:all, applications, get, *, allow\np, role:all, extensions, invoke, *, allow\n";
    setup.rbac_cm = map(&[("policy.default", "role:all"), ("policy.csv", policy)]);
    match case.userinfo {
        None => {}
        Some(Value::String(word)) if word == "unreachable" => {}
        Some(Value::Object(answer)) => issuer.set_userinfo(Value::Object(answer)),
        Some(other) => return Err(format!("`userinfo` is `{other}`")),
    }
    let mut claims = json!({"sub": "someone"});
    for (claim, value) in case.token_verification.claims.unwrap_or_default() {
        claims[claim] = value;
    }
    let token = match case.token_verification.error {
        None => issuer.token(&claims),
        Some(_) => issuer.forged(&claims),
    };
    let world = setup.try_start().await.map_err(|error| error.to_string())?;
    let request = format!(
        "GET /extensions/echo/ HTTP/1.1\r\nHost: {}\r\n{}Argocd-Application-Name: argocd:cart\r\n\
         Argocd-Project-Name: shop\r\n\r\n",
        world.address(),
        cookies::line(&case.request.cookies, &token),
    );
    let answer = Client::connect(world.address())
        .await
        .exchange(request.as_bytes())
        .await;
    let body = String::from_utf8_lossy(&answer.content);
    same(&case.expected.status, &answer.status).map_err(|error| format!("{error}: {body}"))?;
    if let Some(expected) = &case.expected.body {
        same(expected, &body.trim_end().to_owned())?;
    }
    if let Some(part) = case.expected.body_contains.filter(|part| !body.contains(part)) {
        return Err(format!("`{body}` does not contain `{part}`"));
    }
    same(&usize::from(case.expected.status == 200), &backend.seen().len())
}
