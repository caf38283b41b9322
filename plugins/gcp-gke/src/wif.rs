//! Workload identity federation: exchanges a token of the pod for a federated token, and that for a
//! token of a service account if one is configured. The exchange has no `Authorization` field.
//!
//! Sources: `v1/token` of Security Token Service; `generateAccessToken` of IAM
//! Credentials.

use serde_json::{Value, json};
use tollgate_provider::memo::{self, Entry};
use tollgate_provider::oauth::{self, InvalidRequest, IssuedToken};
use tollgate_provider::{
    Answer, Class, Credential, Error, Expiry, Json, Request, Secret, ambient_token, bearer, classify, clock, copy,
};

use crate::config::Config;

/// Endpoint that exchanges tokens of the pod.
const STS: &str = "https://sts.googleapis.com/v1/token";

/// Endpoint that impersonates service accounts.
const ACCOUNTS: &str = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts";

/// Key of the memo entry.
const MEMO: &str = "federated";

/// How long before its expiry a federated token is no longer used.
const MARGIN_MILLIS: u64 = 60_000;

/// Mints a credential with the pod's identity.
pub fn mint(config: &Config) -> Result<Credential, Error> {
    let Some(account) = &config.service_account else {
        let federated = federate(config)?;
        return Ok(bearer(federated.token, federated.expiry));
    };
    if let Some(token) = remembered() {
        let answer = impersonate(config, account, &token)?;
        if answer.status != 401 {
            return impersonated(answer);
        }
        memo::forget(MEMO);
    }
    let federated = federate(config)?;
    remember(&federated);
    impersonated(impersonate(config, account, &federated.token)?)
}

/// Exchanges a token of the pod for a federated token.
fn federate(config: &Config) -> Result<IssuedToken, Error> {
    let (Some(audience), Some(token_audience)) = (&config.audience, config.token_audience()) else {
        return Err(Error::config("gcp-gke.config", "`mode: wif` needs `audience`"));
    };
    let subject = ambient_token(token_audience)?.token;
    let request = Request::post(STS).header("accept", "application/json").form([
        ("audience", audience.into()),
        ("grant_type", oauth::TOKEN_EXCHANGE.into()),
        (
            "requested_token_type",
            "urn:ietf:params:oauth:token-type:access_token".into(),
        ),
        ("scope", config.scopes().join(" ").into()),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt".into()),
        ("subject_token", (&subject).into()),
    ]);
    oauth::token(request, InvalidRequest::TokenRefused)
}

fn remembered() -> Option<Secret> {
    let entry = memo::load(MEMO)?;
    entry.values.into_iter().next().map(|(_, token)| token)
}

fn remember(federated: &IssuedToken) {
    let Some(end) = federated.expiry.at.map(|end| end.saturating_sub(MARGIN_MILLIS)) else {
        return;
    };
    let Ok(token) = copy(&federated.token) else {
        return;
    };
    if end > clock::now() {
        let entry = Entry {
            fields: Vec::new(),
            values: vec![("token".to_owned(), token)],
            expires_at: end,
        };
        memo::store(MEMO, entry);
    }
}

/// Requests a token of the service account with a federated token.
fn impersonate(config: &Config, account: &str, token: &Secret) -> Result<Answer, Error> {
    let mut body = json!({
        "lifetime": format!("{}s", config.lifetime_seconds.unwrap_or(3600)),
        "scope": config.scopes(),
    });
    if let (Some(body), false) = (body.as_object_mut(), config.delegates.is_empty()) {
        let name = |account: &String| Value::from(format!("projects/-/serviceAccounts/{account}"));
        body.insert("delegates".to_owned(), config.delegates.iter().map(name).collect());
    }
    Request::post(&format!("{ACCOUNTS}/{account}:generateAccessToken"))
        .bearer(token)
        .header("accept", "application/json")
        .json_body(&Json::Value(body))
        .capture("$.accessToken")
        .send()
}

fn impersonated(mut answer: Answer) -> Result<Credential, Error> {
    if !answer.is_success() {
        return Err(refusal(&answer));
    }
    let json = answer.json()?;
    let token = answer.expect(0, "accessToken")?;
    let expiry = Expiry::rfc3339(json.get("expireTime"), "expireTime", answer.sent_at);
    Ok(bearer(token, expiry))
}

/// The error for a failed impersonation, which is a `google.rpc.Status`.
fn refusal(answer: &Answer) -> Error {
    let json = answer.json_or_null();
    let text = |name: &str| {
        json.pointer(&format!("/error/{name}"))
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (status, message) = (text("status"), text("message"));
    let code = match status {
        "" => format!("http.{}", answer.status),
        status => format!("google.{status}"),
    };
    answer.error(class(answer.status, status), &code, &format!("{status}: {message}"))
}

fn class(http: u16, status: &str) -> Class {
    match status {
        "PERMISSION_DENIED" | "UNAUTHENTICATED" => Class::Denied,
        "UNAVAILABLE" | "RESOURCE_EXHAUSTED" | "DEADLINE_EXCEEDED" | "INTERNAL" | "ABORTED" | "UNKNOWN"
        | "CANCELLED" => Class::Retryable,
        "NOT_FOUND" | "INVALID_ARGUMENT" | "FAILED_PRECONDITION" | "OUT_OF_RANGE" => Class::Config,
        "UNIMPLEMENTED" => Class::Permanent,
        _ => classify::status(http),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_an_error_decides() {
        for (http, status, expected) in [
            (403, "PERMISSION_DENIED", Class::Denied),
            (401, "UNAUTHENTICATED", Class::Denied),
            (503, "UNAVAILABLE", Class::Retryable),
            (429, "RESOURCE_EXHAUSTED", Class::Retryable),
            (400, "INVALID_ARGUMENT", Class::Config),
            (404, "NOT_FOUND", Class::Config),
            (502, "", Class::Retryable),
            (403, "", Class::Denied),
        ] {
            assert_eq!(class(http, status), expected, "{http} {status}");
        }
    }
}
