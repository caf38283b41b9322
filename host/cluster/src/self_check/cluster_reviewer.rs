//! Has a cluster review the rights of the gateway's identity, with the gateway's own credential.
//! Objects are read only to check whether they exist.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::timeout;

use super::review::{CheckError, parse_allowed};
use super::rights::{self, AccessReviewer};
use crate::access::ClusterAccess;
use crate::query::review::MAX_REVIEW_BYTES;
use crate::query::{self, ClusterClient, ClusterQuery};
use tollgate_policy::impersonate::service_account::ServiceAccountName;

/// Longest wait for one answer; a credential may take 15 s of it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A real cluster. Each request acquires the credential that is current at that time.
#[derive(Debug)]
pub(super) struct ClusterReviewer<'a>(pub(super) &'a ClusterAccess);

impl ClusterReviewer<'_> {
    async fn send(&self, query: ClusterQuery<'_>) -> Result<Bytes, CheckError> {
        let sending = async { Ok(ClusterClient::acquire(self.0).await?.send(&query).await?) };
        timeout(TIMEOUT, sending)
            .await
            .unwrap_or(Err(CheckError::Time(TIMEOUT)))
    }
}

impl AccessReviewer for ClusterReviewer<'_> {
    async fn is_allowed(&self, check: rights::AccessCheck<'_>) -> Result<bool, CheckError> {
        parse_allowed(&self.send(ClusterQuery::review(&check.spec())).await?)
    }

    async fn exists(&self, ServiceAccountName { namespace, name }: &ServiceAccountName) -> Result<bool, CheckError> {
        // Valid names need no encoding.
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}");
        let query = ClusterQuery {
            path: &path,
            accept: "application/json",
            content: None,
            max_response_bytes: MAX_REVIEW_BYTES,
        };
        match self.send(query).await {
            Ok(_) | Err(CheckError::Request(query::Error::TooLong(_))) => Ok(true),
            Err(CheckError::Request(query::Error::Status(StatusCode::NOT_FOUND))) => Ok(false),
            Err(problem) => Err(problem),
        }
    }
}
