//! Sends requests to OAuth 2.0 token endpoints and reads their answers. A refused request is not
//! repeated with another client authentication, because that would double the failed logins.
//!
//! Sources: RFC 6749, section 5; RFC 8693, section 2.2.

use serde_json::Value;

use crate::{Answer, Class, Error, Expiry, Request, Secret};

/// `grant_type` of RFC 8693.
pub const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// `client_assertion_type` of RFC 7523.
pub const CLIENT_ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// What the error `invalid_request` of an endpoint means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidRequest {
    /// RFC 6749: the request is malformed. The operator must change the configuration.
    Malformed,
    /// RFC 8693, section 2.2.2: possibly also a subject token that is not accepted.
    TokenRefused,
}

/// A token that an endpoint issued.
#[derive(Debug)]
pub struct IssuedToken {
    /// The token.
    pub token: Secret,
    /// When the token expires.
    pub expiry: Expiry,
}

/// Sends `request` to a token endpoint and reads the answer. The manifest must list
/// `$.token_type`, `$.expires_in`, `$.error` and `$.error_description` under `visible`.
///
/// # Errors
/// The endpoint refused the request, or its answer is unusable.
pub fn token(request: Request<'_>, meaning: InvalidRequest) -> Result<IssuedToken, Error> {
    let mut answer = request.capture("$.access_token").send()?;
    if !answer.is_success() {
        return Err(refusal(&answer, meaning));
    }
    let json = answer.json()?;
    let Some(token) = answer.captured(0) else {
        return Err(match json.get("error") {
            Some(Value::String(_)) => refusal(&answer, meaning),
            _ => Error::permanent("oauth.no-token", "the answer has no string `access_token`")
                .with_status(answer.status)
                .with_correlation(answer.request_id()),
        });
    };
    token_type(&json).map_err(|error| error.with_status(answer.status))?;
    let now = answer.sent_at;
    let expiry = Expiry::after(json.get("expires_in"), "expires_in", now).shortened_by(&token, now);
    Ok(IssuedToken { token, expiry })
}

/// Refuses tokens that are not bearer tokens (RFC 6749, section 7.1) or `N_A` (RFC 8693,
/// section 2.2.1).
fn token_type(json: &Value) -> Result<(), Error> {
    let known = |text: &str| text.eq_ignore_ascii_case("bearer") || text.eq_ignore_ascii_case("n_a");
    match json.get("token_type") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(text)) if known(text) => Ok(()),
        Some(other) => Err(Error::permanent(
            "oauth.token-type",
            format!("token_type is {other}, and only `Bearer` and `N_A` can be used"),
        )),
    }
}

/// The error for an answer without a token.
pub fn refusal(answer: &Answer, meaning: InvalidRequest) -> Error {
    refusal_of(answer, &answer.json_or_null(), meaning)
}

fn refusal_of(answer: &Answer, json: &Value, meaning: InvalidRequest) -> Error {
    let text = |name: &str| json.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (code, class) = match text("error") {
        Some(code) => (format!("oauth.{code}"), class(answer.status, code, meaning)),
        None => (format!("http.{}", answer.status), status_class(answer.status)),
    };
    let reason = text("error_description")
        .or_else(|| text("detail"))
        .or_else(|| text("title"))
        .or_else(|| text("message"))
        .unwrap_or("the token endpoint does not say why");
    let reason = match text("error") {
        Some(code) => format!("{code}: {reason}"),
        None => reason.to_owned(),
    };
    let ids: Vec<String> = ["trace_id", "correlation_id"]
        .iter()
        .filter_map(|name| Some(format!("{name}={}", text(name)?)))
        .collect();
    let correlation = if ids.is_empty() {
        answer.request_id()
    } else {
        Some(ids.join(" "))
    };
    answer.error(class, &code, &reason).with_correlation(correlation)
}

/// The class of a status, for an answer without a token whose error code does not decide. A 2xx
/// answer is then unusable.
fn status_class(status: u16) -> Class {
    match status {
        200..=299 => Class::Permanent,
        other => crate::classify::status(other),
    }
}

/// The class of an answer with `status` and the error `code`.
fn class(status: u16, code: &str, meaning: InvalidRequest) -> Class {
    if status_class(status) == Class::Retryable {
        return Class::Retryable;
    }
    match code {
        "temporarily_unavailable" | "slow_down" | "server_error" => Class::Retryable,
        "invalid_request" => match meaning {
            InvalidRequest::Malformed if status == 401 => Class::Denied,
            InvalidRequest::Malformed => Class::Config,
            InvalidRequest::TokenRefused => Class::Denied,
        },
        "invalid_client"
        | "invalid_grant"
        | "unauthorized_client"
        | "access_denied"
        | "invalid_token"
        | "interaction_required"
        | "consent_required"
        | "login_required"
        | "insufficient_scope" => Class::Denied,
        "invalid_scope"
        | "invalid_target"
        | "invalid_resource"
        | "unsupported_grant_type"
        | "unsupported_token_type"
        | "unsupported_response_type" => Class::Config,
        _ => status_class(status),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn codes_decide_before_statuses_except_retryable_ones() {
        use InvalidRequest::{Malformed, TokenRefused};
        for (status, code, meaning, expected) in [
            (400, "temporarily_unavailable", Malformed, Class::Retryable),
            (400, "slow_down", Malformed, Class::Retryable),
            (400, "invalid_client", Malformed, Class::Denied),
            (401, "invalid_client", Malformed, Class::Denied),
            (400, "invalid_grant", TokenRefused, Class::Denied),
            (400, "unauthorized_client", Malformed, Class::Denied),
            (400, "invalid_request", TokenRefused, Class::Denied),
            (400, "invalid_request", Malformed, Class::Config),
            (400, "invalid_scope", Malformed, Class::Config),
            (403, "invalid_target", TokenRefused, Class::Config),
            (400, "unsupported_grant_type", Malformed, Class::Config),
            (429, "invalid_request", Malformed, Class::Retryable),
            (503, "invalid_client", Malformed, Class::Retryable),
            (200, "invalid_grant", Malformed, Class::Denied),
            (200, "anything", Malformed, Class::Permanent),
            (403, "anything", Malformed, Class::Denied),
        ] {
            assert_eq!(class(status, code, meaning), expected, "{status} {code}");
        }
    }

    #[test]
    fn only_bearer_tokens_are_accepted() {
        for good in [json!({}), json!({"token_type": "bearer"}), json!({"token_type": "N_A"})] {
            assert_eq!(token_type(&good), Ok(()), "{good}");
        }
        for bad in [
            json!({"token_type": "DPoP"}),
            json!({"token_type": "mac"}),
            json!({"token_type": 1}),
        ] {
            assert_eq!(
                token_type(&bad).map_err(|error| error.class),
                Err(Class::Permanent),
                "{bad}"
            );
        }
    }
}
