//! Asks a cluster what the gateway's identity may do there. The result is a [`Verdict`]. The
//! questions are about nobody else and change nothing in the cluster.
//!
//! Source: `SelfSubjectAccessReview` of `authorization.k8s.io/v1`, which every
//! authenticated identity may create (`system:basic-user`).

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::grants::{Grant, Grants, Mode};
use crate::cluster_access::ClusterAccess;
use crate::question::review::Review;
use crate::question::{self, Asking, Question};

/// Longest wait for all answers of one cluster; a credential may take 15 s of it.
const ALL_WITHIN: Duration = Duration::from_secs(30);

/// What a cluster lets the gateway's identity do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Everything that is needed, in this mode.
    Granted(Mode),
    /// Some grants are missing.
    Missing {
        /// The mode in which the fewest are missing.
        mode: Mode,
        /// The missing grants, not empty.
        grants: Vec<Grant>,
    },
    /// The cluster did not answer.
    Unknown(Problem),
}

/// Why a cluster did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    #[error("there is no such cluster, or several have its name")]
    NoCluster,
    #[error(transparent)]
    Asked(#[from] question::Error),
    #[error("it answered something else than a review")]
    Answer,
    #[error("it did not answer within {} s", .0.as_secs())]
    Time(Duration),
}

/// Asks for each grant. Constrained impersonation is asked for only if the classic one is not
/// granted, because a cluster accepts either.
///
/// Waits at most [`ALL_WITHIN`]. Cancel safe.
pub(super) async fn review(access: &ClusterAccess, grants: &Grants) -> Verdict {
    match timeout(ALL_WITHIN, ask_all(access, grants)).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(problem)) => Verdict::Unknown(problem),
        Err(_) => Verdict::Unknown(Problem::Time(ALL_WITHIN)),
    }
}

async fn ask_all(access: &ClusterAccess, grants: &Grants) -> Result<Verdict, Problem> {
    let mut asking = Asking::begin(access).await?;
    let mut fewest: Option<(Mode, Vec<Grant>)> = None;
    for mode in [Mode::Classic, Mode::Constrained] {
        let mut missing = Vec::new();
        for grant in grants.iter() {
            if !is_allowed(&mut asking, grant, mode).await? {
                missing.push(grant.clone());
            }
        }
        if missing.is_empty() {
            return Ok(Verdict::Granted(mode));
        }
        if fewest.as_ref().is_none_or(|(_, known)| missing.len() < known.len()) {
            fewest = Some((mode, missing));
        }
    }
    let (mode, grants) = fewest.unwrap_or((Mode::Classic, Vec::new()));
    Ok(Verdict::Missing { mode, grants })
}

async fn is_allowed(asking: &mut Asking<'_>, grant: &Grant, mode: Mode) -> Result<bool, Problem> {
    let (resource, subresource) = grant.resource();
    let spec = json!({"resourceAttributes": {
        "group": grant.api_group(mode),
        "resource": resource,
        "subresource": subresource.unwrap_or_default(),
        "verb": mode.verb(),
    }});
    is_yes(&asking.ask(&Question::review(&spec)).await?)
}

/// Whether the review says yes.
pub(super) fn is_yes(content: &[u8]) -> Result<bool, Problem> {
    let review = Review::read(content).ok_or(Problem::Answer)?;
    Ok(review.allowed)
}
