//! Sends requests of the gateway's own to a cluster, as itself or impersonating somebody, and
//! returns the bytes of a successful response.
//!
//! Security: every identity comes from a mapping, the response is bounded, and redirects are not
//! followed.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use uuid::Uuid;

use crate::access::{self, ClusterAccess};
use tollgate_core::diagnostic::with_causes;
use tollgate_credential::cache::Lease;
use tollgate_policy::impersonate::Impersonation;
use tollgate_proxy::forward::{self, Body};
use tollgate_proxy::server::Client;
use tollgate_proxy::{headers, target};

pub mod review;

/// Why a cluster did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The gateway has no credential.
    #[error("no credential is available for it: {0}")]
    Credential(#[from] access::Error),
    /// The cluster's settings cannot be used.
    #[error("its settings cannot be used")]
    Settings,
    /// It cannot be reached, or the connection broke.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// Its agent is not connected, or busy. Nothing was sent.
    #[error("it cannot be reached now: {0}")]
    NoAgent(String),
    /// It answered with another status than 200 or 201.
    #[error("it answered {0}")]
    Status(StatusCode),
    /// The response is longer than this many bytes.
    #[error("it answered more than {0} bytes")]
    TooLong(usize),
    /// The response broke off.
    #[error("its answer is incomplete")]
    Truncated,
}

/// A request of the gateway's own to a cluster.
#[derive(Clone, Debug)]
pub struct ClusterQuery<'a> {
    /// Path behind the cluster's server, from `/` on, without a query.
    pub path: &'a str,
    /// Value of `Accept`.
    pub accept: &'a str,
    /// JSON to send with `POST`; without it, the request is a `GET`.
    pub content: Option<Bytes>,
    /// Longest response, in bytes.
    pub max_response_bytes: usize,
}

/// Sends requests to one cluster, with one credential.
#[derive(Debug)]
pub struct ClusterClient<'a> {
    access: &'a ClusterAccess,
    lease: Lease,
}

impl<'a> ClusterClient<'a> {
    /// Acquires the cluster's credential, waiting at most [`access::MAX_CREDENTIAL_WAIT`].
    /// Cancel safe.
    ///
    /// # Errors
    /// [`Error::Credential`].
    pub async fn acquire(access: &'a ClusterAccess) -> Result<Self, Error> {
        Ok(Self {
            access,
            lease: access.lease().await?,
        })
    }

    /// Sends a request as the gateway itself, and once more with another credential if the cluster
    /// does not accept the first. Only 200 and 201 count as answers. The caller limits the time.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn send(&mut self, query: &ClusterQuery<'_>) -> Result<Bytes, Error> {
        self.send_as(query, &Impersonation::Nobody).await
    }

    /// Like [`ClusterClient::send`], with the given impersonation.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn send_as(&mut self, query: &ClusterQuery<'_>, impersonation: &Impersonation) -> Result<Bytes, Error> {
        match self.send_once(query, impersonation).await {
            Err(Error::Status(StatusCode::UNAUTHORIZED)) => {
                let another = self.access.lease_after_unauthorized(self.lease.generation).await;
                self.lease = another.ok_or(Error::Status(StatusCode::UNAUTHORIZED))?;
                self.send_once(query, impersonation).await
            }
            answer => answer,
        }
    }

    async fn send_once(&self, query: &ClusterQuery<'_>, impersonation: &Impersonation) -> Result<Bytes, Error> {
        let connections = self.access.backend().ok_or(Error::Settings)?;
        let backend = connections.for_credential(&self.lease).map_err(|_| Error::Settings)?;
        let upstream = &backend.upstream;
        let path = target::join(&upstream.base, query.path, None).map_err(|_| Error::Settings)?;
        let (head, body) = query.parts()?;
        let cleaned = headers::clean(head).map_err(|_| Error::Settings)?;
        let client = Arc::new(Client::gateway());
        let outbound = cleaned
            .seal_for_kubernetes(
                upstream,
                path,
                &self.lease.credential,
                impersonation,
                Uuid::now_v7(),
                &client,
            )
            .map_err(|_| Error::Settings)?;
        let unreachable = |error: forward::Error| match &error {
            forward::Error::Agent(_) if error.status() == StatusCode::SERVICE_UNAVAILABLE => {
                Error::NoAgent(with_causes(&error))
            }
            _ => Error::Unreachable(with_causes(&error)),
        };
        let response = backend.forward(outbound, body).await.map_err(unreachable)?;
        let (head, body) = response.into_parts();
        if !matches!(head.status, StatusCode::OK | StatusCode::CREATED) {
            return Err(Error::Status(head.status));
        }
        match Limited::new(body, query.max_response_bytes).collect().await {
            Ok(content) => Ok(content.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(Error::TooLong(query.max_response_bytes)),
            Err(_) => Err(Error::Truncated),
        }
    }
}

impl ClusterQuery<'_> {
    fn parts(&self) -> Result<(http::request::Parts, Body), Error> {
        let head = Request::builder()
            .uri(self.path)
            .header(HOST, "tollgate")
            .header(ACCEPT, self.accept);
        let (head, body) = match &self.content {
            None => (head.method(Method::GET), Body::empty()),
            Some(content) => (
                head.method(Method::POST).header(CONTENT_TYPE, "application/json"),
                Body::from(content.clone()),
            ),
        };
        let (head, ()) = head.body(()).map_err(|_| Error::Settings)?.into_parts();
        Ok((head, body))
    }
}
