//! Counts entries of one kind in time buckets, and emits one event per key and bucket.
//!
//! Invariant: a count is kept until it was emitted, and a bucket counts as stored only once it is.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::sharded::Sharded;
use tollgate_store::AuditEvent;

const SHARDS: usize = 16;

/// How much earlier than a bucket's first entry a later one may be, since concurrent entries do
/// not read the clock in order.
const SKEW: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AggregationKey {
    /// Who makes the entries: a session, or the address of an unknown caller.
    pub(super) owner: String,
    pub(super) discriminator: String,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct KeyLimits {
    pub(super) total: usize,
    pub(super) per_owner: usize,
}

#[derive(Debug)]
pub(super) struct BucketEntry {
    key: AggregationKey,
    id: Uuid,
    /// Set once the bucket's row is in the store.
    pub(super) stored: Arc<OnceCell<()>>,
}

#[derive(Debug)]
struct Bucket {
    event: AuditEvent,
    /// The count in the event that was emitted last.
    emitted_count: u64,
    ends: Timestamp,
    stored: Arc<OnceCell<()>>,
}

#[derive(Debug, Default)]
struct Shard {
    buckets: HashMap<AggregationKey, Bucket>,
    open_keys: HashMap<String, usize>,
    /// Events of buckets that ended, with counts that were not emitted.
    ended: Vec<AuditEvent>,
}

#[derive(Debug)]
pub(super) struct Buckets {
    shards: Sharded<Shard>,
    open: AtomicUsize,
    limits: KeyLimits,
    length: Duration,
}

impl Buckets {
    /// - `length`: how long entries are counted together, from the first one on.
    pub(super) fn new(length: Duration, limits: KeyLimits) -> Self {
        Self {
            shards: Sharded::new(SHARDS),
            open: AtomicUsize::new(0),
            limits,
            length,
        }
    }

    /// Counts one entry; `first` makes the event if it is the first of its key. `None` if there
    /// are too many keys for a further one.
    pub(super) fn count(
        &self,
        key: AggregationKey,
        now: Timestamp,
        first: impl FnOnce() -> AuditEvent,
    ) -> Option<BucketEntry> {
        {
            let shard = self.shards.lock(&key.owner);
            let open_keys = shard.open_keys.get(&key.owner).copied().unwrap_or_default();
            // The lock is not held until the key is added, so callers at the same time may slightly exceed the limits.
            let is_full = open_keys >= self.limits.per_owner || self.open.load(Ordering::Relaxed) >= self.limits.total;
            if is_full && !shard.buckets.contains_key(&key) {
                return None;
            }
        }
        Some(self.count_unlimited(key, now, first))
    }

    /// As [`Buckets::count`] without a limit, for keys of which there are few.
    pub(super) fn count_unlimited(
        &self,
        key: AggregationKey,
        now: Timestamp,
        first: impl FnOnce() -> AuditEvent,
    ) -> BucketEntry {
        let mut shard = self.shards.lock(&key.owner);
        let shard = &mut *shard;
        if let Some(bucket) = shard.buckets.get_mut(&key) {
            // A bucket that is not in the store yet takes every entry: those who wait for its row find it by its id.
            if !bucket.is_over(now, self.length) || !bucket.stored.initialized() {
                bucket.event.count = bucket.event.count.saturating_add(1);
                bucket.event.last_at = now.max(bucket.event.last_at);
                return bucket.entry(key);
            }
            if let Some(bucket) = shard.buckets.remove(&key) {
                self.decrement_open(&mut shard.open_keys, &key.owner);
                let is_changed = bucket.event.count > bucket.emitted_count;
                shard.ended.extend(is_changed.then_some(bucket.event));
            }
        }
        let bucket = Bucket {
            event: first(),
            emitted_count: 0,
            ends: now.checked_add(self.length).unwrap_or(Timestamp::MAX),
            stored: Arc::default(),
        };
        let entry = bucket.entry(key.clone());
        match shard.open_keys.get_mut(&key.owner) {
            Some(open_keys) => *open_keys = open_keys.saturating_add(1),
            None => drop(shard.open_keys.insert(key.owner.clone(), 1)),
        }
        shard.buckets.insert(key, bucket);
        self.open.fetch_add(1, Ordering::Relaxed);
        entry
    }

    fn decrement_open(&self, open_keys: &mut HashMap<String, usize>, owner: &str) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(left) = open_keys.get_mut(owner) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                open_keys.remove(owner);
            }
        }
    }

    /// The event to store when a bucket is opened; `None` if the bucket is gone.
    pub(super) fn opening_event(&self, entry: &BucketEntry) -> Option<AuditEvent> {
        let mut shard = self.shards.lock(&entry.key.owner);
        let bucket = shard.buckets.get_mut(&entry.key);
        let bucket = bucket.filter(|bucket| bucket.event.id == entry.id)?;
        bucket.emitted_count = bucket.event.count;
        Some(bucket.event.clone())
    }

    /// Takes an entry back, because the store did not take the bucket's row.
    pub(super) fn undo_count(&self, entry: &BucketEntry) {
        let mut shard = self.shards.lock(&entry.key.owner);
        let Shard { buckets, open_keys, .. } = &mut *shard;
        let bucket = buckets.get_mut(&entry.key);
        let Some(bucket) = bucket.filter(|bucket| bucket.event.id == entry.id) else {
            return;
        };
        bucket.event.count = bucket.event.count.saturating_sub(1);
        if !bucket.stored.initialized() {
            // `opening_event` counted as emitted what was not stored.
            bucket.emitted_count = 0;
        }
        if bucket.event.count == 0 {
            buckets.remove(&entry.key);
            self.decrement_open(open_keys, &entry.key.owner);
        }
    }

    /// Returns every event whose count grew, and forgets buckets that ended.
    pub(super) fn drain_changed(&self, now: Timestamp) -> Vec<AuditEvent> {
        let mut events = Vec::new();
        for mut shard in self.shards.each() {
            let shard = &mut *shard;
            events.append(&mut shard.ended);
            shard.buckets.retain(|key, bucket| {
                let is_over = bucket.is_over(now, self.length);
                if !bucket.stored.initialized() {
                    // INVARIANT: the caller who waits for the row writes it first, so that no
                    // older state follows a newer one, and nobody passes before it is stored.
                    // Each caller who waits has a clone.
                    if Arc::strong_count(&bucket.stored) > 1 || !is_over {
                        return true;
                    }
                    // The callers who waited went away, perhaps before the store had the row, and
                    // no others will come.
                    bucket.emitted_count = 0;
                }
                if bucket.event.count > bucket.emitted_count {
                    bucket.emitted_count = bucket.event.count;
                    events.push(bucket.event.clone());
                }
                if is_over {
                    self.decrement_open(&mut shard.open_keys, &key.owner);
                }
                !is_over
            });
        }
        events
    }
}

impl Bucket {
    /// Whether its time is over, even if the clock was set back since.
    fn is_over(&self, now: Timestamp, length: Duration) -> bool {
        let latest = now.checked_add(length).unwrap_or(Timestamp::MAX);
        self.ends <= now || self.ends > latest.checked_add(SKEW).unwrap_or(Timestamp::MAX)
    }

    fn entry(&self, key: AggregationKey) -> BucketEntry {
        BucketEntry {
            key,
            id: self.event.id,
            stored: self.stored.clone(),
        }
    }
}
