//! Asks a cluster questions with the gateway's own credential. Objects are read only to learn
//! whether they exist.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::timeout;

use super::review::{Problem, is_yes};
use super::rights::{self, Answering};
use crate::cluster_access::ClusterAccess;
use crate::question::review::ANSWER_BYTES;
use crate::question::{self, Asking, Question};
use tollgate_policy::impersonate::service_account::Account;

/// Longest wait for one answer; a credential may take 15 s of it.
const WITHIN: Duration = Duration::from_secs(20);

/// A cluster to ask. Each question takes the credential that is current at that time.
#[derive(Debug)]
pub(super) struct Entered<'a>(pub(super) &'a ClusterAccess);

impl Entered<'_> {
    async fn ask(&self, question: Question<'_>) -> Result<Bytes, Problem> {
        let asking = async { Ok(Asking::begin(self.0).await?.ask(&question).await?) };
        timeout(WITHIN, asking).await.unwrap_or(Err(Problem::Time(WITHIN)))
    }
}

impl Answering for Entered<'_> {
    async fn is_allowed(&self, question: rights::Question<'_>) -> Result<bool, Problem> {
        is_yes(&self.ask(Question::review(&question.spec())).await?)
    }

    async fn is_there(&self, Account { namespace, name }: &Account) -> Result<bool, Problem> {
        // Names that a cluster can have need no encoding.
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}");
        let question = Question {
            path: &path,
            accept: "application/json",
            content: None,
            longest: ANSWER_BYTES,
        };
        match self.ask(question).await {
            Ok(_) | Err(Problem::Asked(question::Error::TooLong { .. })) => Ok(true),
            Err(Problem::Asked(question::Error::Status(StatusCode::NOT_FOUND))) => Ok(false),
            Err(problem) => Err(problem),
        }
    }
}
