//! The limits of one fetch, and its first error.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Error;
use super::error::sanitized;

/// The limits of one fetch, and the first error, if any.
#[derive(Debug)]
pub(super) struct FetchContext {
    url: String,
    deadline: Instant,
    time: Duration,
    left: AtomicU64,
    allowed: AtomicU64,
    interrupt: Arc<AtomicBool>,
    failure: Mutex<Option<Error>>,
}

impl FetchContext {
    pub(super) fn new(url: &str, (deadline, time): (Instant, Duration)) -> Self {
        Self {
            url: url.to_owned(),
            deadline,
            time,
            left: AtomicU64::new(0),
            allowed: AtomicU64::new(0),
            interrupt: Arc::new(AtomicBool::new(false)),
            failure: Mutex::new(None),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Set when time is over; the library checks it while it unpacks.
    pub(super) fn interrupt(&self) -> &AtomicBool {
        &self.interrupt
    }

    pub(super) fn interrupt_handle(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupt)
    }

    /// The deadline.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether it was interrupted.
    pub(super) fn is_over(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// Allows this many further bytes to be received.
    pub(super) fn allow(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Relaxed);
        self.allowed.store(bytes, Ordering::Relaxed);
    }

    /// Records the reason of a failure. Only the first is kept, because others follow from it.
    pub(super) fn record(&self, error: Error) {
        self.failure().get_or_insert(error);
    }

    /// Why the library gave up: the recorded reason, if there is one.
    pub(super) fn root_cause(&self, error: &(impl std::error::Error + ?Sized)) -> Error {
        if let Some(known) = self.failure().clone() {
            return known;
        }
        if self.is_over() || Instant::now() >= self.deadline {
            return self.timeout_error();
        }
        self.protocol_error(&with_causes(error))
    }

    pub(super) fn protocol_error(&self, reason: &str) -> Error {
        Error::Protocol {
            url: self.url.clone(),
            reason: sanitized(reason),
        }
    }

    pub(super) fn timeout_error(&self) -> Error {
        Error::Time {
            url: self.url.clone(),
            allowed: self.time,
        }
    }

    fn failure(&self) -> MutexGuard<'_, Option<Error>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an error and returns one to hand to the library.
    pub(super) fn record_as_io(&self, error: Error) -> io::Error {
        let text = error.to_string();
        self.record(error);
        io::Error::other(text)
    }

    pub(super) fn charge_received(&self, bytes: usize) -> io::Result<()> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let before = self.left.load(Ordering::Relaxed);
        let Some(left) = before.checked_sub(bytes) else {
            let allowed = self.allowed.load(Ordering::Relaxed);
            return Err(self.record_as_io(Error::TooLarge {
                url: self.url.clone(),
                what: "bytes received",
                observed: allowed.saturating_add(1),
                allowed,
            }));
        };
        self.left.store(left, Ordering::Relaxed);
        Ok(())
    }
}

/// The message of an error and its causes, without repetition.
pub(super) fn with_causes(error: &(impl std::error::Error + ?Sized)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(current) = cause {
        let more = current.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = current.source();
    }
    text
}
