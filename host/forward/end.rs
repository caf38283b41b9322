//! When an exchange must be over, and why.
//!
//! In: the configured bound, the end of the caller's credential. Out: the
//! earlier of both. Never: an exchange that outlives its caller's credential.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::timeout::Lazy;
use super::{BodyError, Error};

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

    /// With the caller's credential.
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

    /// A time too long to count is no end.
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

    /// Why content is cut. The record of a response is closed by then: the log
    /// has it, once for each direction that is cut.
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

/// An end that content runs into.
#[derive(Debug)]
pub(super) struct Deadline {
    end: End,
    timer: Lazy,
}

impl Deadline {
    pub(super) fn new(end: End) -> Self {
        let timer = Lazy::until(end.at);
        Self { end, timer }
    }

    /// The error when the end came, without waiting for it.
    pub(super) fn past(&self) -> Option<BodyError> {
        self.timer.is_past().then(|| self.end.cut())
    }

    /// Ready when the end came.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        self.timer.poll_expired(cx).map(|()| self.end.cut())
    }
}
