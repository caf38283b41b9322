//! Compares the credential or error of a mint with what a case expects, and makes the
//! [`ReplayOutcome`] to show.
//!
//! Security: the token is never shown.

use jiff::Timestamp;
use secrecy::ExposeSecret;
use serde::Serialize;
use serde_json::{Map, Value};

use super::case::Expected;
use super::labels::SecretLabels;
use tollgate_credential::{Credential, MintError};

/// The credential or error of a case, without secrets.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum ReplayOutcome {
    /// A credential.
    Credential {
        /// `token`, `certificate`, names of fields.
        of: Vec<String>,
        /// When it expires, if known.
        expires_at: Option<String>,
        /// Whether it may be used more than once.
        cacheable: bool,
        /// Whether there is something to revoke.
        revocable: bool,
    },
    /// An error.
    Error {
        /// The class, which decides when the gateway would try again: `retryable`, `denied`,
        /// `config`, `permanent`.
        class: &'static str,
        /// For machines.
        code: String,
        /// For people; redacted.
        message: String,
        /// Status of the response that decided.
        #[serde(skip_serializing_if = "Option::is_none")]
        http_status: Option<u16>,
        /// What the issuer asked to wait, in seconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after_seconds: Option<u64>,
        /// The issuer's own id of the request.
        #[serde(skip_serializing_if = "Option::is_none")]
        correlation: Option<String>,
    },
}

impl ReplayOutcome {
    pub(super) fn from_result(minted: &Result<Credential, MintError>) -> Self {
        match minted {
            Ok(credential) => {
                let token = credential.token.as_ref().map(|_| "token".to_owned());
                let certificate = credential.certificate.as_ref().map(|_| "certificate".to_owned());
                let fields = credential.headers.iter().map(|(name, _)| name.to_string());
                Self::Credential {
                    of: token.into_iter().chain(certificate).chain(fields).collect(),
                    expires_at: credential.expires_at.map(|end| end.to_string()),
                    cacheable: credential.cacheable,
                    revocable: credential.revocation.is_some(),
                }
            }
            Err(error) => Self::Error {
                class: error.class.into(),
                code: error.code.clone(),
                message: error.message.clone(),
                http_status: error.http_status,
                retry_after_seconds: error.retry_after.map(|wait| wait.as_secs()),
                correlation: error.correlation.clone(),
            },
        }
    }
}

/// Every difference between `expected` and what came.
pub(super) fn differences(
    expected: &Expected,
    minted: &Result<Credential, MintError>,
    warnings: &[String],
    labels: &SecretLabels,
) -> Vec<String> {
    let mut found = Vec::new();
    match (expected.wants_error(), minted) {
        (true, Err(error)) => error_differences(expected, error, &mut found),
        (true, Ok(_)) => found.push("expected an error, observed a credential".to_owned()),
        (false, Err(error)) => {
            let class = error.class.as_ref();
            found.push(format!("expected a credential, observed an error ({class}, {error})"));
        }
        (false, Ok(credential)) => credential_differences(expected, credential, labels, &mut found),
    }
    match &expected.warnings {
        Some(none) if none.is_empty() && !warnings.is_empty() => {
            found.push(format!("warnings: expected none, observed `{}`", warnings.join("`, `")));
        }
        wanted => {
            let wanted = wanted.iter().flatten();
            let missing = wanted.filter(|part| !warnings.iter().any(|warning| warning.contains(part.as_str())));
            found.extend(missing.map(|part| format!("warnings: none contains `{part}`")));
        }
    }
    found
}

fn error_differences(expected: &Expected, error: &MintError, found: &mut Vec<String>) {
    let mut text = |what: &str, expected: &Option<String>, observed: Option<&str>| {
        if let Some(expected) = expected.as_deref().filter(|expected| Some(*expected) != observed) {
            let observed = observed.map_or_else(|| "none".to_owned(), |observed| format!("`{observed}`"));
            found.push(format!("{what}: expected `{expected}`, observed {observed} ({error})"));
        }
    };
    text("class", &expected.error_class, Some(error.class.as_ref()));
    text("code", &expected.code, Some(&error.code));
    text("correlation", &expected.correlation, error.correlation.as_deref());
    let status = (expected.http_status.map(u64::from), error.http_status.map(u64::from));
    let wait = (expected.retry_after_s, error.retry_after.map(|wait| wait.as_secs()));
    for (what, (expected, observed)) in [("http_status", status), ("retry_after_s", wait)] {
        if let Some(expected) = expected.filter(|expected| Some(*expected) != observed) {
            let observed = observed.map_or_else(|| "none".to_owned(), |observed| observed.to_string());
            found.push(format!("{what}: expected {expected}, observed {observed}"));
        }
    }
    let part = expected.message.as_deref();
    if let Some(part) = part.filter(|part| !error.message.contains(part)) {
        found.push(format!("message: `{}` does not contain `{part}`", error.message));
    }
}

fn credential_differences(
    expected: &Expected,
    credential: &Credential,
    labels: &SecretLabels,
    found: &mut Vec<String>,
) {
    let token = credential.token.as_ref().map(|token| token.expose());
    // A case that names no token expects none.
    if expected.token.as_deref() != token {
        let name = |token: Option<&str>| token.map_or_else(|| "none".to_owned(), |token| labels.token(token));
        let (expected, observed) = (name(expected.token.as_deref()), name(token));
        found.push(format!("token: expected {expected}, observed {observed}"));
    }
    if expected.client_cert != credential.certificate.is_some() {
        found.push(match &credential.certificate {
            Some(_) => "there is a client certificate; `client_cert: true` expects one".to_owned(),
            None => "there is no client certificate".to_owned(),
        });
    }
    fields(expected, credential, labels, found);
    expiry(expected, credential, found);
    let cacheable = expected.cacheable.unwrap_or(true);
    let observed = credential.cacheable;
    if cacheable != observed {
        found.push(format!("cacheable: expected {cacheable}, observed {observed}"));
    }
    if let Some(revoke) = &expected.revoke {
        let values = revoke.as_object().into_iter().flat_map(Map::values);
        let held = credential.revocation.as_ref().map(ExposeSecret::expose_secret);
        let missing = |held: &str| {
            values
                .filter_map(Value::as_str)
                .filter(|value| !held.contains(value))
                .count()
        };
        match held.map(missing) {
            None => found.push("revoke: there is nothing to revoke with".to_owned()),
            Some(0) => {}
            Some(missing) => found.push(format!("revoke: {missing} of the values are not in what revokes")),
        }
    }
}

fn fields(expected: &Expected, credential: &Credential, labels: &SecretLabels, found: &mut Vec<String>) {
    for (name, value) in &expected.headers {
        let mut headers = credential.headers.iter();
        let sent = headers.find(|(known, _)| known.as_str().eq_ignore_ascii_case(name));
        match sent.map(|(_, value)| value.expose_secret()) {
            Some(observed) if observed == value => {}
            Some(observed) => found.push(format!("headers: `{name}` is {}", labels.token(observed))),
            None => found.push(format!("headers: there is no `{name}`")),
        }
    }
    let wanted = |name: &str| expected.headers.keys().any(|known| known.eq_ignore_ascii_case(name));
    let more = credential.headers.iter().filter(|(name, _)| !wanted(name.as_str()));
    found.extend(more.map(|(name, _)| format!("headers: `{name}` was not expected")));
}

fn expiry(expected: &Expected, credential: &Credential, found: &mut Vec<String>) {
    let Some(wanted) = &expected.expiry else { return };
    let wanted = match wanted {
        Value::Null => None,
        Value::String(text) => match text.parse::<Timestamp>() {
            Ok(end) => Some(end),
            Err(error) => {
                found.push(format!("expiry: `{text}` is no time: {error}"));
                return;
            }
        },
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            found.push("expiry: write a time such as 2026-01-02T03:04:05Z, or null".to_owned());
            return;
        }
    };
    if wanted != credential.expires_at {
        let show = |end: Option<Timestamp>| end.map_or_else(|| "unknown".to_owned(), |end| end.to_string());
        let (wanted, observed) = (show(wanted), show(credential.expires_at));
        found.push(format!("expiry: expected {wanted}, observed {observed}"));
    }
}
