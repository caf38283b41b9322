//! Computes when an exchange must end and why: the earliest of the configured limit, the end of the
//! caller's credential, and a signal from outside.
//!
//! Security: no exchange outlives its caller's credential or session.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::timeout::LazyTimer;
use super::{BodyError, Error};
use tollgate_identity::sessions::{EndReason, EndSignal, PolledEndSignal};

#[derive(Clone, Copy, Debug)]
pub(super) struct ExchangeDeadline {
    pub(super) at: Instant,
    cause: DeadlineCause,
}

#[derive(Clone, Copy, Debug)]
enum DeadlineCause {
    ExchangeTimeout {
        allowed: Duration,
    },
    /// The caller's credential ends. `decision` is the id of the decision that allowed the
    /// exchange.
    Credential {
        decision: Uuid,
    },
}

impl ExchangeDeadline {
    pub(super) fn total(allowed: Duration) -> Option<Self> {
        Self::after(allowed, DeadlineCause::ExchangeTimeout { allowed })
    }

    /// - `left`: time that the caller's credential has left.
    /// - `decision`: id of the decision that allowed the exchange.
    pub(super) fn credential(left: Duration, decision: Uuid) -> Option<Self> {
        Self::after(left, DeadlineCause::Credential { decision })
    }

    /// A duration too long to represent means no deadline.
    fn after(left: Duration, cause: DeadlineCause) -> Option<Self> {
        let at = Instant::now().checked_add(left)?;
        Some(Self { at, cause })
    }

    pub(super) fn error(self) -> Error {
        match self.cause {
            DeadlineCause::ExchangeTimeout { allowed } => Error::ExchangeTimeout(allowed),
            DeadlineCause::Credential { .. } => Error::Ended(EndReason::Expired),
        }
    }

    /// Why content is cut. The response's record is closed by then, so this logs it, once for each
    /// direction that is cut.
    fn body_error(self) -> BodyError {
        match self.cause {
            DeadlineCause::ExchangeTimeout { .. } => BodyError::ExchangeTimeout,
            DeadlineCause::Credential { decision } => {
                tracing::info!(target: "tollgate::decision", %decision, "content is cut: the caller's credential ended");
                BodyError::Ended(EndReason::Expired)
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct EndConditions {
    pub(super) deadline: Option<ExchangeDeadline>,
    pub(super) signal: Option<DecisionSignal>,
}

/// The signal from outside that ends one exchange.
#[derive(Clone, Debug)]
pub(super) struct DecisionSignal {
    pub(super) signal: EndSignal,
    pub(super) decision: Uuid,
}

fn signal_error(ending: EndReason, decision: Uuid) -> BodyError {
    let reason = ending.as_str();
    tracing::info!(target: "tollgate::decision", %decision, reason, "content is cut");
    BodyError::Ended(ending)
}

/// Polls for the end of an exchange while content flows.
#[derive(Debug)]
pub(super) struct EndWatcher {
    timed: Option<(ExchangeDeadline, LazyTimer)>,
    signal: Option<(PolledEndSignal, Uuid)>,
}

impl EndWatcher {
    /// `None` if nothing can end the content.
    pub(super) fn new(ends: EndConditions) -> Option<Box<Self>> {
        let EndConditions { deadline, signal } = ends;
        if deadline.is_none() && signal.is_none() {
            return None;
        }
        Some(Box::new(Self {
            timed: deadline.map(|deadline| (deadline, LazyTimer::until(deadline.at))),
            signal: signal.map(|signal| (PolledEndSignal::new(signal.signal), signal.decision)),
        }))
    }

    /// The error if the exchange has ended, without waiting for it.
    pub(super) fn past(&self) -> Option<BodyError> {
        if let Some((polled, decision)) = &self.signal
            && let Some(ending) = polled.end_reason()
        {
            return Some(signal_error(ending, *decision));
        }
        let (deadline, timer) = self.timed.as_ref()?;
        timer.is_past().then(|| deadline.body_error())
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        if let Some((polled, decision)) = &mut self.signal
            && let Poll::Ready(ending) = polled.poll(cx)
        {
            return Poll::Ready(signal_error(ending, *decision));
        }
        match &mut self.timed {
            Some((deadline, timer)) => timer.poll_expired(cx).map(|()| deadline.body_error()),
            None => Poll::Pending,
        }
    }
}
