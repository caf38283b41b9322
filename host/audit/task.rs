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

/// How long a count may wait for the store.
const WRITE: Duration = Duration::from_secs(1);

/// How often old events are removed.
const FORGET: Duration = Duration::from_hours(1);

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

async fn forget(audit: Weak<Audit>, clock: Clock) {
    loop {
        // Time that passes while old events go counts, too.
        let next = clock.running().saturating_add(FORGET);
        let now = clock.now();
        {
            let Some(audit) = audit.upgrade() else { return };
            let oldest = now.checked_sub(audit.times.keep).unwrap_or(Timestamp::MIN);
            if let Err(error) = audit.store.forget_before(oldest, now).await {
                audit.metrics.access.store_failed("forget");
                tracing::error!(%error, "what is too old cannot be removed from the store");
            }
        }
        clock.sleep(next.saturating_sub(clock.running())).await;
    }
}
