//! Compares requests and tokens with the expectations of a table.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::suite::{Documentation, same};
use test_support::providers::Seen;

/// A request that a table expects.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedRequest {
    method: String,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    absent_headers: Vec<String>,
    #[serde(default)]
    form: Option<Vec<(String, String)>>,
    #[serde(default)]
    json: Option<Value>,
    #[serde(default)]
    body_exact: Option<String>,
    #[serde(default)]
    client_assertion: Option<Assertion>,
    #[serde(default)]
    assertion: Option<Assertion>,
}

/// A JWT in a request.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Assertion {
    header: Value,
    claims: BTreeMap<String, Value>,
    #[serde(default)]
    max_lifetime_s: Option<i64>,
    #[serde(default)]
    sample: Option<String>,
    /// Has a fixed `jti`, which no run can reproduce.
    #[serde(default, rename = "sample_with_fixed_jti")]
    _sample_with_fixed_jti: Documentation,
}

impl ExpectedRequest {
    pub(crate) fn get(url: &str) -> Self {
        Self {
            method: "GET".to_owned(),
            url: url.to_owned(),
            headers: BTreeMap::new(),
            absent_headers: Vec::new(),
            form: None,
            json: None,
            body_exact: None,
            client_assertion: None,
            assertion: None,
        }
    }
}

/// Checks that exactly these requests were sent, in order.
pub(crate) fn requests(expected: &[ExpectedRequest], seen: &[Seen], now: Timestamp) -> Result<(), String> {
    same(&expected.len(), &seen.len()).map_err(|why| format!("requests: {why}"))?;
    for (at, (expected, seen)) in expected.iter().zip(seen).enumerate() {
        request(expected, seen, now).map_err(|why| format!("request {}: {why}", at + 1))?;
    }
    Ok(())
}

fn request(expected: &ExpectedRequest, seen: &Seen, now: Timestamp) -> Result<(), String> {
    same(&expected.method, &seen.method)?;
    let url = |text: &str| url::Url::parse(text).map_err(|error| format!("`{text}`: {error}"));
    same(&url(&expected.url)?, &url(&seen.url)?)?;
    for (name, value) in &expected.headers {
        let observed: Vec<&str> = seen
            .headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        same(&vec![value.as_str()], &observed).map_err(|why| format!("header {name}: {why}"))?;
    }
    for name in &expected.absent_headers {
        if seen.headers.contains_key(name) {
            return Err(format!("header {name} must not be sent"));
        }
    }
    let body = String::from_utf8_lossy(&seen.body).into_owned();
    if let Some(exact) = &expected.body_exact {
        same(exact, &body)?;
    }
    if let Some(json) = &expected.json {
        let observed: Value = serde_json::from_str(&body).map_err(|error| format!("body: {error}"))?;
        same(json, &observed)?;
    }
    let pairs: Vec<(String, String)> = url::form_urlencoded::parse(&seen.body).into_owned().collect();
    if let Some(form) = &expected.form {
        same_form(form, &pairs)?;
    }
    for (name, wanted) in [
        ("client_assertion", &expected.client_assertion),
        ("assertion", &expected.assertion),
    ] {
        if let Some(wanted) = wanted {
            let sent = pairs
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.as_str());
            assertion(wanted, sent.ok_or_else(|| format!("no `{name}`"))?, now)?;
        }
    }
    Ok(())
}

/// Compares forms. The values of each name must be in order; the order of names is free.
fn same_form(expected: &[(String, String)], observed: &[(String, String)]) -> Result<(), String> {
    let grouped = |pairs: &[(String, String)]| {
        let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in pairs {
            by_name.entry(name.clone()).or_default().push(value.clone());
        }
        by_name
    };
    let (mut expected, mut observed) = (grouped(expected), grouped(observed));
    for (name, values) in &mut expected {
        if values.iter().any(|value| value == "<jwt>") {
            let sent = observed.remove(name).unwrap_or_default();
            if sent.len() != 1 || sent.iter().any(|jwt| jwt.split('.').count() != 3) {
                return Err(format!("`{name}` is not a JWT"));
            }
        }
    }
    expected.retain(|_, values| !values.iter().any(|value| value == "<jwt>"));
    same(&expected, &observed).map_err(|why| format!("form: {why}"))
}

fn assertion(expected: &Assertion, jwt: &str, now: Timestamp) -> Result<(), String> {
    if let Some(sample) = &expected.sample {
        same(&sample.as_str(), &jwt)?;
    }
    let mut parts = jwt.split('.');
    let mut part = || -> Result<Value, String> {
        let bytes = URL_SAFE_NO_PAD
            .decode(parts.next().unwrap_or_default())
            .map_err(|error| error.to_string())?;
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    };
    let (header, claims) = (part()?, part()?);
    same(&expected.header, &header)?;
    let observed = claims.as_object().ok_or("the claims are not an object")?;
    same(&expected.claims.len(), &observed.len()).map_err(|why| format!("claims: {why}"))?;
    for (name, value) in &expected.claims {
        let claim = observed.get(name).ok_or_else(|| format!("no claim `{name}`"))?;
        match value.as_str() {
            Some(text) if text.starts_with("<any") => {
                if claim.as_str().is_none_or(str::is_empty) {
                    return Err(format!("claim `{name}` is empty"));
                }
            }
            _ if name == "exp" && expected.max_lifetime_s.is_some() => {
                let left = claim.as_i64().unwrap_or_default() - now.as_second();
                if !(1..=expected.max_lifetime_s.unwrap_or_default()).contains(&left) {
                    return Err(format!("the assertion lives for {left} s"));
                }
            }
            _ => same(value, claim).map_err(|why| format!("claim {name}: {why}"))?,
        }
    }
    signed_by_rfc_key(jwt)
}

/// Checks that the key of RFC 7515, appendix A.2, signed the JWT.
fn signed_by_rfc_key(jwt: &str) -> Result<(), String> {
    use aws_lc_rs::rsa::KeyPair;
    use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::pki_types::pem::PemObject as _;

    let pem = include_bytes!("../../data/rfc7515-a2.pem");
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|error| error.to_string())?;
    let pair = KeyPair::from_pkcs8(der.secret_pkcs8_der()).map_err(|error| error.to_string())?;
    let (signed, signature) = jwt.rsplit_once('.').ok_or("not a JWT")?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|error| error.to_string())?;
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref())
        .verify(signed.as_bytes(), &signature)
        .map_err(|_| "another key signed the JWT".to_owned())
}

/// Compares tokens. Those of EKS are compared by their parameters in any order.
pub(crate) fn tokens(expected: Option<&str>, observed: Option<&str>) -> Result<(), String> {
    let parameters = |token: Option<&str>| -> Option<Vec<(String, String)>> {
        let bytes = URL_SAFE_NO_PAD.decode(token?.strip_prefix("k8s-aws-v1.")?).ok()?;
        let url = url::Url::parse(std::str::from_utf8(&bytes).ok()?).ok()?;
        let mut pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        pairs.push(("host".to_owned(), url.host_str()?.to_owned()));
        pairs.sort();
        Some(pairs)
    };
    match (parameters(expected), parameters(observed)) {
        (Some(expected), Some(observed)) => same(&expected, &observed),
        (_, _) => same(&expected, &observed).map_err(|why| format!("token: {why}")),
    }
}
