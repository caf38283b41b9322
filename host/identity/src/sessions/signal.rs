//! The signal that ends an exchange from outside.
//!
//! It fires once and wakes everyone who holds it. It needs no task and no timer of its own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::EndReason;

/// A client's connection on which the end of an exchange may have to be sent.
pub trait ClosableConnection: fmt::Debug + Send + Sync {
    /// Has the connection closed after a grace, unless the result is dropped before. `None` if
    /// the connection notices by itself that its exchanges ended.
    fn close_after_grace(self: Arc<Self>) -> Option<Box<dyn PendingClose>>;
}

/// The wait for an exchange to end on its connection. Dropping it says that the exchange ended.
pub trait PendingClose: fmt::Debug + Send + Sync {}

/// What is called once, when the exchange is ended.
type OnEnd = Box<dyn Fn(EndReason) + Send + Sync>;

/// The sending half: ends one exchange. Only registries of open exchanges hold it.
#[derive(Default)]
pub struct EndTrigger {
    ending: OnceLock<EndReason>,
    token: CancellationToken,
    connection: OnceLock<Arc<dyn ClosableConnection>>,
    /// Closes the connection if its client keeps the end from being sent.
    deadline: OnceLock<Option<Box<dyn PendingClose>>>,
    on_end: OnceLock<OnEnd>,
}

impl fmt::Debug for EndTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EndTrigger").field(&self.ending()).finish()
    }
}

impl EndTrigger {
    /// Why the exchange must end; `None` until it must.
    pub fn ending(&self) -> Option<EndReason> {
        self.ending.get().copied()
    }

    /// Sets what is called when the exchange is ended, such as to record it. Only the first
    /// call has an effect: one exchange has one record.
    pub fn on_end(&self, call: impl Fn(EndReason) + Send + Sync + 'static) {
        let _first = self.on_end.set(Box::new(call));
    }

    /// Ends the exchange. Returns whether it had not been ended before.
    pub fn end(&self, ending: EndReason) -> bool {
        let first = self.ending.set(ending).is_ok();
        if let Some(connection) = self.connection.get() {
            self.deadline.get_or_init(|| Arc::clone(connection).close_after_grace());
        }
        self.token.cancel();
        if first && let Some(call) = self.on_end.get() {
            call(ending);
        }
        first
    }
}

/// Tells an exchange that it must end at once, and why. Clones share one signal and are cheap.
#[derive(Clone)]
pub struct EndSignal(Arc<EndTrigger>);

impl fmt::Debug for EndSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EndSignal").field(&self.ending()).finish()
    }
}

impl EndSignal {
    /// The signal of what `switch` ends.
    pub fn new(end_trigger: &Arc<EndTrigger>) -> Self {
        Self(end_trigger.clone())
    }

    /// Why the exchange must end; `None` until it must.
    pub fn ending(&self) -> Option<EndReason> {
        self.0.ending()
    }

    /// Waits until the exchange must end, perhaps forever. Cancel safe.
    pub async fn ended(&self) -> EndReason {
        loop {
            self.0.token.cancelled().await;
            // INVARIANT: the ending is set before the token is cancelled.
            if let Some(ending) = self.ending() {
                return ending;
            }
        }
    }

    /// Sets the connection to close if the end cannot be sent on it because its client reads
    /// nothing.
    pub fn close_on_end(&self, connection: Arc<dyn ClosableConnection>) {
        // One exchange has one connection.
        let connection = self.0.connection.get_or_init(|| connection);
        if self.ending().is_some() {
            self.0
                .deadline
                .get_or_init(|| Arc::clone(connection).close_after_grace());
        }
    }

    /// A signal and what ends it, for tests of later stages.
    #[cfg(any(test, feature = "unchecked"))]
    pub fn for_test() -> (impl FnOnce(EndReason) + Send + Sync + 'static, Self) {
        let end_trigger = Arc::new(EndTrigger::default());
        let signal = Self::new(&end_trigger);
        let end = move |ending| {
            end_trigger.end(ending);
        };
        (end, signal)
    }
}

/// A signal in the form that response bodies poll.
pub struct PolledEndSignal {
    signal: EndSignal,
    wait: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl fmt::Debug for PolledEndSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.signal.fmt(f)
    }
}

impl PolledEndSignal {
    /// Polls `signal`.
    pub fn new(signal: EndSignal) -> Self {
        let wait = Box::pin(signal.0.token.clone().cancelled_owned());
        Self { signal, wait }
    }

    /// The ending, if it has come. Does not wait.
    pub fn past(&self) -> Option<EndReason> {
        self.signal.ending()
    }

    /// Ready when the exchange must end.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<EndReason> {
        // A future that was ready is not polled again.
        if let Some(ending) = self.past() {
            return Poll::Ready(ending);
        }
        match (self.wait.as_mut().poll(cx), self.past()) {
            (Poll::Ready(()), Some(ending)) => Poll::Ready(ending),
            (Poll::Ready(()) | Poll::Pending, _) => Poll::Pending,
        }
    }
}
