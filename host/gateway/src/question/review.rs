//! Asks a cluster whether the caller may do something there.
//!
//! Security: only an explicit yes of the cluster allows.
//!
//! Source: `SelfSubjectAccessReview` of `authorization.k8s.io/v1`, which everybody who
//! is authenticated may ask (`system:basic-user`).

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Question;

/// Longest answer to one question, in bytes.
pub const MAX_REVIEW_BYTES: usize = 64 * 1024;

/// What a cluster says.
#[derive(Debug, Deserialize)]
pub(crate) struct ReviewStatus {
    /// Whether it is allowed.
    #[serde(default)]
    pub(crate) allowed: bool,
    /// Why; often empty.
    #[serde(default)]
    pub(crate) reason: String,
}

#[derive(Deserialize)]
struct ReviewResponse {
    status: ReviewStatus,
}

impl Question<'static> {
    /// Asks for `spec`: `resourceAttributes` or `nonResourceAttributes`.
    pub fn review(spec: &Value) -> Self {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": spec,
        });
        Self {
            path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            accept: "application/json",
            content: Some(Bytes::from(review.to_string())),
            max_response_bytes: MAX_REVIEW_BYTES,
        }
    }
}

impl ReviewStatus {
    /// Parses an answer. `None` if it is something else.
    pub(crate) fn parse(content: &[u8]) -> Option<Self> {
        let answer: ReviewResponse = serde_json::from_slice(content).ok()?;
        Some(answer.status)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Question, ReviewStatus};

    #[test]
    fn the_question_is_kubernetes_own() {
        let spec = json!({"resourceAttributes": {"verb": "get", "resource": "pods"}});
        let question = Question::review(&spec);
        let sent: Value = serde_json::from_slice(&question.content.unwrap()).unwrap();
        assert_eq!(sent["kind"], "SelfSubjectAccessReview");
        assert_eq!(sent["spec"], spec);
    }

    #[test]
    fn nothing_but_a_yes_is_a_yes() {
        let allowed = |content: &[u8]| ReviewStatus::parse(content).map(|review| review.allowed);
        assert_eq!(
            allowed(br#"{"status": {"allowed": true, "reason": "RBAC"}}"#),
            Some(true)
        );
        assert_eq!(allowed(br#"{"status": {"allowed": false}}"#), Some(false));
        assert_eq!(allowed(br#"{"status": {}}"#), Some(false));
        assert_eq!(allowed(b"{}"), None);
        assert_eq!(allowed(b"yes"), None);
    }
}
