//! Background tasks of the audit log: they write counts to the store and remove old events.
//!
//! Invariant: a count the store did not take is tried again, not dropped.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;

use super::Audit;
use crate::clock::Clock;
use tollgate_store as store;

const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

const RETENTION_INTERVAL: Duration = Duration::from_hours(1);

/// How far this machine's clock and the database's may differ.
const MAX_CLOCK_SKEW: Duration = Duration::from_mins(5);

/// How far time may leap from one removal to the next. A longer pause is made up for gradually.
const LEAP: Duration = Duration::from_hours(24);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// The clocks differ; a wrong one would remove events that must be kept.
    #[error("this machine's clock and the database's are {apart:?} apart, at most {MAX_CLOCK_SKEW:?} is allowed")]
    ClockSkew { apart: Duration },
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Starts the tasks; they end when only they hold the value.
pub(super) fn spawn(audit: &Arc<Audit>) {
    let (clock, wake) = (audit.clock.clone(), audit.wake.clone());
    let tasks = &audit.tasks;
    tasks.spawn("audit writer", write(Arc::downgrade(audit), clock.clone(), wake));
    tasks.spawn("audit retention", run_retention(Arc::downgrade(audit), clock));
}

async fn write(audit: Weak<Audit>, clock: Clock, wake: Arc<Notify>) {
    let mut good = true;
    // Uptime when the last flush began that left nothing waiting.
    let mut written_at = clock.uptime();
    loop {
        tokio::select! {
            () = clock.sleep(FLUSH_INTERVAL) => {}
            // While the store fails, only the interval leads to another attempt, and not each stream that is closed.
            () = wake.notified(), if good => {}
        }
        let Some(audit) = audit.upgrade() else { return };
        let begun = clock.uptime();
        let written = audit.flush().await;
        if written.is_ok() {
            written_at = begun;
        }
        let waited = clock.uptime().saturating_sub(written_at);
        let is_stuck = written.is_err() && waited >= audit.periods.grace;
        audit.is_stuck.store(is_stuck, Ordering::Relaxed);
        match &written {
            Ok(()) if !good => tracing::info!("audit events are written again"),
            Err(error) if good => {
                tracing::error!(%error, "audit events cannot be written; trying again until it works");
            }
            Ok(()) | Err(_) => {}
        }
        good = written.is_ok();
    }
}

/// Removes events that are too old.
///
/// - `ran`: how long this process has run since the last time.
pub(super) async fn apply_retention(audit: &Audit, now: Timestamp, ran: Duration) -> Result<(), Error> {
    check_clock_skew(now, audit.store.time().await?)?;
    let reached = audit.store.time_watermark().await?.unwrap_or(now);
    let time = plausible_time(now, reached, ran);
    if time < now {
        let behind = now.duration_since(time).unsigned_abs();
        tracing::warn!(
            ?behind,
            "this machine's clock is far ahead of what the store has seen; what is too old is removed later"
        );
    }
    let oldest = time.checked_sub(audit.periods.keep).unwrap_or(Timestamp::MIN);
    audit.store.delete_expired(oldest, time).await?;
    // Never back: the return of a clock that was set back would look like a leap.
    Ok(audit.store.advance_time_watermark(time.max(reached)).await?)
}

/// The time to assume for removals. Removed rows do not come back when a clock that was years
/// ahead is corrected, so a leap is not believed: the assumed time then advances twice as fast as
/// the process runs, until it has caught up.
fn plausible_time(now: Timestamp, reached: Timestamp, ran: Duration) -> Timestamp {
    let near = reached.checked_add(LEAP).unwrap_or(Timestamp::MAX);
    if now <= near {
        return now;
    }
    let made_up = reached.checked_add(ran.saturating_mul(2)).unwrap_or(Timestamp::MAX);
    now.min(made_up)
}

/// Checks that the clocks agree, so that time may decide what is removed.
///
/// - `theirs`: the database's time, if it has a separate clock.
fn check_clock_skew(ours: Timestamp, theirs: Option<Timestamp>) -> Result<(), Error> {
    let apart = theirs.map_or(Duration::ZERO, |theirs| theirs.duration_since(ours).unsigned_abs());
    if apart > MAX_CLOCK_SKEW {
        return Err(Error::ClockSkew { apart });
    }
    Ok(())
}

async fn run_retention(audit: Weak<Audit>, clock: Clock) {
    let mut last = clock.uptime();
    loop {
        // The time that the removal takes counts, too.
        let begun = clock.uptime();
        let next = begun.saturating_add(RETENTION_INTERVAL);
        {
            // Only in this block, because the sleep must not keep the audit log alive.
            let Some(audit) = audit.upgrade() else { return };
            if let Err(error) = apply_retention(&audit, clock.now(), begun.saturating_sub(last)).await {
                audit.metrics.store.failed("forget");
                tracing::error!(%error, "what is too old cannot be removed from the store");
            }
        }
        last = begun;
        clock.sleep(next.saturating_sub(clock.uptime())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_skew_above_the_limit_is_an_error() {
        let now = Timestamp::UNIX_EPOCH;
        let (near, far) = (Duration::from_mins(5), Duration::from_mins(6));
        for theirs in [None, Some(now), Some(now + near), Some(now - near)] {
            assert_eq!(check_clock_skew(now, theirs), Ok(()));
        }
        for theirs in [now + far, now - far] {
            assert_eq!(
                check_clock_skew(now, Some(theirs)),
                Err(Error::ClockSkew { apart: far })
            );
        }
    }

    #[test]
    fn a_leap_of_time_is_made_up_for_and_not_believed() {
        let reached = Timestamp::UNIX_EPOCH;
        let hour = Duration::from_hours(1);
        let years = reached + 20_000 * hour;
        for (now, ran, time) in [
            (reached - hour, Duration::ZERO, reached - hour),
            (reached, Duration::ZERO, reached),
            (reached + LEAP, Duration::ZERO, reached + LEAP),
            (years, Duration::ZERO, reached),
            (years, hour, reached + 2 * hour),
            (reached + 30 * hour, 20 * hour, reached + 30 * hour),
        ] {
            assert_eq!(plausible_time(now, reached, ran), time, "{now} after {ran:?}");
        }
    }
}
