//! The signal that ends an exchange from outside.
//!
//! It fires once and wakes everyone who holds it. It needs neither a task nor a timer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{EndReason, TunnelTraffic};

/// A client's connection on which the end of an exchange may have to be sent.
pub trait ClosableConnection: fmt::Debug + Send + Sync {
    /// Schedules the close of the connection after a grace period. `None` if the connection notices
    /// by itself that its exchanges ended.
    fn close_after_grace(self: Arc<Self>) -> Option<Box<dyn PendingClose>>;
}

/// The scheduled close of a connection. Dropping it cancels the close: the exchange has ended.
pub trait PendingClose: fmt::Debug + Send + Sync {}

type OnEnd = Box<dyn Fn(EndReason) + Send + Sync>;

/// The sending half: ends one exchange. Only registries of open exchanges hold it.
#[derive(Default, derive_more::Debug)]
#[debug("EndTrigger({:?})", self.end_reason())]
pub struct EndTrigger {
    reason: OnceLock<EndReason>,
    token: CancellationToken,
    connection: OnceLock<Arc<dyn ClosableConnection>>,
    /// Closes the connection if its client keeps the end from being sent.
    pending_close: OnceLock<Option<Box<dyn PendingClose>>>,
    on_end: OnceLock<OnEnd>,
    /// What passes through the exchange, if it is a tunnel.
    pub(crate) traffic: TunnelTraffic,
}

impl EndTrigger {
    /// Why the exchange must end; `None` until it must.
    pub fn end_reason(&self) -> Option<EndReason> {
        self.reason.get().copied()
    }

    /// Sets what is called when the exchange is ended, such as to record it. Only the first
    /// call has an effect: one exchange has one record.
    pub fn on_end(&self, call: impl Fn(EndReason) + Send + Sync + 'static) {
        let _first = self.on_end.set(Box::new(call));
    }

    /// Ends the exchange. Returns whether it had not been ended before.
    pub fn end(&self, reason: EndReason) -> bool {
        let first = self.reason.set(reason).is_ok();
        if let Some(connection) = self.connection.get() {
            self.pending_close
                .get_or_init(|| Arc::clone(connection).close_after_grace());
        }
        self.token.cancel();
        if first && let Some(call) = self.on_end.get() {
            call(reason);
        }
        first
    }
}

/// Tells an exchange that it must end at once, and why. Clones share one signal and are cheap.
#[derive(Clone, Debug)]
pub struct EndSignal(Arc<EndTrigger>);

impl EndSignal {
    /// The signal of the exchange that `end_trigger` ends.
    pub fn new(end_trigger: &Arc<EndTrigger>) -> Self {
        Self(end_trigger.clone())
    }

    /// Why the exchange must end; `None` until it must.
    pub fn end_reason(&self) -> Option<EndReason> {
        self.0.end_reason()
    }

    /// Counts what passes through the exchange, if it is a tunnel.
    pub fn traffic(&self) -> &TunnelTraffic {
        &self.0.traffic
    }

    /// Waits until the exchange must end, perhaps forever. Cancel safe.
    pub async fn ended(&self) -> EndReason {
        loop {
            self.0.token.cancelled().await;
            // INVARIANT: the reason is set before the token is cancelled.
            if let Some(reason) = self.end_reason() {
                return reason;
            }
        }
    }

    /// Sets the connection to close if the end cannot be sent on it because its client reads
    /// nothing.
    pub fn close_on_end(&self, connection: Arc<dyn ClosableConnection>) {
        // One exchange has one connection.
        let connection = self.0.connection.get_or_init(|| connection);
        // An end that came before this call saw no connection to close.
        if self.end_reason().is_some() {
            self.0
                .pending_close
                .get_or_init(|| Arc::clone(connection).close_after_grace());
        }
    }

    /// A signal and a function that fires it, for tests of later stages.
    #[cfg(any(test, feature = "unchecked"))]
    pub fn for_test() -> (impl FnOnce(EndReason) + Send + Sync + 'static, Self) {
        let end_trigger = Arc::new(EndTrigger::default());
        let signal = Self::new(&end_trigger);
        let end = move |reason| {
            end_trigger.end(reason);
        };
        (end, signal)
    }
}

/// A signal in the form that response bodies poll.
#[derive(Debug)]
pub struct PolledEndSignal {
    signal: EndSignal,
    wait: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl PolledEndSignal {
    /// Polls `signal`.
    pub fn new(signal: EndSignal) -> Self {
        let wait = Box::pin(signal.0.token.clone().cancelled_owned());
        Self { signal, wait }
    }

    /// Why the exchange must end; `None` until it must.
    pub fn end_reason(&self) -> Option<EndReason> {
        self.signal.end_reason()
    }

    /// Ready when the exchange must end.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<EndReason> {
        // A future that was ready is not polled again.
        if let Some(reason) = self.end_reason() {
            return Poll::Ready(reason);
        }
        match (self.wait.as_mut().poll(cx), self.end_reason()) {
            (Poll::Ready(()), Some(reason)) => Poll::Ready(reason),
            (Poll::Ready(()) | Poll::Pending, _) => Poll::Pending,
        }
    }
}
