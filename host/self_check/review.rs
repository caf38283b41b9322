//! Asks a cluster what the gateway's identity may do there.
//!
//! In: a cluster with its credential, grants. Out: [`Verdict`]. Never: a question
//! whose answer depends on anybody else; a change of anything in the cluster.
//!
//! Source: `SelfSubjectAccessReview` of `authorization.k8s.io/v1`, which every
//! authenticated identity may create (`system:basic-user`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::grants::{Grant, Grants, Mode};
use crate::credential::cache::Lease;
use crate::credential::clusters::{self, ClusterAccess};
use crate::forward::{self, Body};
use crate::headers;
use crate::route;
use crate::server::Peer;

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// Longest answer to one question, in bytes.
const ANSWER_BYTES: usize = 64 * 1024;
/// Longest wait for all answers of one cluster; a credential may take 15 s of it.
const ALL_WITHIN: Duration = Duration::from_secs(30);

/// What a cluster lets the gateway's identity do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All that is needed, in this way.
    Granted(Mode),
    /// These are missing, in the way that misses fewest.
    Missing {
        /// The way.
        mode: Mode,
        /// What is missing; not empty.
        grants: Vec<Grant>,
    },
    /// It did not say.
    Unknown(Problem),
}

/// Why a cluster did not say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    #[error("there is no such cluster, or several have its name")]
    NoCluster,
    #[error("there is no credential for it: {0}")]
    Credential(#[from] clusters::Error),
    #[error("its settings cannot be used")]
    Settings,
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("it answered something else than a review")]
    Answer,
    #[error("it did not answer within {} s", .0.as_secs())]
    Time(Duration),
}

#[derive(Deserialize)]
struct Answer {
    status: AnswerStatus,
}

#[derive(Deserialize)]
struct AnswerStatus {
    #[serde(default)]
    allowed: bool,
}

/// Asks for each grant. Constrained impersonation is asked for only where the
/// classic one is not granted: a cluster takes either.
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
    let mut asking = Asking {
        access,
        lease: access.lease().await?,
    };
    let mut fewest: Option<(Mode, Vec<Grant>)> = None;
    for mode in [Mode::Classic, Mode::Constrained] {
        let mut missing = Vec::new();
        for grant in grants.iter() {
            if !asking.is_allowed(grant, mode).await? {
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

struct Asking<'a> {
    access: &'a ClusterAccess,
    lease: Lease,
}

impl Asking<'_> {
    /// One question; once more with another credential when the cluster does not
    /// know the first.
    async fn is_allowed(&mut self, grant: &Grant, mode: Mode) -> Result<bool, Problem> {
        let (resource, subresource) = grant.resource();
        let question = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "group": grant.api_group(mode),
                "resource": resource,
                "subresource": subresource.unwrap_or_default(),
                "verb": mode.verb(),
            }},
        });
        let question = Bytes::from(question.to_string());
        match self.ask(question.clone()).await {
            Err(Problem::Status(StatusCode::UNAUTHORIZED)) => {
                let another = self.access.refused(self.lease.generation).await;
                self.lease = another.ok_or(Problem::Status(StatusCode::UNAUTHORIZED))?;
                self.ask(question).await
            }
            answer => answer,
        }
    }

    async fn ask(&self, question: Bytes) -> Result<bool, Problem> {
        let connections = self.access.backend().ok_or(Problem::Settings)?;
        let backend = connections.for_credential(&self.lease).map_err(|_| Problem::Settings)?;
        let upstream = backend.upstream();
        let path = route::join(upstream.base(), PATH, None).map_err(|_| Problem::Settings)?;
        let head = Request::post(PATH)
            .header(HOST, "tollgate")
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(());
        let (head, ()) = head.map_err(|_| Problem::Settings)?.into_parts();
        let cleaned = headers::clean(head).map_err(|_| Problem::Settings)?;
        let peer = Arc::new(Peer::own());
        let outbound = cleaned
            .seal_for_cluster((upstream, path), &self.lease.credential, &peer)
            .map_err(|_| Problem::Settings)?;
        let response = backend
            .forward(outbound, Body::from(question))
            .await
            .map_err(|error| unreachable(&error))?;
        let (head, body) = response.into_parts();
        if !matches!(head.status, StatusCode::OK | StatusCode::CREATED) {
            return Err(Problem::Status(head.status));
        }
        let content = Limited::new(body, ANSWER_BYTES).collect().await;
        let content = content.map_err(|_| Problem::Answer)?.to_bytes();
        let answer: Answer = serde_json::from_slice(&content).map_err(|_| Problem::Answer)?;
        Ok(answer.status.allowed)
    }
}

fn unreachable(error: &forward::Error) -> Problem {
    Problem::Unreachable(crate::diagnostic::with_causes(error))
}
