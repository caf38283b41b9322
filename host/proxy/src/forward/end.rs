//! Computes when an exchange must end and why: the earliest of the configured limit, the end of the
//! caller's credential, and a signal from outside.
//!
//! Security: no exchange outlives its caller's credential or session.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::timeout::Lazy;
use super::{BodyError, Error};
use tollgate_identity::sessions::{EndSignal, Ending, Polled};

/// A fixed end.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) at: Instant,
    cause: Cause,
}

#[derive(Clone, Copy, Debug)]
enum Cause {
    /// The configured bound on the whole.
    Total { allowed: Duration },
    /// The caller's credential ends; the decision that let it pass.
    Credential { decision: Uuid },
}

impl End {
    /// After `allowed` from now.
    pub(super) fn total(allowed: Duration) -> Option<Self> {
        Self::after(allowed, Cause::Total { allowed })
    }

    /// The end of the caller's credential.
    ///
    /// - `left`: time it has left.
    /// - `decision`: the one it was good for.
    pub(super) fn credential(left: Duration, decision: Uuid) -> Option<Self> {
        Self::after(left, Cause::Credential { decision })
    }

    /// The earlier of both.
    pub(super) fn earlier(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).min_by_key(|end| end.at)
    }

    /// A duration too long to represent means no end.
    fn after(left: Duration, cause: Cause) -> Option<Self> {
        let at = Instant::now().checked_add(left)?;
        Some(Self { at, cause })
    }

    /// Why there is no response head.
    pub(super) fn error(self) -> Error {
        match self.cause {
            Cause::Total { allowed } => Error::Total { allowed },
            Cause::Credential { .. } => Error::CredentialEnded,
        }
    }

    /// Why content is cut. The response's record is closed by then, so this logs it, once for each
    /// direction that is cut.
    fn cut(self) -> BodyError {
        match self.cause {
            Cause::Total { .. } => BodyError::Total,
            Cause::Credential { decision } => {
                tracing::info!(target: "tollgate::decision", %decision, "content is cut: the caller's credential ended");
                BodyError::CredentialEnded
            }
        }
    }
}

/// Everything that can end an exchange before it is done.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    /// At a time.
    pub(super) end: Option<End>,
    /// From outside.
    pub(super) signal: Option<Signal>,
}

/// The signal from outside that ends one exchange.
#[derive(Clone, Debug)]
pub(super) struct Signal {
    pub(super) signal: EndSignal,
    /// Id of the decision that allowed the exchange.
    pub(super) decision: Uuid,
}

impl Signal {
    /// Why there is no response head.
    pub(super) fn error(ending: Ending) -> Error {
        match ending {
            Ending::Revoked => Error::Revoked,
            Ending::Expired => Error::CredentialEnded,
            Ending::Withdrawn => Error::Withdrawn,
            Ending::StoreUnavailable => Error::StoreUnavailable,
        }
    }

    /// Why content is cut.
    fn cut(ending: Ending, decision: Uuid) -> BodyError {
        let reason = ending.as_str();
        tracing::info!(target: "tollgate::decision", %decision, reason, "content is cut");
        match ending {
            Ending::Revoked => BodyError::Revoked,
            Ending::Expired => BodyError::CredentialEnded,
            Ending::Withdrawn => BodyError::Withdrawn,
            Ending::StoreUnavailable => BodyError::StoreUnavailable,
        }
    }
}

/// Watches for the ends of an exchange while content flows.
#[derive(Debug)]
pub(super) struct Deadline {
    timed: Option<(End, Lazy)>,
    signal: Option<(Polled, Uuid)>,
}

impl Deadline {
    /// `None` if nothing can end the content.
    pub(super) fn new(ends: Ends) -> Option<Box<Self>> {
        let Ends { end, signal } = ends;
        if end.is_none() && signal.is_none() {
            return None;
        }
        Some(Box::new(Self {
            timed: end.map(|end| (end, Lazy::until(end.at))),
            signal: signal.map(|one| (Polled::new(one.signal), one.decision)),
        }))
    }

    /// The error when an end came, without waiting for it.
    pub(super) fn past(&self) -> Option<BodyError> {
        if let Some((polled, decision)) = &self.signal
            && let Some(ending) = polled.past()
        {
            return Some(Signal::cut(ending, *decision));
        }
        let (end, timer) = self.timed.as_ref()?;
        timer.is_past().then(|| end.cut())
    }

    /// Ready when an end came.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        if let Some((polled, decision)) = &mut self.signal
            && let Poll::Ready(ending) = polled.poll(cx)
        {
            return Poll::Ready(Signal::cut(ending, *decision));
        }
        match &mut self.timed {
            Some((end, timer)) => timer.poll_expired(cx).map(|()| end.cut()),
            None => Poll::Pending,
        }
    }
}
