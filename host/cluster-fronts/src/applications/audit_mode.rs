//! Determines why mode enforce would refuse a request that mode audit permits. The request is not
//! refused for it, and nothing in the cluster changes.
//!
//! Source: `SelfSubjectAccessReview` of `authorization.k8s.io/v1`, created as the account. Every
//! authenticated identity may create one.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::timeout;

use tollgate_cluster::access::ClusterAccess;
use tollgate_cluster::query::review::ReviewStatus;
use tollgate_cluster::query::{ClusterClient, ClusterQuery, Error};
use tollgate_core::attributes::Attributes;
use tollgate_core::diagnostic::one_line;
use tollgate_policy::applications::IndexedApplication;
use tollgate_policy::impersonate::Impersonation;

/// Bytes of a cluster's reason that records keep.
const REASON_BYTES: usize = 256;
/// Longest wait for the reviews. The caller waits as long.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why mode enforce would refuse the request. `None` if it would permit it.
///
/// Waits at most 5 s. Cancel safe.
pub(super) async fn enforce_deny_reason(
    indexed: &IndexedApplication,
    attributes: &Attributes,
    cluster: &Arc<ClusterAccess>,
) -> Option<String> {
    let derived = match &indexed.derived_account {
        Ok(derived) => derived,
        Err(error) => return Some(error.to_string()),
    };
    let user = match &*derived.impersonation {
        // No account is set, so mode enforce would act as the gateway, too.
        Impersonation::Nobody => return None,
        Impersonation::As(identity) => &identity.username,
    };
    match timeout(TIMEOUT, review(cluster, attributes, &derived.impersonation)).await {
        Ok(Ok(None)) => None,
        Ok(Ok(Some((verb, reason)))) => {
            let reason = match one_line(&reason, REASON_BYTES) {
                none if none.is_empty() => "no rule allows it".to_owned(),
                reason => reason,
            };
            Some(format!("the cluster refuses `{verb}` to `{user}`: {reason}"))
        }
        // Every identity may create a review, so the cluster refused to let the gateway act as this one.
        Ok(Err(Error::Status(StatusCode::FORBIDDEN))) => {
            Some(format!("the gateway may not impersonate `{user}` in the cluster"))
        }
        Ok(Err(error)) => Some(format!("the cluster does not say what `{user}` may do: {error}")),
        Err(_) => Some(format!(
            "the cluster does not say within {} s what `{user}` may do",
            TIMEOUT.as_secs()
        )),
    }
}

/// The first verb that the cluster denies, and its reason.
async fn review<'a>(
    cluster: &Arc<ClusterAccess>,
    attributes: &'a Attributes,
    impersonation: &Impersonation,
) -> Result<Option<(&'a str, String)>, Error> {
    let mut client = ClusterClient::acquire(cluster).await?;
    for verb in attributes.verbs() {
        let query = ClusterQuery::review(&spec(verb, attributes));
        let content = client.send_as(&query, impersonation).await?;
        let review = ReviewStatus::parse(&content).ok_or(Error::Truncated)?;
        if !review.allowed {
            return Ok(Some((verb, review.reason)));
        }
    }
    Ok(None)
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
