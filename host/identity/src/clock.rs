//! The clock: wall time for claims and records, uptime for ages.
//!
//! Invariant: modules that use this clock have no other source of time, so that tests control it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;

/// Longest wait before wall time is checked again.
const RECHECK_INTERVAL: Duration = Duration::from_secs(3);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The clock of one gateway; clones are the same clock. Tests move it forward.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Milliseconds this clock is ahead of the machine's.
    advanced_ms: Arc<AtomicU64>,
    /// Milliseconds by which its wall time was set back.
    set_back_ms: Arc<AtomicU64>,
    moved: Arc<watch::Sender<()>>,
}

impl Clock {
    /// Wall time.
    pub fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        let back = Duration::from_millis(self.set_back_ms.load(Ordering::Relaxed));
        let now = now.checked_sub(back).unwrap_or(now);
        now.checked_add(self.advanced()).unwrap_or(now)
    }

    /// Wall time in seconds since 1970.
    pub fn unix_seconds(&self) -> i64 {
        self.now().as_second()
    }

    /// Time since a clock of this process was first asked; never goes back.
    pub fn uptime(&self) -> Duration {
        START.elapsed().saturating_add(self.advanced())
    }

    /// Waits for `time` by uptime, regardless of wall time. Cancel safe.
    pub async fn sleep(&self, time: Duration) {
        let end = self.uptime().saturating_add(time);
        self.wait(|| end.saturating_sub(self.uptime())).await;
    }

    /// Waits until wall time is `end`; returns at once if it is past.
    ///
    /// Never waits longer than the time left at the start, so a caller must check again if the
    /// clock may have been set back meanwhile. A clock that was set forward is noticed within 3
    /// s. Cancel safe.
    pub async fn sleep_until(&self, end: Timestamp) {
        let left = || Duration::try_from(end.duration_since(self.now())).unwrap_or_default();
        let latest = self.uptime().saturating_add(left());
        self.wait(|| left().min(latest.saturating_sub(self.uptime())).min(RECHECK_INTERVAL))
            .await;
    }

    async fn wait(&self, left: impl Fn() -> Duration) {
        // Before the time is read, so that no move in between is missed.
        let mut moved = self.moved.subscribe();
        loop {
            let left = left();
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

    /// Moves this clock and its clones forward, for tests.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.advanced_ms.fetch_add(by, Ordering::Relaxed);
        self.moved.send_replace(());
    }

    /// Sets wall time back, as an operator or NTP may. Uptime is not affected.
    #[cfg(test)]
    pub(crate) fn set_back(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.set_back_ms.fetch_add(by, Ordering::Relaxed);
        self.moved.send_replace(());
    }

    fn advanced(&self) -> Duration {
        Duration::from_millis(self.advanced_ms.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn intervals_do_not_depend_on_wall_time() {
        let clock = Clock::default();
        let mut sleep = Box::pin(clock.sleep(Duration::from_mins(1)));
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.set_back(Duration::from_hours(5));
        clock.advance(Duration::from_secs(59));
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_secs(1));
        sleep.await;
    }

    #[tokio::test]
    async fn setting_the_clock_back_does_not_prolong_a_wait() {
        let clock = Clock::default();
        let end = clock.now() + Duration::from_mins(1);
        let mut sleep = Box::pin(clock.sleep_until(end));
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.set_back(Duration::from_hours(5));
        clock.advance(Duration::from_secs(59));
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_secs(2));
        sleep.await;
        assert!(clock.now() < end, "the wait ends although `end` is not reached");
        let mut again = Box::pin(clock.sleep_until(end));
        assert!(again.as_mut().now_or_never().is_none());
        clock.advance(Duration::from_hours(5));
        again.await;
    }
}
