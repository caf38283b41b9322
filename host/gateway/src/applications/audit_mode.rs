//! Determines why mode enforce would refuse a request that mode audit lets pass. The request is
//! not refused for it, and nothing in the cluster changes.
//!
//! Source: `SelfSubjectAccessReview` of `authorization.k8s.io/v1`, asked in the
//! account's name, which every authenticated identity may create.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::cluster_access::ClusterAccess;
use crate::question::review::ReviewStatus;
use crate::question::{ClusterClient, Error, Question};
use tollgate_core::attributes::Attributes;
use tollgate_core::diagnostic::one_line;
use tollgate_policy::applications::IndexedApplication;
use tollgate_policy::impersonate::Impersonation;

/// Bytes of a cluster's reason that records keep.
const REASON_BYTES: usize = 256;
/// Longest wait for an answer. The caller waits as long.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why enforce would refuse the request. `None` if it would pass.
///
/// Waits at most 5 s. Cancel safe.
pub(super) async fn enforce_deny_reason(
    governed: &IndexedApplication,
    attributes: &Attributes,
    cluster: &Arc<ClusterAccess>,
) -> Option<String> {
    let acting = match &governed.acting {
        Ok(acting) => acting,
        Err(error) => return Some(error.to_string()),
    };
    let user = match &*acting.impersonation {
        Impersonation::Nobody => return None,
        Impersonation::As(identity) => &identity.username,
    };
    match timeout(TIMEOUT, review(cluster, attributes, &acting.impersonation)).await {
        Ok(Ok(ReviewOutcome::Allowed)) => None,
        Ok(Ok(ReviewOutcome::Denied { verb, reason })) => {
            let reason = match one_line(&reason, REASON_BYTES) {
                none if none.is_empty() => "no rule allows it".to_owned(),
                reason => reason,
            };
            Some(format!("the cluster refuses `{verb}` to `{user}`: {reason}"))
        }
        Ok(Err(Error::Status(StatusCode::FORBIDDEN))) => {
            Some(format!("the gateway may not impersonate `{user}` in the cluster"))
        }
        Ok(Err(error)) => Some(format!("the cluster does not say what `{user}` may do: {error}")),
        Err(_) => {
            let seconds = TIMEOUT.as_secs();
            Some(format!(
                "the cluster does not say within {seconds} s what `{user}` may do"
            ))
        }
    }
}

enum ReviewOutcome {
    Allowed,
    Denied { verb: String, reason: String },
}

/// Asks about each verb the request needs.
async fn review(
    cluster: &Arc<ClusterAccess>,
    attributes: &Attributes,
    impersonation: &Arc<Impersonation>,
) -> Result<ReviewOutcome, Error> {
    let mut asking = ClusterClient::acquire(cluster).await?;
    for verb in attributes.verbs() {
        let question = Question::review(&spec(verb, attributes));
        let content = asking.send_as(&question, impersonation).await?;
        let review = ReviewStatus::parse(&content).ok_or(Error::Truncated)?;
        if !review.allowed {
            return Ok(ReviewOutcome::Denied {
                verb: verb.to_owned(),
                reason: review.reason,
            });
        }
    }
    Ok(ReviewOutcome::Allowed)
}

fn spec(verb: &str, attributes: &Attributes) -> Value {
    match attributes.resource_request {
        true => json!({"resourceAttributes": {
            "verb": verb,
            "group": attributes.api_group,
            "version": attributes.api_version,
            "resource": attributes.resource,
            "subresource": attributes.subresource,
            "namespace": attributes.namespace,
            "name": attributes.name,
        }}),
        false => json!({"nonResourceAttributes": {"verb": verb, "path": attributes.path}}),
    }
}
