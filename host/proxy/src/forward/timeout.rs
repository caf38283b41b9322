//! Idle timeouts that cost nothing while bytes flow. No timer is started for each frame: the timer
//! of an earlier wait keeps running and is moved only when it fires.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A timeout. A wait begins with the first [`LazyTimer::poll_expired`] after [`LazyTimer::stop`].
#[derive(Debug)]
pub(crate) struct LazyTimer {
    pub(crate) bound: Duration,
    deadline: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl LazyTimer {
    pub(crate) fn new(bound: Duration) -> Self {
        Self {
            bound,
            deadline: None,
            timer: None,
        }
    }

    /// A fixed end, regardless of what happens before.
    pub(crate) fn until(deadline: Instant) -> Self {
        Self {
            bound: Duration::ZERO,
            deadline: Some(deadline),
            timer: None,
        }
    }

    /// Ends the current wait, because something arrived.
    pub(crate) fn stop(&mut self) {
        self.deadline = None;
    }

    /// Whether the end came, without waiting for it.
    pub(crate) fn is_past(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    pub(crate) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A bound too long to count is none.
        let bound = self.bound;
        let Some(deadline) = self.deadline.or_else(|| Instant::now().checked_add(bound)) else {
            return Poll::Pending;
        };
        self.deadline = Some(deadline);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}
