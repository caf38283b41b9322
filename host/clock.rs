//! What time it is.
//!
//! In: nothing. Out: wall time for claims and records, running time for ages.
//! Never: a second source of time in the rooms that use this one, so that tests
//! own it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The clock of one gateway; clones are the same clock. Tests move it forward.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Milliseconds this clock is ahead of the machine's.
    ahead: Arc<AtomicU64>,
    moved: Arc<watch::Sender<()>>,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            ahead: Arc::default(),
            moved: Arc::new(watch::Sender::new(())),
        }
    }
}

impl Clock {
    /// Wall time.
    pub fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        now.checked_add(self.ahead()).unwrap_or(now)
    }

    /// Seconds since 1970.
    pub fn seconds(&self) -> i64 {
        self.now().as_second()
    }

    /// Time since the process started; never goes back.
    pub fn running(&self) -> Duration {
        START.elapsed().saturating_add(self.ahead())
    }

    /// Waits until wall time is `end`, at once when it is past. Cancel safe.
    pub async fn sleep_until(&self, end: Timestamp) {
        let mut moved = self.moved.subscribe();
        loop {
            let left = end.duration_since(self.now());
            let Ok(left) = Duration::try_from(left) else { return };
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                // The sender lives in `self`.
                _ = moved.changed() => {}
            }
        }
    }

    /// Moves this clock and its clones forward, for tests of what takes minutes.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.ahead.fetch_add(by, Ordering::Relaxed);
        self.moved.send_replace(());
    }

    fn ahead(&self) -> Duration {
        Duration::from_millis(self.ahead.load(Ordering::Relaxed))
    }
}
