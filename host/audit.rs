//! What is written down about access, and how often.
//!
//! In: one entry a request. Out: rows of the store: reads of one kind in one
//! bucket with a count, refusals alone until there are many of one kind,
//! everything else alone. Never: an `exec` or a change let through that is only
//! counted; an entry that is not at least counted; a request let through whose row
//! could not be written.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use uuid::Uuid;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::sessions::{Closed, Holder, Sessions};
use crate::store::{self, AuditEvent, Store};
use tollgate_core::agent::AgentId;
use tollgate_core::attributes::Attributes;
use tollgate_core::session::AccessType;

mod buckets;
mod few;
mod row;
mod task;

use buckets::{Buckets, Full, Key, Most};
use few::Few;
use row::Counting;

/// Kinds of read that are told apart at once. Beyond it only sessions are.
const READS: Most = Most { all: 10_000, each: 500 };

/// Refusals of one session for one agent and reason that are rows of their own
/// within a bucket's time. Those beyond are counted, so that nobody whose
/// credential ended can fill the disk with it.
const REFUSALS_ALONE: u32 = 20;

/// As [`REFUSALS_ALONE`], of one session: it may name any agent.
const REFUSALS_OF_SESSION: u32 = 200;

/// Kinds of refusal that are told apart at once. Beyond it only sessions and
/// reasons are.
const REFUSALS: Most = Most { all: 10_000, each: 50 };

/// Kinds of refusal of strangers that are told apart at once. Beyond it only
/// reasons are, so that strangers cannot fill the disk.
const STRANGERS: Most = Most { all: 100, each: 100 };

/// Rows written at once.
const BATCH: usize = 250;

/// How access ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Let through.
    Allowed,
    /// Refused.
    Denied,
}

impl Outcome {
    /// The action of its event.
    pub fn action(self) -> &'static str {
        match self {
            Self::Allowed => "access.allowed",
            Self::Denied => "access.denied",
        }
    }
}

/// One request, as far as it came.
#[derive(Clone, Copy, Debug)]
pub struct AccessEntry<'a> {
    /// Who it is; none for callers nobody knows. `access.into()`.
    pub holder: Option<Holder<'a>>,
    /// The agent the caller claims to come for; the holder's counts first.
    pub agent: Option<AgentId>,
    /// What kind of credential the caller brought; the holder's counts first.
    pub access_type: Option<AccessType>,
    /// What is asked; none where it was refused before that was read.
    pub attributes: Option<&'a Attributes>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, as a word of a fixed list: the decision record's.
    pub reason: &'static str,
    /// Why, for operators: the rule, or what exactly was wrong. No secret, no
    /// text of the caller's. Rows of their own have it, counted ones do not.
    pub detail: Option<&'a str>,
    /// The client's address, as the kernel sees it.
    pub client: IpAddr,
    /// Id of the decision: the `Audit-ID` the cluster sees.
    pub audit_id: Uuid,
    /// Name the cluster sees; none when nobody is impersonated.
    pub impersonated: Option<&'a str>,
}

/// How long audit lasts.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// How long reads of one kind are counted together.
    pub bucket: Duration,
    /// How long events are kept.
    pub keep: Duration,
    /// How long counts may wait for a store that does not take them before reads are
    /// refused, too.
    pub grace: Duration,
}

/// Writes down who did what.
#[derive(Debug)]
pub struct Audit {
    store: Arc<Store>,
    clock: Clock,
    times: Times,
    metrics: Arc<Metrics>,
    reads: Buckets,
    refusals: Buckets,
    strangers: Buckets,
    /// Rows of their own that refusals of one kind may have.
    alone: Few,
    /// As `alone`, of one session.
    alone_of_session: Few,
    /// Streams that were closed. As many as were open at most.
    closed: Mutex<Vec<AuditEvent>>,
    /// What the store is still to take, by id: the latest state of each. As many
    /// as are counted and were closed at most.
    pending: tokio::sync::Mutex<BTreeMap<Uuid, AuditEvent>>,
    wake: Arc<Notify>,
    /// Whether counts have waited for longer than the grace period.
    is_stuck: AtomicBool,
}

impl Audit {
    /// Begins: counts go to the store every second, and what is too old goes once
    /// an hour. Ends with the last clone; [`Audit::flush`] first.
    pub fn start(store: Arc<Store>, clock: Clock, times: Times, metrics: Arc<Metrics>) -> Arc<Self> {
        let audit = Arc::new(Self {
            store,
            clock,
            times,
            metrics,
            reads: Buckets::new(times.bucket, READS),
            refusals: Buckets::new(times.bucket, REFUSALS),
            strangers: Buckets::new(times.bucket, STRANGERS),
            alone: Few::new(times.bucket, REFUSALS_ALONE),
            alone_of_session: Few::new(times.bucket, REFUSALS_OF_SESSION),
            closed: Mutex::default(),
            pending: tokio::sync::Mutex::default(),
            wake: Arc::default(),
            is_stuck: AtomicBool::new(false),
        });
        task::spawn(&audit);
        audit
    }

    /// Writes an event for each stream that `sessions` ends before its time.
    pub fn listen(self: &Arc<Self>, sessions: &Sessions) {
        let audit = Arc::downgrade(self);
        sessions.on_closed(move |closed| {
            if let Some(audit) = audit.upgrade() {
                audit.closed(&closed);
            }
        });
    }

    /// Writes one request down, as often as its kind asks for.
    ///
    /// Returns when the entry is on disk: its own row, or the row it is counted
    /// in. Such a count reaches the disk within about a second.
    ///
    /// # Errors
    /// The store failed: the request must not be let through.
    ///
    /// Cancel safe: a request that goes away may be written down all the same.
    pub async fn access(&self, entry: AccessEntry<'_>) -> Result<(), store::Error> {
        match row::counting(&entry) {
            Counting::Alone => self.alone(&entry).await,
            Counting::Refusal(key) if self.is_left(&key) => self.alone(&entry).await,
            Counting::Refusal(key) => self.count(&self.refusals, key, &entry).await,
            Counting::Read(key) => self.count(&self.reads, key, &entry).await,
            Counting::Stranger(key) => self.count(&self.strangers, key, &entry).await,
        }
    }

    /// Whether a refusal may have a row of its own.
    fn is_left(&self, key: &Key) -> bool {
        let session = Key {
            owner: key.owner.clone(),
            what: String::new(),
        };
        let now = self.clock.running();
        self.alone.take(key.clone(), now) && self.alone_of_session.take(session, now)
    }

    /// Writes an event for a stream that was ended, soon.
    pub fn closed(&self, closed: &Closed) {
        let event = row::closed(closed);
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        self.wake.notify_one();
    }

    /// Writes everything that waits: counts as they are now, closed streams.
    ///
    /// # Errors
    /// The store failed; what it did not take is kept for the next time.
    pub async fn flush(&self) -> Result<(), store::Error> {
        let mut pending = self.pending.lock().await;
        let now = self.clock.now();
        let closed = std::mem::take(&mut *self.closed.lock().unwrap_or_else(PoisonError::into_inner));
        let counted = [&self.reads, &self.refusals, &self.strangers].map(|buckets| buckets.collect(now));
        for few in [&self.alone, &self.alone_of_session] {
            few.forget(self.clock.running());
        }
        for event in closed.into_iter().chain(counted.into_iter().flatten()) {
            pending.insert(event.id, event);
        }
        let gauge = &self.metrics.access.audit_pending;
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

    async fn alone(&self, entry: &AccessEntry<'_>) -> Result<(), store::Error> {
        self.record(&[row::alone(entry, self.clock.now())]).await
    }

    /// Counts the entry in its bucket, whose row is on disk then.
    async fn count(&self, buckets: &Buckets, key: Key, entry: &AccessEntry<'_>) -> Result<(), store::Error> {
        // INVARIANT: an open bucket lets nobody pass for longer than the grace period
        // when its count cannot be written.
        if self.is_stuck.load(Ordering::Relaxed) {
            return Err(store::Error::Failed {
                detail: "counts have waited for too long".to_owned(),
            });
        }
        let now = self.clock.now();
        let ticket = match buckets.count(key, now, || row::counted(entry, now)) {
            Ok(ticket) => ticket,
            // Few: reasons are a fixed list, and sessions are made elsewhere.
            Err(Full) => buckets.count_always(row::rest_key(entry), now, || row::rest(entry, now)),
        };
        self.opened(buckets, ticket).await
    }

    /// Waits until the bucket's row is on disk; whoever is first writes it.
    async fn opened(&self, buckets: &Buckets, ticket: buckets::Ticket) -> Result<(), store::Error> {
        if ticket.opened.initialized() {
            return Ok(());
        }
        let open = || async {
            match buckets.open(&ticket) {
                Some(event) => self.record(&[event]).await,
                None => Ok(()),
            }
        };
        let opened = ticket.opened.get_or_try_init(open).await.copied();
        if opened.is_err() {
            buckets.take_back(&ticket);
        }
        opened
    }

    async fn record(&self, events: &[AuditEvent]) -> Result<(), store::Error> {
        let recorded = self.store.record(events).await;
        let metrics = &self.metrics.access;
        match &recorded {
            Ok(()) => {
                metrics
                    .audit_rows
                    .inc_by(u64::try_from(events.len()).unwrap_or(u64::MAX));
            }
            Err(_) => metrics.store_failed("audit"),
        }
        recorded
    }
}

#[cfg(test)]
mod tests;
