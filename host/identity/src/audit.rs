//! The audit log of access: one entry per request, stored as rows.
//!
//! Reads of one kind share one row with a count per time bucket; those of one Secret by name have a row
//! for that Secret. Refusals get individual rows until there are many of one kind. Everything else gets
//! an individual row.
//!
//! Invariant: every entry is at least counted. An `exec` or a change that is let through is never only
//! counted, nor is a read of a Secret ever without its name.
//!
//! Security: a request whose row cannot be written is not let through.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use uuid::Uuid;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::sessions::table::EndedExchange;
use crate::sessions::{SessionHolder, SessionRegistry};
use crate::sharded::lock;
use tollgate_core::agent::AgentId;
use tollgate_core::attributes::Attributes;
use tollgate_core::session::AccessType;
use tollgate_runtime::tasks::Tasks;
use tollgate_store::{self as store, AuditEvent, Store};

mod buckets;
pub mod export;
mod row;
mod row_quota;
mod task;

use buckets::{AggregationKey, Buckets, KeyLimits};
use row::Aggregation;
use row_quota::RowQuota;

/// Most kinds of read counted separately at once. Beyond that, reads are counted per session and
/// agent.
const READS: KeyLimits = KeyLimits {
    total: 10_000,
    per_owner: 500,
};

/// Refusals of one session for one agent and reason that get individual rows within a bucket's
/// time. Further ones are counted, so that nobody can fill the disk with an expired credential.
const REFUSAL_ROWS_PER_KEY: u32 = 20;

/// As [`REFUSAL_ROWS_PER_KEY`], but for one session in all, since it may name any agent.
const REFUSAL_ROWS_PER_SESSION: u32 = 200;

/// Most kinds of refusal counted separately at once. Beyond that, refusals are counted per
/// session and reason.
const REFUSALS: KeyLimits = KeyLimits {
    total: 10_000,
    per_owner: 50,
};

/// Most kinds of refusal of unknown callers counted separately at once. Beyond that, they are
/// counted per reason, so that they cannot fill the disk.
const UNKNOWN_CALLER_LIMITS: KeyLimits = KeyLimits {
    total: 100,
    per_owner: 100,
};

const BATCH: usize = 250;

/// Whether access was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessOutcome {
    /// The request was let through.
    Allowed,
    /// The request was refused.
    Denied,
}

impl AccessOutcome {
    /// The action of the audit event.
    pub fn action(self) -> &'static str {
        match self {
            Self::Allowed => "access.allowed",
            Self::Denied => "access.denied",
        }
    }
}

/// One request, as far as it was processed.
#[derive(Clone, Copy, Debug)]
pub struct AccessEntry<'a> {
    /// Who the caller is; `None` for unknown callers. Made with `access.into()`.
    pub holder: Option<SessionHolder<'a>>,
    /// The agent the caller names; the holder's takes precedence.
    pub agent: Option<AgentId>,
    /// The kind of credential the caller sent; the holder's takes precedence.
    pub access_type: Option<AccessType>,
    /// What is requested; `None` if the request was refused before that was read.
    pub attributes: Option<&'a Attributes>,
    /// How it ended.
    pub outcome: AccessOutcome,
    /// The reason, a word from a fixed list, as in the decision record.
    pub reason: &'static str,
    /// The reason for operators: the rule, or what exactly was wrong. Contains no secret and no
    /// text of the caller. Only individual rows have it, counted ones do not.
    pub detail: Option<&'a str>,
    /// The client's address, as the kernel sees it.
    pub client: IpAddr,
    /// Id of the decision: the `Audit-ID` the cluster sees.
    pub audit_id: Uuid,
    /// The name the cluster sees; `None` if nobody is impersonated.
    pub impersonated: Option<&'a str>,
}

/// The durations of the audit log.
#[derive(Clone, Copy, Debug)]
pub struct AuditPeriods {
    /// How long reads of one kind are counted together.
    pub bucket: Duration,
    /// How long events are kept.
    pub keep: Duration,
    /// How long counts may wait for a store that does not take them. After that, reads are
    /// refused, too.
    pub grace: Duration,
}

/// The audit log.
#[derive(Debug)]
pub struct Audit {
    store: Arc<Store>,
    clock: Clock,
    periods: AuditPeriods,
    metrics: Arc<Metrics>,
    reads: Buckets,
    refusals: Buckets,
    unknown_callers: Buckets,
    refusal_quota: RowQuota,
    session_refusal_quota: RowQuota,
    /// Events of streams that were closed; bounded by how many were open.
    closed_streams: Mutex<Vec<AuditEvent>>,
    /// Events to be stored, by id, in their latest state; bounded by how many are counted and
    /// were closed.
    pending: tokio::sync::Mutex<BTreeMap<Uuid, AuditEvent>>,
    wake: Arc<Notify>,
    /// Whether counts have waited for longer than the grace period.
    is_stuck: AtomicBool,
    /// The tasks that write counts and remove old events.
    pub tasks: Tasks,
}

impl Audit {
    /// Starts the audit log: counts are written to the store every second, and old events are
    /// removed once an hour. Stops when the last clone is dropped; call [`Audit::flush`] before
    /// that.
    pub fn start(store: Arc<Store>, clock: Clock, periods: AuditPeriods, metrics: Arc<Metrics>) -> Arc<Self> {
        let audit = Arc::new(Self {
            store,
            clock,
            periods,
            metrics,
            reads: Buckets::new(periods.bucket, READS),
            refusals: Buckets::new(periods.bucket, REFUSALS),
            unknown_callers: Buckets::new(periods.bucket, UNKNOWN_CALLER_LIMITS),
            refusal_quota: RowQuota::new(periods.bucket, REFUSAL_ROWS_PER_KEY),
            session_refusal_quota: RowQuota::new(periods.bucket, REFUSAL_ROWS_PER_SESSION),
            closed_streams: Mutex::default(),
            pending: tokio::sync::Mutex::default(),
            wake: Arc::default(),
            is_stuck: AtomicBool::new(false),
            tasks: Tasks::default(),
        });
        task::spawn(&audit);
        audit
    }

    /// Writes an event for each stream that `sessions` ends before its time.
    pub fn record_closed_streams(self: &Arc<Self>, sessions: &SessionRegistry) {
        let audit = Arc::downgrade(self);
        sessions.on_stream_closed(move |stream| {
            if let Some(audit) = audit.upgrade() {
                audit.queue_closed_stream(&stream);
            }
        });
    }

    /// Records one request, in an individual row or counted with others, as its kind requires.
    ///
    /// Returns when the entry's own row, or the row it is counted in, is on disk. The count
    /// itself reaches the disk within about a second.
    ///
    /// # Errors
    /// The store failed; the caller must not let the request through.
    ///
    /// Cancel safe: a request that goes away may still be recorded.
    pub async fn record_access(&self, entry: AccessEntry<'_>) -> Result<(), store::Error> {
        let (buckets, key) = match row::aggregation(&entry) {
            // The guard takes a row from the quotas, so it must be asked only once.
            Aggregation::Refusal(key) if !self.has_row_left(&key) => (&self.refusals, key),
            Aggregation::Read(key) => (&self.reads, key),
            Aggregation::UnknownCaller(key) => (&self.unknown_callers, key),
            Aggregation::Individual | Aggregation::Refusal(_) => {
                return self.record(&[row::individual_event(&entry, self.clock.now())]).await;
            }
        };
        self.count(buckets, key, &entry).await
    }

    fn has_row_left(&self, key: &AggregationKey) -> bool {
        let session = AggregationKey {
            owner: key.owner.clone(),
            discriminator: String::new(),
        };
        let now = self.clock.uptime();
        // In this order, a refusal whose own kind has no row left takes none from its session.
        self.refusal_quota.try_take(key.clone(), now) && self.session_refusal_quota.try_take(session, now)
    }

    fn queue_closed_stream(&self, stream: &EndedExchange) {
        lock(&self.closed_streams).push(row::closed_stream_event(stream));
        self.wake.notify_one();
    }

    /// Writes everything that waits: current counts and closed streams.
    ///
    /// # Errors
    /// The store failed; what it did not take is kept for the next time.
    pub async fn flush(&self) -> Result<(), store::Error> {
        // Held until the end: of two flushes at once, one could write an older count over a newer one.
        let mut pending = self.pending.lock().await;
        let now = self.clock.now();
        let closed = std::mem::take(&mut *lock(&self.closed_streams));
        let counted = [&self.reads, &self.refusals, &self.unknown_callers].map(|buckets| buckets.drain_changed(now));
        for row_quota in [&self.refusal_quota, &self.session_refusal_quota] {
            row_quota.evict_expired(self.clock.uptime());
        }
        // INVARIANT: what was taken from the buckets is in `pending` before the next wait, so neither an error nor
        // a canceled flush loses it.
        for event in closed.into_iter().chain(counted.into_iter().flatten()) {
            pending.insert(event.id, event);
        }
        let gauge = &self.metrics.audit_pending;
        while !pending.is_empty() {
            gauge.set(i64::try_from(pending.len()).unwrap_or(i64::MAX));
            let batch: Vec<_> = pending.values().take(BATCH).cloned().collect();
            self.record(&batch).await?;
            for event in &batch {
                pending.remove(&event.id);
            }
        }
        gauge.set(0);
        Ok(())
    }

    /// Counts the entry in its bucket. On return, the bucket's row is on disk; the first caller
    /// writes it.
    async fn count(&self, buckets: &Buckets, key: AggregationKey, entry: &AccessEntry<'_>) -> Result<(), store::Error> {
        // INVARIANT: an open bucket lets nobody pass once its count could not be written for
        // longer than the grace period.
        if self.is_stuck.load(Ordering::Relaxed) {
            return Err(store::Error::Failed("counts have waited for too long".to_owned()));
        }
        let now = self.clock.now();
        let bucket_entry = match buckets.count(key, now, || row::aggregated_event(entry, now)) {
            Some(counted) => counted,
            // INVARIANT: the name of a Secret is not lost, however many somebody reads.
            None if row::is_secret_read(entry) => return self.record(&[row::individual_event(entry, now)]).await,
            // There are few keys beyond the limit: reasons are a fixed list, and callers cannot make
            // sessions here.
            None => buckets.count_unlimited(row::overflow_key(entry), now, || row::overflow_event(entry, now)),
        };
        if bucket_entry.stored.initialized() {
            return Ok(());
        }
        let store = || async {
            match buckets.opening_event(&bucket_entry) {
                Some(event) => self.record(&[event]).await,
                None => Ok(()),
            }
        };
        let stored = bucket_entry.stored.get_or_try_init(store).await.copied();
        if stored.is_err() {
            // The request fails instead, so the row must not count it.
            buckets.undo_count(&bucket_entry);
        }
        stored
    }

    async fn record(&self, events: &[AuditEvent]) -> Result<(), store::Error> {
        let recorded = self.store.record(events).await;
        match &recorded {
            Ok(()) => {
                self.metrics.audit_rows.inc_by(events.len() as u64);
            }
            Err(_) => self.metrics.store.failed("audit"),
        }
        recorded
    }
}

#[cfg(test)]
mod tests;
