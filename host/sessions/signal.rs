//! The signal that ends an exchange from outside.
//!
//! It fires once and wakes everyone who holds it. It needs no task and no timer of its own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use uuid::Uuid;

use super::Ending;
use crate::record::Recorder;
use crate::server::{Due, Peer};

/// The sending half: ends one exchange. Only registries of open exchanges hold it.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    ending: OnceLock<Ending>,
    token: CancellationToken,
    peer: OnceLock<Arc<Peer>>,
    /// Closes the connection if its client keeps the end from being sent.
    due: OnceLock<Option<Due>>,
    /// Where the end is recorded, and for which decision.
    record: OnceLock<(Arc<Recorder>, Uuid)>,
}

impl Switch {
    /// Why the exchange must end; `None` until it must.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending.get().copied()
    }

    /// Makes the end be recorded for `decision`, which allowed the exchange.
    pub(crate) fn write_to(&self, recorder: &Arc<Recorder>, decision: Uuid) {
        // One exchange has one record.
        let _same = self.record.set((Arc::clone(recorder), decision));
    }

    /// Ends the exchange. Returns whether it had not been ended before.
    pub(crate) fn end(&self, ending: Ending) -> bool {
        let first = self.ending.set(ending).is_ok();
        if let Some(peer) = self.peer.get() {
            self.due.get_or_init(|| peer.due(Instant::now()));
        }
        self.token.cancel();
        if first && let Some((recorder, decision)) = self.record.get() {
            recorder.ended(*decision, ending.code());
        }
        first
    }
}

/// Tells an exchange that it must end at once, and why. Clones share one signal and are cheap.
#[derive(Clone)]
pub struct EndSignal(Arc<Switch>);

impl fmt::Debug for EndSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EndSignal").field(&self.ending()).finish()
    }
}

impl EndSignal {
    pub(crate) fn new(switch: &Arc<Switch>) -> Self {
        Self(switch.clone())
    }

    /// Why the exchange must end; `None` until it must.
    pub fn ending(&self) -> Option<Ending> {
        self.0.ending()
    }

    /// Waits until the exchange must end, perhaps forever. Cancel safe.
    pub async fn ended(&self) -> Ending {
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
    pub(crate) fn closes(&self, peer: &Arc<Peer>) {
        // One exchange has one peer.
        let _same = self.0.peer.set(peer.clone());
        if self.ending().is_some() {
            self.0.due.get_or_init(|| peer.due(Instant::now()));
        }
    }

    /// A signal and what ends it, for tests of later stages.
    #[cfg(test)]
    pub(crate) fn for_test() -> (impl FnOnce(Ending) + Send + Sync + 'static, Self) {
        let switch = Arc::new(Switch::default());
        let signal = Self::new(&switch);
        let end = move |ending| {
            switch.end(ending);
        };
        (end, signal)
    }
}

/// A signal in the form that response bodies poll.
pub(crate) struct Polled {
    signal: EndSignal,
    wait: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl fmt::Debug for Polled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.signal.fmt(f)
    }
}

impl Polled {
    pub(crate) fn new(signal: EndSignal) -> Self {
        let wait = Box::pin(signal.0.token.clone().cancelled_owned());
        Self { signal, wait }
    }

    /// The ending, if it has come. Does not wait.
    pub(crate) fn past(&self) -> Option<Ending> {
        self.signal.ending()
    }

    /// Ready when the exchange must end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
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
