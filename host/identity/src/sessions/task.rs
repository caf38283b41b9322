//! Background tasks of sessions: they follow revocations by other processes, end exchanges whose
//! credentials expire, and store which sessions are active.
//!
//! Invariant: a revocation is not missed when the store does not answer for a while.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;

use super::{ACTIVE_WINDOW, SessionRegistry, before};
use crate::clock::Clock;
use tollgate_store as store;

// Revocations must take effect within a second.
const POLL: Duration = Duration::from_millis(300);

const REPORT_INTERVAL: Duration = Duration::from_secs(5);

pub(super) const STORE_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest sleep of the task that ends exchanges whose credentials expire.
const MAX_SLEEP: Duration = Duration::from_mins(1);

// As many as the store returns at once: fewer are the last page.
const PAGE: usize = 1_000;

const REREAD_INTERVAL: Duration = Duration::from_mins(5);

/// How far revocations were read. The store never adds one below a number it has given out.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    sequence: i64,
    /// Uptime at which they are read again from the first, since a store that was restored from an
    /// older copy may reuse numbers.
    reread_at: Duration,
}

impl SessionRegistry {
    /// Reads the revocations after the cursor, and refuses and ends their sessions.
    pub(super) async fn apply_new_revocations(&self, cursor: &mut Cursor) -> Result<(), store::Error> {
        let now = self.clock.uptime();
        let is_older = async || Ok(self.store.latest_revocation().await? < cursor.sequence);
        if now >= cursor.reread_at || is_older().await? {
            *cursor = Cursor {
                sequence: 0,
                reread_at: now.saturating_add(REREAD_INTERVAL),
            };
        }
        loop {
            let page = self.store.revocations_after(cursor.sequence).await?;
            for one in &page {
                self.apply_revocation(&one.session, one.until);
                cursor.sequence = one.sequence;
            }
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }
}

/// Starts the tasks; they end when only they hold the value.
pub(super) fn spawn(sessions: &Arc<SessionRegistry>, cursor: Cursor, grace: Duration) {
    let tasks = sessions.tasks.clone();
    let (sessions, clock) = (Arc::downgrade(sessions), sessions.clock.clone());
    let following = follow_revocations(sessions.clone(), clock.clone(), cursor, grace);
    tasks.spawn("revocations of sessions", following);
    tasks.spawn("ends of sessions", expire(sessions.clone(), clock.clone()));
    tasks.spawn("active sessions", report_active_sessions(sessions, clock));
}

async fn follow_revocations(sessions: Weak<SessionRegistry>, clock: Clock, mut cursor: Cursor, grace: Duration) {
    let mut health = StoreHealth::new("revocations cannot be read");
    // Uptime up to which all revocations are known.
    let mut known = clock.uptime();
    loop {
        clock.sleep(POLL).await;
        let Some(sessions) = sessions.upgrade() else { return };
        let queried_at = clock.uptime();
        let end = known.saturating_add(grace);
        // A query in flight when the grace period ends is given up then. After the grace period,
        // and after the process was suspended, each has its full time.
        let left = Some(end.saturating_sub(queried_at)).filter(|left| !left.is_zero());
        let limit = left.map_or(STORE_TIMEOUT, |left| left.min(STORE_TIMEOUT));
        let queries = async {
            sessions.apply_new_revocations(&mut cursor).await?;
            sessions.apply_locks().await
        };
        let result = with_timeout(limit, queries).await;
        match &result {
            Ok(()) => {
                known = queried_at;
                // Everything that happened meanwhile was read: exchanges may begin again.
                sessions.is_store_unavailable.store(false, Ordering::SeqCst);
            }
            Err(_) if clock.uptime() >= end => {
                if !sessions.is_store_unavailable() {
                    tracing::error!(
                        ?grace,
                        "the store is unavailable: streams are closed and nobody is let in"
                    );
                }
                sessions.fail_closed();
            }
            Err(_) => {}
        }
        health.note(&sessions, "revocations", &result);
    }
}

async fn expire(sessions: Weak<SessionRegistry>, clock: Clock) {
    loop {
        let Some(registry) = sessions.upgrade() else { return };
        let now = clock.now();
        registry.close(registry.table.expire(now));
        let rest = now.checked_add(MAX_SLEEP).unwrap_or(Timestamp::MAX);
        let next = registry.table.next_expiry().map_or(rest, |end| end.min(rest));
        let earlier_expiry = registry.table.earlier_expiry.clone();
        // While this task waits, it must not keep the registry alive.
        drop(registry);
        tokio::select! {
            () = clock.sleep_until(next) => {}
            () = earlier_expiry.notified() => {}
        }
    }
}

async fn report_active_sessions(sessions: Weak<SessionRegistry>, clock: Clock) {
    let mut health = StoreHealth::new("active sessions cannot be written");
    loop {
        clock.sleep(REPORT_INTERVAL).await;
        let Some(sessions) = sessions.upgrade() else { return };
        health.note(&sessions, "seen", &sessions.flush().await);
        let now = clock.now();
        sessions.table.forget(before(now, ACTIVE_WINDOW), now);
    }
}

pub(super) async fn with_timeout(
    limit: Duration,
    query: impl Future<Output = Result<(), store::Error>>,
) -> Result<(), store::Error> {
    let late = |_| store::Error::Failed(format!("no answer within {limit:?}"));
    timeout(limit, query).await.map_err(late).flatten()
}

/// Whether the store answers; logged once whenever that changes.
struct StoreHealth {
    good: bool,
    text: &'static str,
}

impl StoreHealth {
    fn new(text: &'static str) -> Self {
        Self { good: true, text }
    }

    fn note(&mut self, sessions: &SessionRegistry, operation: &'static str, result: &Result<(), store::Error>) {
        match result {
            Ok(()) if !self.good => tracing::info!("the store answers again"),
            Err(error) if self.good => tracing::error!(%error, "{}; trying again until it works", self.text),
            Ok(()) | Err(_) => {}
        }
        if result.is_err() {
            sessions.metrics.store.failed(operation);
        }
        self.good = result.is_ok();
    }
}
