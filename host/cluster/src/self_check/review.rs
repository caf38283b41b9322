//! Asks a cluster which impersonation grants the gateway's identity has there. The result is an
//! [`ImpersonationVerdict`]. The reviews are about no other identity and change nothing in the
//! cluster.
//!
//! Source: `SelfSubjectAccessReview` of `authorization.k8s.io/v1`, which every
//! authenticated identity may create (`system:basic-user`).

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::{AGENT_RETRY_INTERVAL, RETRY_INTERVAL};
use crate::access::ClusterAccess;
use crate::query::review::ReviewStatus;
use crate::query::{self, ClusterClient, ClusterQuery};
use tollgate_policy::gateway_rights::grants::{ImpersonationGrant, ImpersonationGrants, ImpersonationKind};

/// Longest wait for all answers of one cluster; a credential may take 15 s of it.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ImpersonationVerdict {
    Granted(ImpersonationKind),
    Missing {
        /// The mode in which the fewest are missing.
        mode: ImpersonationKind,
        grants: Vec<ImpersonationGrant>,
    },
    Unknown(CheckError),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CheckError {
    #[error("there is no such cluster, or several have its name")]
    NoCluster,
    #[error(transparent)]
    Request(#[from] query::Error),
    #[error("its answer is not a review")]
    Answer,
    #[error("its answer is not a list of kinds")]
    Discovery,
    #[error("it did not answer within {} s", .0.as_secs())]
    Time(Duration),
}

impl CheckError {
    /// How long the cluster is left alone.
    pub(super) fn retry_interval(&self) -> Duration {
        match self {
            Self::Request(query::Error::NoAgent(_)) => AGENT_RETRY_INTERVAL,
            Self::Request(_) | Self::NoCluster | Self::Answer | Self::Discovery | Self::Time(_) => RETRY_INTERVAL,
        }
    }
}

/// Reviews each grant. Constrained impersonation is reviewed only if the classic one is not
/// granted, because a cluster accepts either.
///
/// Waits at most [`TIMEOUT`]. Cancel safe.
pub(super) async fn review(access: &ClusterAccess, grants: &ImpersonationGrants) -> ImpersonationVerdict {
    match timeout(TIMEOUT, ask_all(access, grants)).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(problem)) => ImpersonationVerdict::Unknown(problem),
        Err(_) => ImpersonationVerdict::Unknown(CheckError::Time(TIMEOUT)),
    }
}

async fn ask_all(access: &ClusterAccess, grants: &ImpersonationGrants) -> Result<ImpersonationVerdict, CheckError> {
    let mut client = ClusterClient::acquire(access).await?;
    let mut fewest: Option<(ImpersonationKind, Vec<ImpersonationGrant>)> = None;
    for mode in [ImpersonationKind::Classic, ImpersonationKind::Constrained] {
        let mut missing = Vec::new();
        for grant in grants.iter() {
            if !is_allowed(&mut client, grant, mode).await? {
                missing.push(grant.clone());
            }
        }
        if missing.is_empty() {
            return Ok(ImpersonationVerdict::Granted(mode));
        }
        if fewest.as_ref().is_none_or(|(_, other)| missing.len() < other.len()) {
            fewest = Some((mode, missing));
        }
    }
    let (mode, grants) = fewest.unwrap_or((ImpersonationKind::Classic, Vec::new()));
    Ok(ImpersonationVerdict::Missing { mode, grants })
}

async fn is_allowed(
    client: &mut ClusterClient<'_>,
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
    parse_allowed(&client.send(&ClusterQuery::review(&spec)).await?)
}

pub(super) fn parse_allowed(content: &[u8]) -> Result<bool, CheckError> {
    let review = ReviewStatus::parse(content).ok_or(CheckError::Answer)?;
    Ok(review.allowed)
}
