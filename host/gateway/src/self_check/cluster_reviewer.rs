//! Asks a cluster questions with the gateway's own credential. Objects are read only to learn
//! whether they exist.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::timeout;

use super::review::{CheckError, parse_allowed};
use super::rights::{self, AccessReviewer};
use crate::cluster_access::ClusterAccess;
use crate::question::review::MAX_REVIEW_BYTES;
use crate::question::{self, ClusterClient, Question};
use tollgate_policy::impersonate::service_account::Account;

/// Longest wait for one answer; a credential may take 15 s of it.
const WITHIN: Duration = Duration::from_secs(20);

/// A cluster to ask. Each question takes the credential that is current at that time.
#[derive(Debug)]
pub(super) struct ClusterReviewer<'a>(pub(super) &'a ClusterAccess);

impl ClusterReviewer<'_> {
    async fn send(&self, question: Question<'_>) -> Result<Bytes, CheckError> {
        let asking = async { Ok(ClusterClient::acquire(self.0).await?.send(&question).await?) };
        timeout(WITHIN, asking).await.unwrap_or(Err(CheckError::Time(WITHIN)))
    }
}

impl AccessReviewer for ClusterReviewer<'_> {
    async fn is_allowed(&self, question: rights::Question<'_>) -> Result<bool, CheckError> {
        parse_allowed(&self.send(Question::review(&question.spec())).await?)
    }

    async fn exists(&self, Account { namespace, name }: &Account) -> Result<bool, CheckError> {
        // Names that a cluster can have need no encoding.
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}");
        let question = Question {
            path: &path,
            accept: "application/json",
            content: None,
            max_response_bytes: MAX_REVIEW_BYTES,
        };
        match self.send(question).await {
            Ok(_) | Err(CheckError::Request(question::Error::TooLong { .. })) => Ok(true),
            Err(CheckError::Request(question::Error::Status(StatusCode::NOT_FOUND))) => Ok(false),
            Err(problem) => Err(problem),
        }
    }
}
