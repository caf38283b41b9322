//! Turns an answer without a token into an [`Error`].

use serde_json::Value;
use tollgate_provider::oauth::{self, InvalidRequest};
use tollgate_provider::{Answer, Class, Error};

/// Why there is no token in `answer`. If the answer has an OAuth `error`, it decides, even with a
/// status of 2xx.
///
/// `invalid_request` counts as a refused token: the grant is not known here, and in a token
/// exchange the error can mean a refused token (RFC 8693, section 2.2.2).
pub(crate) fn refusal(answer: &Answer, token_path: &str) -> Error {
    match unusable(&answer.json_or_null(), token_path) {
        Some((code, message)) if answer.is_success() => answer.error(Class::Permanent, code, &message),
        _ => oauth::refusal(answer, InvalidRequest::TokenRefused),
    }
}

/// Code and message for a 2xx answer without a token. `None` if the answer has an OAuth `error`.
fn unusable(document: &Value, token_path: &str) -> Option<(&'static str, String)> {
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
    fn a_2xx_answer_without_a_token_is_explained() {
        for (document, code) in [
            (json!({"error": "invalid_grant"}), None),
            (json!({"error": ""}), Some("webapi.no-token")),
            (json!({"error": {"code": 1}}), Some("webapi.no-token")),
            (json!({"token": null}), Some("webapi.no-token")),
            (json!([]), Some("webapi.no-token")),
            (json!(null), Some("webapi.not-json")),
        ] {
            assert_eq!(unusable(&document, "$.token").map(|(code, _)| code), code, "{document}");
        }
        let message = unusable(&json!({}), "$.token").map(|(_, message)| message);
        assert!(message.is_some_and(|message| message.contains("`$.token`")));
    }
}
