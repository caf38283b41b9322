//! What an answer means when it brings no token.
//!
//! In: an answer. Out: an [`Error`] with the class that says when to try again.
//! Never: a body.

use serde_json::Value;
use tollgate_provider::oauth::{self, InvalidRequest};
use tollgate_provider::{Answer, Class, Error};

/// Why there is no token in `answer`. An issuer that names an `error` is taken
/// at its word, also where the status is one of success.
///
/// `invalid_request` counts as a refused token: what the configuration asks for
/// is not known, and in a token exchange (RFC 8693, section 2.2.2) it is one.
pub(crate) fn refusal(answer: &Answer, token_path: &str) -> Error {
    match useless(&answer.json_or_null(), token_path) {
        Some((code, message)) if answer.is_success() => answer.error(Class::Permanent, code, &message),
        _ => oauth::refusal(answer, InvalidRequest::TokenRefused),
    }
}

/// What to say of a success without a token; nothing when the issuer says it.
fn useless(document: &Value, token_path: &str) -> Option<(&'static str, String)> {
    match document.get("error") {
        Some(Value::String(error)) if !error.is_empty() => None,
        _ if document.is_null() => Some(("webapi.not-json", "the answer is not JSON".to_owned())),
        _ => Some(("webapi.no-token", format!("the answer has no string at `{token_path}`"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_success_without_a_token_says_what_is_missing() {
        for (document, code) in [
            (json!({"error": "invalid_grant"}), None),
            (json!({"error": ""}), Some("webapi.no-token")),
            (json!({"error": {"code": 1}}), Some("webapi.no-token")),
            (json!({"token": null}), Some("webapi.no-token")),
            (json!([]), Some("webapi.no-token")),
            (json!(null), Some("webapi.not-json")),
        ] {
            assert_eq!(useless(&document, "$.token").map(|(code, _)| code), code, "{document}");
        }
        let said = useless(&json!({}), "$.token").map(|(_, message)| message);
        assert!(said.is_some_and(|message| message.contains("`$.token`")));
    }
}
