//! The limits of one fetch, and its first error.

use std::cell::{Cell, OnceCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::Error;
use crate::count;
use crate::error::sanitized;

#[derive(Debug)]
pub(crate) struct FetchContext {
    pub(crate) url: String,
    pub(crate) deadline: Instant,
    time: Duration,
    /// Bytes that may be received, and those that were.
    allowed: Cell<u64>,
    received: Cell<u64>,
    /// Set when time is over; the library checks it while it unpacks.
    pub(crate) interrupt: Arc<AtomicBool>,
    /// The first error. Others follow from it.
    failure: OnceCell<Error>,
}

impl FetchContext {
    pub(crate) fn new(url: &str, deadline: Instant, time: Duration) -> Self {
        Self {
            url: url.to_owned(),
            deadline,
            time,
            allowed: Cell::new(0),
            received: Cell::new(0),
            interrupt: Arc::default(),
            failure: OnceCell::new(),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }

    /// Allows this many further bytes to be received.
    pub(crate) fn allow(&self, bytes: u64) {
        self.allowed.set(bytes);
        self.received.set(0);
    }

    /// Why the library gave up: the recorded reason, if there is one.
    pub(crate) fn root_cause(&self, error: &(impl std::error::Error + ?Sized)) -> Error {
        match self.failure.get() {
            Some(known) => known.clone(),
            None if self.is_over() => self.timeout_error(),
            None => self.protocol_error(&with_causes(error)),
        }
    }

    pub(crate) fn protocol_error(&self, reason: &str) -> Error {
        Error::Protocol {
            url: self.url.clone(),
            reason: sanitized(reason),
        }
    }

    pub(crate) fn timeout_error(&self) -> Error {
        Error::Time {
            url: self.url.clone(),
            allowed: self.time,
        }
    }

    /// Records an error and returns one to hand to the library.
    pub(crate) fn record(&self, error: Error) -> io::Error {
        let text = error.to_string();
        let _ = self.failure.set(error);
        io::Error::other(text)
    }

    pub(crate) fn charge_received(&self, bytes: usize) -> io::Result<()> {
        let allowed = self.allowed.get();
        let received = self.received.get().saturating_add(count(bytes));
        self.received.set(received);
        let observed = received.min(allowed.saturating_add(1));
        Error::check_bound(&self.url, "bytes received", observed, allowed).map_err(|error| self.record(error))
    }
}

/// The message of an error and its causes, without repetition.
pub(crate) fn with_causes(error: &(impl std::error::Error + ?Sized)) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |&error| error.source()) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
