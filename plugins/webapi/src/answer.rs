//! What an answer means when it brings no token.
//!
//! In: status, fields and body of an answer, or why there is none. Out: a
//! [`Failure`] with the class that says when to try again. Never: a body.

use serde_json::Value;
use tollgate_provider::bindings::tollgate::plugin::egress::EgressError;
use tollgate_provider::bindings::tollgate::plugin::secrets::SecretError;

use crate::failure::{Class, Failure};

/// The longest an issuer may make the gateway wait: ten minutes.
const LONGEST_WAIT_MS: u64 = 600_000;

/// Bytes of an issuer's own words that are shown.
const WORDS_MOST: usize = 160;

/// An answer, as far as it is needed here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) status: u16,
    /// Lower-case names.
    pub(crate) headers: &'a [(String, String)],
    pub(crate) body: &'a [u8],
}

impl Seen<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether the status is one of success.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Why there is no token in this answer, at `now` (milliseconds since 1970).
    pub(crate) fn failure(&self, token_path: &str, now: u64) -> Failure {
        let document: Value = serde_json::from_slice(self.body).unwrap_or_default();
        let error = document
            .get("error")
            .and_then(Value::as_str)
            .filter(|error| !error.is_empty());
        let class = self.class(error);
        let (code, message) = match (self.is_success(), error) {
            (_, Some(error)) => (format!("oauth.{}", slug(error)), self.words(error, &document)),
            (true, None) if document.is_null() => {
                let message = format!("the answer with status {} is not JSON", self.status);
                ("webapi.not_json".to_owned(), message)
            }
            (true, None) => {
                let message = format!("the answer with status {} has no string at `{token_path}`", self.status);
                ("webapi.no_token".to_owned(), message)
            }
            (false, None) => (format!("http.{}", self.status), self.words("", &document)),
        };
        Failure {
            http_status: Some(self.status),
            retry_after_ms: self.header("retry-after").and_then(|text| retry_after(text, now)),
            correlation: self.correlation(&document),
            ..Failure::new(class, &code, message)
        }
    }

    fn class(&self, error: Option<&str>) -> Class {
        let by_error = error.and_then(oauth);
        if by_error == Some(Class::Retryable) {
            return Class::Retryable;
        }
        match self.status {
            408 | 425 | 429 => Class::Retryable,
            501 => Class::Permanent,
            500..=599 => Class::Retryable,
            401 | 403 => Class::Denied,
            300..=399 | 404 | 405 | 410 | 415 | 422 => Class::Config,
            400..=499 => by_error.unwrap_or(Class::Config),
            _ => by_error.unwrap_or(Class::Permanent),
        }
    }

    /// The issuer's own words, cut short.
    fn words(&self, error: &str, document: &Value) -> String {
        let status = self.status;
        let said = ["error_description", "message", "detail", "title"]
            .iter()
            .find_map(|name| document.get(*name).and_then(Value::as_str))
            .unwrap_or_default();
        let said: String = said.chars().filter(|c| !c.is_control()).take(WORDS_MOST).collect();
        let hint = match status {
            300..=399 => "; redirects are never followed, so `url` has to be the last one",
            _ => "",
        };
        let words: Vec<&str> = [error, &said].into_iter().filter(|words| !words.is_empty()).collect();
        match words.as_slice() {
            [] => format!("the issuer answered with status {status}{hint}"),
            words => format!("the issuer answered with status {status}: {}{hint}", words.join(": ")),
        }
    }

    fn correlation(&self, document: &Value) -> Option<String> {
        let said = |name: &str| document.get(name).and_then(Value::as_str).filter(|id| !id.is_empty());
        let sent = self.header("x-request-id").or_else(|| self.header("x-correlation-id"));
        let id = sent.or_else(|| said("trace_id")).or_else(|| said("correlation_id"));
        id.map(str::to_owned)
    }
}

/// What an `error` of RFC 6749, section 5.2, or RFC 8693, section 2.2.2, means.
fn oauth(error: &str) -> Option<Class> {
    match error {
        "temporarily_unavailable" | "slow_down" | "server_error" => Some(Class::Retryable),
        // RFC 8693 has `invalid_request` also for a subject token it does not accept.
        "invalid_client"
        | "invalid_grant"
        | "unauthorized_client"
        | "access_denied"
        | "invalid_request"
        | "invalid_token"
        | "expired_token" => Some(Class::Denied),
        "invalid_scope" | "invalid_target" | "unsupported_grant_type" => Some(Class::Config),
        _ => None,
    }
}

/// An issuer's word as part of a code.
fn slug(error: &str) -> String {
    let good = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let slug: String = error.chars().filter(good).take(48).collect();
    if slug.is_empty() { "error".to_owned() } else { slug }
}

/// Milliseconds to wait: seconds, or a date (RFC 9110, section 10.2.3).
fn retry_after(text: &str, now: u64) -> Option<u32> {
    let text = text.trim();
    let wait = if let Ok(seconds) = text.parse::<u64>() {
        seconds.saturating_mul(1000)
    } else {
        let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond();
        u64::try_from(at).ok()?.saturating_sub(now)
    };
    u32::try_from(wait.min(LONGEST_WAIT_MS)).ok()
}

/// Why nothing was sent or nothing came back.
pub(crate) fn unsent(error: &EgressError) -> Failure {
    let failure = |class, code: &str, message: &str| Failure::new(class, code, message);
    match error {
        EgressError::Denied(reason) => {
            let code = reason.split(':').next().unwrap_or("egress.denied");
            failure(Class::Config, code, reason)
        }
        EgressError::InvalidRequest(reason) => failure(Class::Config, "egress.invalid_request", reason),
        EgressError::Dns(reason) => failure(Class::Retryable, "egress.dns", reason),
        EgressError::Connect(reason) => failure(Class::Retryable, "egress.connect", reason),
        EgressError::Tls(reason) => failure(Class::Config, "egress.tls", reason),
        EgressError::Timeout => failure(Class::Retryable, "egress.timeout", "no answer in time"),
        EgressError::Truncated => failure(Class::Retryable, "egress.truncated", "the answer broke off"),
        EgressError::TooLarge => failure(Class::Permanent, "egress.too_large", "the answer is larger than 1 MiB"),
        EgressError::Budget => failure(Class::Permanent, "egress.budget", "no request is left in this call"),
        EgressError::Secret(error) => unusable(*error),
    }
}

/// Why a secret cannot be used.
pub(crate) fn unusable(error: SecretError) -> Failure {
    let (code, message) = match error {
        SecretError::NotFound => ("secret.not_found", "the cluster's Secret has no such value"),
        SecretError::NotGranted => (
            "secret.not_granted",
            "this value of the cluster's Secret is not granted",
        ),
        SecretError::BadFormat => ("secret.bad_format", "a value of the cluster's Secret is not text"),
        SecretError::TooLarge => (
            "secret.too_large",
            "a value is larger than 64 KiB, or there are more than 256",
        ),
    };
    Failure::config(code, message)
}

#[cfg(test)]
mod tests;
