//! Entries of one kind, counted for a while.
//!
//! In: keys, time. Out: one event a key and bucket, with its count. Never: a count
//! that is forgotten before it was given out; a lock held across an await.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::store::AuditEvent;

/// Keys hash into these, so that entries do not wait for each other.
const SHARDS: usize = 16;

/// As many keys are counted as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// A place in a bucket.
#[derive(Debug)]
pub(super) struct Ticket {
    key: String,
    id: Uuid,
    /// Set once the bucket's row is in the store.
    pub(super) opened: Arc<OnceCell<()>>,
}

#[derive(Debug)]
struct Bucket {
    /// As it is now.
    event: AuditEvent,
    /// The count that was given out last.
    given: u64,
    ends: Timestamp,
    opened: Arc<OnceCell<()>>,
}

#[derive(Debug, Default)]
struct Shard {
    buckets: HashMap<String, Bucket>,
    /// Buckets that ended, with counts that were not given out.
    ended: Vec<AuditEvent>,
}

/// Buckets that are open.
#[derive(Debug)]
pub(super) struct Buckets {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    open: AtomicUsize,
    most: usize,
    length: Duration,
}

impl Buckets {
    /// - `length`: how long entries are counted together, from the first on.
    /// - `most`: keys that may be open at once.
    pub(super) fn new(length: Duration, most: usize) -> Self {
        Self {
            shards: Default::default(),
            hasher: RandomState::new(),
            open: AtomicUsize::new(0),
            most,
            length,
        }
    }

    /// Counts one entry; `first` makes the event when it is the first of its key.
    pub(super) fn count(
        &self,
        key: String,
        now: Timestamp,
        first: impl FnOnce() -> AuditEvent,
    ) -> Result<Ticket, Full> {
        let is_full = self.open.load(Ordering::Relaxed) >= self.most;
        if is_full && !self.shard(&key).buckets.contains_key(&key) {
            return Err(Full);
        }
        Ok(self.count_always(key, now, first))
    }

    /// As [`Buckets::count`], for keys of a fixed list.
    pub(super) fn count_always(&self, key: String, now: Timestamp, first: impl FnOnce() -> AuditEvent) -> Ticket {
        let mut shard = self.shard(&key);
        let Shard { buckets, ended } = &mut *shard;
        if let Some(bucket) = buckets.get_mut(&key) {
            // One that is not in the store yet takes whoever comes.
            if bucket.ends > now || !bucket.opened.initialized() {
                bucket.event.count = bucket.event.count.saturating_add(1);
                bucket.event.last_at = now.max(bucket.event.last_at);
                return bucket.ticket(key);
            }
            if let Some(bucket) = buckets.remove(&key) {
                self.open.fetch_sub(1, Ordering::Relaxed);
                ended.extend((bucket.event.count > bucket.given).then_some(bucket.event));
            }
        }
        let bucket = Bucket {
            event: first(),
            given: 0,
            ends: now.checked_add(self.length).unwrap_or(Timestamp::MAX),
            opened: Arc::default(),
        };
        let ticket = bucket.ticket(key.clone());
        buckets.insert(key, bucket);
        self.open.fetch_add(1, Ordering::Relaxed);
        ticket
    }

    /// The event a bucket is opened with. None when it has gone.
    pub(super) fn open(&self, ticket: &Ticket) -> Option<AuditEvent> {
        let mut shard = self.shard(&ticket.key);
        let bucket = shard.buckets.get_mut(&ticket.key);
        let bucket = bucket.filter(|bucket| bucket.event.id == ticket.id)?;
        bucket.given = bucket.event.count;
        Some(bucket.event.clone())
    }

    /// The store did not take the bucket's row: its entry does not count.
    pub(super) fn take_back(&self, ticket: &Ticket) {
        let mut shard = self.shard(&ticket.key);
        let bucket = shard.buckets.get_mut(&ticket.key);
        let Some(bucket) = bucket.filter(|bucket| bucket.event.id == ticket.id) else {
            return;
        };
        bucket.event.count = bucket.event.count.saturating_sub(1);
        if !bucket.opened.initialized() {
            bucket.given = 0;
        }
        if bucket.event.count == 0 {
            shard.buckets.remove(&ticket.key);
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Gives out every event whose count grew, and forgets buckets that ended.
    pub(super) fn collect(&self, now: Timestamp) -> Vec<AuditEvent> {
        let mut events = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let Shard { buckets, ended } = &mut *shard;
            events.append(ended);
            buckets.retain(|_, bucket| {
                if !bucket.opened.initialized() {
                    // INVARIANT: the row is first written by who waits for it, so
                    // that no older state follows a newer one.
                    if Arc::strong_count(&bucket.opened) > 1 {
                        return true;
                    }
                    // Who waited has gone; this is its writer now.
                    let _now_open = bucket.opened.set(());
                }
                if bucket.event.count > bucket.given {
                    bucket.given = bucket.event.count;
                    events.push(bucket.event.clone());
                }
                let stays = bucket.ends > now;
                if !stays {
                    self.open.fetch_sub(1, Ordering::Relaxed);
                }
                stays
            });
        }
        events
    }

    #[expect(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        reason = "the remainder is below the length; the upper bits of a hash may go"
    )]
    fn shard(&self, key: &str) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(key) as usize;
        lock(&self.shards[hash % SHARDS])
    }
}

impl Bucket {
    fn ticket(&self, key: String) -> Ticket {
        Ticket {
            key,
            id: self.event.id,
            opened: self.opened.clone(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
