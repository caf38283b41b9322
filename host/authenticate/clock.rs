//! What time it is.
//!
//! In: nothing. Out: wall time for claims, running time for ages. Never: a
//! second source of time in this room, so that tests own it.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The process's clock; in tests one that can be moved forward.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    #[cfg(test)]
    ahead: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl Clock {
    /// Seconds since 1970.
    pub(crate) fn seconds(&self) -> i64 {
        let seconds = jiff::Timestamp::now().as_second();
        seconds.saturating_add_unsigned(self.ahead())
    }

    /// Time since the process started; never goes back.
    pub(crate) fn running(&self) -> Duration {
        START.elapsed().saturating_add(Duration::from_secs(self.ahead()))
    }

    #[cfg(not(test))]
    fn ahead(&self) -> u64 {
        0
    }

    #[cfg(test)]
    fn ahead(&self) -> u64 {
        self.ahead.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Moves this clock and its clones forward.
    #[cfg(test)]
    pub(crate) fn advance(&self, by: Duration) {
        self.ahead.fetch_add(by.as_secs(), std::sync::atomic::Ordering::Relaxed);
    }
}
