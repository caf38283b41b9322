//! Streams a sealed request ([`crate::headers::Outbound`]) to its backend, and the response back.
//!
//! Statuses: 400, 408 and 413 for the client's content; 401 when the caller's credential expires or
//! is revoked; 408 when the backend is silent; 502 when it cannot be reached or breaks off; 504
//! when the whole exchange takes too long.
//!
//! Invariant: content is never buffered as a whole, and a request that a backend may have seen is
//! never repeated.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use http::{Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use tokio::time::{Instant, sleep_until};

use crate::headers::{Outbound, clean_response};
use tollgate_agent::request::RequestError;
use tollgate_identity::sessions::{ClosableConnection, EndReason};

mod argocd;
mod backend;
mod body;
mod cluster;
mod end;
mod http2_pool;
mod limits;
mod resolver;
pub mod timeout;
pub mod tls;
mod upgrade;

pub use argocd::{ArgocdBackend, ArgocdProtocol};
pub use backend::{Backend, BuildError};
pub use body::{Body, BodyError, BufferedBody};
pub use cluster::ClusterBackend;
pub use limits::{LimitExceeded, LimitKind, LimitPermit, Limiter};

use backend::{Call, CallError};
use body::Progress;
use end::{DecisionSignal, EndConditions, ExchangeDeadline};
pub(crate) use upgrade::HANDOVER;

/// Why there is no response from the backend.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection: refused, unknown name, failed TLS, or too slow. (502)
    #[error("the backend cannot be reached")]
    Connect(#[source] legacy::Error),
    /// The connection broke before a response head came. (502)
    #[error("the backend closed the connection before its response")]
    Broken(#[source] legacy::Error),
    /// The backend sent nothing for too long before the response head. (408, as Argo CD's proposal
    /// asks)
    #[error("the backend sent nothing for {0:?}")]
    Silent(Duration),
    /// No response head before the end of the whole exchange. (504)
    #[error("the backend did not answer within {0:?}")]
    ExchangeTimeout(Duration),
    /// The caller's credential, session or access ended before the response head (401), or the
    /// store stopped answering, so that it may have ended (503).
    #[error("{}", ended_text(*.0))]
    Ended(EndReason),
    /// The client's content is too long. (413)
    #[error("content is longer than allowed")]
    ContentTooLarge,
    /// The client stopped sending its content. (408)
    #[error("the client stopped sending its content")]
    ClientSilent,
    /// The client's content ended early or is framed wrongly. (400)
    #[error("the client's content is incomplete")]
    ClientBroken,
    /// The backend switches protocols without being asked, or to another one. (502)
    #[error("the backend switched to a protocol that was not asked for")]
    Protocol,
    /// The backend answers an upgrade request like an ordinary request. (502)
    #[error("the backend answered a request to switch protocols with `{0}`")]
    UpgradeRefused(StatusCode),
    /// The agent of the cluster is not connected or busy (503), or its connection broke (502).
    #[error(transparent)]
    Agent(#[from] RequestError),
    /// The request was sealed for another backend: a mistake in the gateway. (500)
    #[error("the request was made for another backend")]
    WrongBackend,
}

impl Error {
    /// The status the client gets.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Connect(_)
            | Self::Broken(_)
            | Self::Protocol
            | Self::UpgradeRefused { .. }
            | Self::Agent(RequestError::Broken(_) | RequestError::BrokenElsewhere | RequestError::Wire(_)) => {
                StatusCode::BAD_GATEWAY
            }
            Self::Agent(RequestError::Absent | RequestError::Busy) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Silent { .. } | Self::ClientSilent => StatusCode::REQUEST_TIMEOUT,
            Self::ExchangeTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Ended(EndReason::StoreUnavailable | EndReason::RevocationsUnavailable | EndReason::Stopping) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Ended(EndReason::Revoked | EndReason::Expired | EndReason::Withdrawn) => StatusCode::UNAUTHORIZED,
            Self::ContentTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::ClientBroken => StatusCode::BAD_REQUEST,
            Self::WrongBackend => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

fn ended_text(ending: EndReason) -> &'static str {
    match ending {
        EndReason::Expired => "the caller's credential ended",
        EndReason::Revoked => "the caller's session was revoked",
        EndReason::Withdrawn => "the caller's access was withdrawn",
        EndReason::StoreUnavailable => "the store is unavailable",
        EndReason::RevocationsUnavailable => "Argo CD's list of revoked tokens is unavailable",
        EndReason::Stopping => "the gateway is stopping",
    }
}

impl Backend {
    /// Forwards one request. The content is not read before the connection is established.
    ///
    /// Values held by the request are dropped when the response's content or the tunnel has ended,
    /// and immediately on an error.
    ///
    /// # Errors
    /// [`Error`]. After the response head, the content ends in a [`BodyError`]
    /// instead, which aborts the client's connection or stream.
    ///
    /// Cancel safe: dropping the future drops the request.
    pub async fn forward(&self, outbound: Outbound, mut body: Body) -> Result<Response<Body>, Error> {
        // SECURITY: the head has the fields and the credential of the upstream that it was sealed for.
        if !Arc::ptr_eq(outbound.upstream(), &self.upstream) {
            return Err(Error::WrongBackend);
        }
        let (left, decision) = (outbound.credential_time_left(), outbound.decision());
        let signal = outbound
            .signal()
            .cloned()
            .map(|signal| DecisionSignal { signal, decision });
        let (head, upgrade, client, mut held) = outbound.into_parts();
        let timeouts = &self.timeouts;
        let credential = left.and_then(|left| ExchangeDeadline::credential(left, decision));
        let total = timeouts.total.and_then(ExchangeDeadline::total);
        let deadline = total.into_iter().chain(credential).min_by_key(|deadline| deadline.at);
        if credential.is_some_and(|end| end.at <= Instant::now()) {
            return Err(Error::Ended(EndReason::Expired));
        }
        if let Some(signal) = &signal {
            signal
                .signal
                // The content cannot end itself while an HTTP/2 client opens no window: hyper does not poll it.
                .close_on_end(Arc::clone(client.peer()) as Arc<dyn ClosableConnection>);
        }
        // The upload may outlast the response.
        body.end_with(EndConditions {
            deadline: credential,
            signal: signal.clone(),
        });
        let ends = EndConditions { deadline, signal };
        let progress = body.track_progress();
        let (sender, permit) = self.sender(upgrade.is_some())?;
        held.extend(permit);
        let call = sender.send(head.map(|()| Box::new(body)));
        let response = PendingResponse {
            call,
            progress,
            idle: timeouts.idle,
            ends: ends.clone(),
        }
        .head()
        .await?;
        match upgrade {
            Some((protocol, upgrade)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                // Measured from now, because the response may have come late.
                let left = credential.map(|end| end.at.saturating_duration_since(Instant::now()));
                upgrade::Tunnel {
                    protocol,
                    upgrade,
                    idle: timeouts.idle,
                    lifetime: upgrade::lifetime(timeouts, left),
                    signal: ends.signal.map(|one| one.signal),
                    client,
                    held,
                }
                .open(response, &self.upstream)
            }
            _ if response.status() == StatusCode::SWITCHING_PROTOCOLS => Err(Error::Protocol),
            _ => {
                let (mut parts, incoming) = response.into_parts();
                clean_response(&mut parts.headers, &self.upstream.responder);
                let mut body = Body::download(incoming, timeouts.idle, ends);
                body.hold_all(held);
                if let Some(guard) = deadline.and_then(|deadline| client.peer().register_deadline(deadline.at)) {
                    body.hold(guard);
                }
                Ok(Response::from_parts(parts, body))
            }
        }
    }
}

/// The time between a request and its response head.
struct PendingResponse {
    call: Call,
    progress: Option<Arc<Progress>>,
    idle: Option<Duration>,
    ends: EndConditions,
}

impl PendingResponse {
    async fn head(mut self) -> Result<Response<Incoming>, Error> {
        let response = match self.ends.signal.take() {
            None => self.bounded().await?,
            Some(DecisionSignal { signal, .. }) => tokio::select! {
                // SECURITY: a response that arrives together with the end of the exchange is not
                // returned.
                biased;
                ending = signal.ended() => return Err(Error::Ended(ending)),
                response = self.bounded() => response?,
            },
        };
        response.map_err(|error| self.classify_error(error))
    }

    /// Waits within the limits. Progress of the upload resets the idle timeout, because a backend
    /// cannot be expected to answer before it has everything.
    async fn bounded(&mut self) -> Result<Result<Response<Incoming>, CallError>, Error> {
        let mut seen = self.frames();
        let mut silent_at = self.idle.and_then(|idle| Instant::now().checked_add(idle));
        loop {
            let next = [silent_at, self.ends.deadline.map(|deadline| deadline.at)]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next else {
                return Ok((&mut self.call).await);
            };
            tokio::select! {
                biased;
                // A head that has arrived counts even at the deadline, because its content has the same one.
                response = &mut self.call => return Ok(response),
                () = sleep_until(next) => {}
            }
            let now = Instant::now();
            if let Some(deadline) = self.ends.deadline.filter(|deadline| now >= deadline.at) {
                return Err(deadline.error());
            }
            if let (Some(waited), true) = (self.idle, silent_at.is_some_and(|at| now >= at)) {
                let frames = self.frames();
                if frames == seen {
                    return Err(Error::Silent(waited));
                }
                seen = frames;
                silent_at = now.checked_add(waited);
            }
        }
    }

    fn frames(&self) -> u64 {
        self.progress
            .as_ref()
            .map_or(0, |progress| progress.frames.load(Ordering::Relaxed))
    }

    /// Finds the cause of an error. A client whose content failed looks like a broken connection to
    /// the backend.
    fn classify_error(&self, error: CallError) -> Error {
        let failure = self.progress.as_ref().map(|progress| &progress.failure);
        let failure = failure.and_then(|failure| failure.lock().unwrap_or_else(PoisonError::into_inner).take());
        match (failure, error) {
            (Some(failure), _) => failure,
            (None, CallError::Client(error)) if error.is_connect() => Error::Connect(error),
            (None, CallError::Client(error)) => Error::Broken(error),
            (None, CallError::Agent(error)) => Error::Agent(error),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
