//! What goes on beside requests: counts reach the store, old events go.
//!
//! In: the clock. Out: rows. Never: a count given up because the store did not
//! take it at first.

use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;

use super::Audit;
use crate::clock::Clock;
use crate::store;

/// How long a count may wait for the store.
const WRITE: Duration = Duration::from_secs(1);

/// How often old events are removed.
const FORGET: Duration = Duration::from_hours(1);

/// How far this machine's clock and the database's may be apart.
const APART: Duration = Duration::from_mins(5);

/// Why nothing was removed, or not all.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Error {
    /// A clock that is wrong would remove what is to be kept.
    #[error("this machine's clock and the database's are {apart:?} apart, allowed are {APART:?}")]
    Clocks { apart: Duration },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Starts the tasks; they end with the last of the others.
pub(super) fn spawn(audit: &Arc<Audit>) {
    let (clock, wake) = (audit.clock.clone(), audit.wake.clone());
    tokio::spawn(write(Arc::downgrade(audit), clock.clone(), wake));
    tokio::spawn(forget(Arc::downgrade(audit), clock));
}

async fn write(audit: Weak<Audit>, clock: Clock, wake: Arc<Notify>) {
    let mut good = true;
    loop {
        if good {
            tokio::select! {
                () = clock.sleep(WRITE) => {}
                () = wake.notified() => {}
            }
        } else {
            clock.sleep(WRITE).await;
        }
        let Some(audit) = audit.upgrade() else { return };
        let written = audit.flush().await;
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

async fn forget_before(audit: &Audit, oldest: Timestamp, now: Timestamp) -> Result<(), Error> {
    agree(now, audit.store.time().await?)?;
    Ok(audit.store.forget_before(oldest, now).await?)
}

/// Whether time may decide what is removed.
///
/// - `theirs`: the database's, where it has a clock of its own.
fn agree(ours: Timestamp, theirs: Option<Timestamp>) -> Result<(), Error> {
    let apart = theirs.map_or(Duration::ZERO, |theirs| theirs.duration_since(ours).unsigned_abs());
    if apart > APART {
        return Err(Error::Clocks { apart });
    }
    Ok(())
}

async fn forget(audit: Weak<Audit>, clock: Clock) {
    loop {
        // Time that passes while old events go counts, too.
        let next = clock.running().saturating_add(FORGET);
        let now = clock.now();
        {
            let Some(audit) = audit.upgrade() else { return };
            let oldest = now.checked_sub(audit.times.keep).unwrap_or(Timestamp::MIN);
            if let Err(error) = forget_before(&audit, oldest, now).await {
                audit.metrics.access.store_failed("forget");
                tracing::error!(%error, "what is too old cannot be removed from the store");
            }
        }
        clock.sleep(next.saturating_sub(clock.running())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_far_apart_remove_nothing() {
        let now = Timestamp::UNIX_EPOCH;
        let (near, far) = (Duration::from_mins(5), Duration::from_mins(6));
        for theirs in [None, Some(now), Some(now + near), Some(now - near)] {
            assert_eq!(agree(now, theirs), Ok(()));
        }
        for theirs in [now + far, now - far] {
            assert_eq!(agree(now, Some(theirs)), Err(Error::Clocks { apart: far }));
        }
    }
}
