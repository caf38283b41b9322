//! The bounds of one fetch, and why it failed.
//!
//! In: a time, bytes that came. Out: whether there is more to be had, and the first
//! reason why not. Never: a bound that grows while its step goes on.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Error;
use super::error::quoted;

/// What one fetch may take, and why it failed.
#[derive(Debug)]
pub(super) struct Exchange {
    url: String,
    ends: Instant,
    time: Duration,
    left: AtomicU64,
    allowed: AtomicU64,
    interrupt: Arc<AtomicBool>,
    failure: Mutex<Option<Error>>,
}

impl Exchange {
    pub(super) fn new(url: &str, (ends, time): (Instant, Duration)) -> Self {
        Self {
            url: url.to_owned(),
            ends,
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

    /// Set when time is over; the library looks at it while it unpacks.
    pub(super) fn interrupt(&self) -> &AtomicBool {
        &self.interrupt
    }

    pub(super) fn interrupt_handle(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupt)
    }

    /// When its time is over.
    pub(super) fn ends(&self) -> Instant {
        self.ends
    }

    /// Whether it was interrupted.
    pub(super) fn is_over(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// Lets so many bytes be received from now on.
    pub(super) fn allow(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Relaxed);
        self.allowed.store(bytes, Ordering::Relaxed);
    }

    /// Remembers why; the first reason counts, for others follow of it.
    pub(super) fn record(&self, error: Error) {
        self.failure().get_or_insert(error);
    }

    /// Why the library gave up: our own reason, if we had one.
    pub(super) fn fail(&self, error: &(impl std::error::Error + ?Sized)) -> Error {
        if let Some(known) = self.failure().clone() {
            return known;
        }
        if self.is_over() || Instant::now() >= self.ends {
            return self.slow();
        }
        self.protocol(&with_causes(error))
    }

    pub(super) fn protocol(&self, reason: &str) -> Error {
        Error::Protocol {
            url: self.url.clone(),
            reason: quoted(reason),
        }
    }

    pub(super) fn slow(&self) -> Error {
        Error::Time {
            url: self.url.clone(),
            allowed: self.time,
        }
    }

    fn failure(&self) -> MutexGuard<'_, Option<Error>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an error and gives it to the library.
    pub(super) fn refuse(&self, error: Error) -> io::Error {
        let text = error.to_string();
        self.record(error);
        io::Error::other(text)
    }

    pub(super) fn take(&self, bytes: usize) -> io::Result<()> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let before = self.left.load(Ordering::Relaxed);
        let Some(left) = before.checked_sub(bytes) else {
            let allowed = self.allowed.load(Ordering::Relaxed);
            return Err(self.refuse(Error::TooLarge {
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

/// An error and what it came of, once each.
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
