//! Reviews whether the identity of a request may do something in a cluster.
//!
//! Security: only `allowed: true` allows.
//!
//! Source: `SelfSubjectAccessReview` of `authorization.k8s.io/v1`, which every authenticated
//! identity may create (`system:basic-user`).

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ClusterQuery;

/// Longest response to a review, in bytes.
pub(crate) const MAX_REVIEW_BYTES: usize = 64 * 1024;

/// The status of a review: the cluster's answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReviewStatus {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why; often empty.
    pub reason: String,
}

#[derive(Deserialize)]
struct ReviewResponse {
    status: ReviewStatus,
}

impl ClusterQuery<'static> {
    /// A review of `spec`: `resourceAttributes` or `nonResourceAttributes`.
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
    /// Parses the response to a review. `None` if it is something else.
    pub fn parse(content: &[u8]) -> Option<Self> {
        let response: ReviewResponse = serde_json::from_slice(content).ok()?;
        Some(response.status)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ClusterQuery, ReviewStatus};

    #[test]
    fn the_query_is_a_self_subject_access_review() {
        let spec = json!({"resourceAttributes": {"verb": "get", "resource": "pods"}});
        let query = ClusterQuery::review(&spec);
        let sent: Value = serde_json::from_slice(&query.content.unwrap()).unwrap();
        assert_eq!(sent["kind"], "SelfSubjectAccessReview");
        assert_eq!(sent["spec"], spec);
    }

    #[test]
    fn only_allowed_true_means_allowed() {
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
