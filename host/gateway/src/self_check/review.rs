//! Asks a cluster what the gateway's identity may do there. The result is a [`ImpersonationVerdict`]. The
//! questions are about nobody else and change nothing in the cluster.
//!
//! Source: `SelfSubjectAccessReview` of `authorization.k8s.io/v1`, which every
//! authenticated identity may create (`system:basic-user`).

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::grants::{ImpersonationGrant, ImpersonationGrants, ImpersonationKind};
use crate::cluster_access::ClusterAccess;
use crate::question::review::ReviewStatus;
use crate::question::{self, ClusterClient, Question};

/// Longest wait for all answers of one cluster; a credential may take 15 s of it.
const ALL_WITHIN: Duration = Duration::from_secs(30);

/// What a cluster lets the gateway's identity do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ImpersonationVerdict {
    /// Everything that is needed, in this mode.
    Granted(ImpersonationKind),
    /// Some grants are missing.
    Missing {
        /// The mode in which the fewest are missing.
        mode: ImpersonationKind,
        /// The missing grants, not empty.
        grants: Vec<ImpersonationGrant>,
    },
    /// The cluster did not answer.
    Unknown(CheckError),
}

/// Why a cluster did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CheckError {
    #[error("there is no such cluster, or several have its name")]
    NoCluster,
    #[error(transparent)]
    Request(#[from] question::Error),
    #[error("it answered something else than a review")]
    Answer,
    #[error("it did not answer within {} s", .0.as_secs())]
    Time(Duration),
}

/// Asks for each grant. Constrained impersonation is asked for only if the classic one is not
/// granted, because a cluster accepts either.
///
/// Waits at most [`ALL_WITHIN`]. Cancel safe.
pub(super) async fn review(access: &ClusterAccess, grants: &ImpersonationGrants) -> ImpersonationVerdict {
    match timeout(ALL_WITHIN, ask_all(access, grants)).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(problem)) => ImpersonationVerdict::Unknown(problem),
        Err(_) => ImpersonationVerdict::Unknown(CheckError::Time(ALL_WITHIN)),
    }
}

async fn ask_all(access: &ClusterAccess, grants: &ImpersonationGrants) -> Result<ImpersonationVerdict, CheckError> {
    let mut asking = ClusterClient::acquire(access).await?;
    let mut fewest: Option<(ImpersonationKind, Vec<ImpersonationGrant>)> = None;
    for mode in [ImpersonationKind::Classic, ImpersonationKind::Constrained] {
        let mut missing = Vec::new();
        for grant in grants.iter() {
            if !is_allowed(&mut asking, grant, mode).await? {
                missing.push(grant.clone());
            }
        }
        if missing.is_empty() {
            return Ok(ImpersonationVerdict::Granted(mode));
        }
        if fewest.as_ref().is_none_or(|(_, known)| missing.len() < known.len()) {
            fewest = Some((mode, missing));
        }
    }
    let (mode, grants) = fewest.unwrap_or((ImpersonationKind::Classic, Vec::new()));
    Ok(ImpersonationVerdict::Missing { mode, grants })
}

async fn is_allowed(
    asking: &mut ClusterClient<'_>,
    grant: &ImpersonationGrant,
    mode: ImpersonationKind,
) -> Result<bool, CheckError> {
    let (resource, subresource) = grant.resource();
    let spec = json!({"resourceAttributes": {
        "group": grant.api_group(mode),
        "resource": resource,
        "subresource": subresource.unwrap_or_default(),
        "verb": mode.verb(),
    }});
    parse_allowed(&asking.send(&Question::review(&spec)).await?)
}

/// Whether the review says yes.
pub(super) fn parse_allowed(content: &[u8]) -> Result<bool, CheckError> {
    let review = ReviewStatus::parse(content).ok_or(CheckError::Answer)?;
    Ok(review.allowed)
}
