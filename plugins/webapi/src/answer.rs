//! What an answer means when it brings no token.
//!
//! In: an answer. Out: an [`Error`] with the class that says when to try again.
//! Never: a body.

use serde_json::Value;
use tollgate_provider::oauth::{self, InvalidRequest};
use tollgate_provider::{Answer, Class, Error};

/// Why there is no token in `answer`.
///
/// `invalid_request` counts as a refused token: what the configuration asks for
/// is not known, and in a token exchange (RFC 8693, section 2.2.2) it is one.
pub(crate) fn refusal(answer: &Answer, token_path: &str) -> Error {
    let said = oauth::refusal(answer, InvalidRequest::TokenRefused);
    if !answer.is_success() {
        return said;
    }
    let (class, code, message) = useless(&answer.json_or_null(), said.class, token_path);
    match code {
        Some(code) => answer.error(class, code, &message),
        None => Error { class, ..said },
    }
}

/// What a success without a token is: of no use, whatever it calls itself, but
/// for errors that pass. No code where the issuer names one.
fn useless(document: &Value, class: Class, token_path: &str) -> (Class, Option<&'static str>, String) {
    let named = document
        .get("error")
        .and_then(Value::as_str)
        .is_some_and(|error| !error.is_empty());
    match (named, class) {
        (true, Class::Retryable) => (Class::Retryable, None, String::new()),
        (true, Class::Denied | Class::Config | Class::Permanent) => (Class::Permanent, None, String::new()),
        (false, _) if document.is_null() => {
            let message = "the answer is not JSON".to_owned();
            (Class::Permanent, Some("webapi.not-json"), message)
        }
        (false, _) => {
            let message = format!("the answer has no string at `{token_path}`");
            (Class::Permanent, Some("webapi.no-token"), message)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_success_without_a_token_is_of_no_use() {
        for (document, class, expected) in [
            (
                json!({"error": "invalid_grant"}),
                Class::Denied,
                (Class::Permanent, None),
            ),
            (
                json!({"error": "slow_down"}),
                Class::Retryable,
                (Class::Retryable, None),
            ),
            (
                json!({"error": ""}),
                Class::Permanent,
                (Class::Permanent, Some("webapi.no-token")),
            ),
            (
                json!({"error": {"code": 1}}),
                Class::Permanent,
                (Class::Permanent, Some("webapi.no-token")),
            ),
            (
                json!({"token": null}),
                Class::Permanent,
                (Class::Permanent, Some("webapi.no-token")),
            ),
            (
                json!(null),
                Class::Permanent,
                (Class::Permanent, Some("webapi.not-json")),
            ),
        ] {
            let (found, code, _) = useless(&document, class, "$.token");
            assert_eq!((found, code), expected, "{document}");
        }
        assert!(useless(&json!({}), Class::Permanent, "$.token").2.contains("`$.token`"));
    }
}
