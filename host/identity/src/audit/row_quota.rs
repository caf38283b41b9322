//! Limits how many entries per key get individual rows before they are only counted.
//!
//! Invariant: memory stays within a fixed bound, however many keys there are.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use super::buckets::AggregationKey;
use crate::sharded::lock;

/// Most keys tracked at once; entries of further keys get no individual rows.
const KEYS: usize = 10_000;

#[derive(Debug)]
pub(super) struct RowQuota {
    windows: Mutex<HashMap<AggregationKey, QuotaWindow>>,
    length: Duration,
    rows_per_key: u32,
}

#[derive(Debug)]
struct QuotaWindow {
    rows: u32,
    /// Uptime at which the key gets all its rows back.
    ends: Duration,
}

impl RowQuota {
    /// - `length`: how long rows count, from a key's first row on.
    /// - `rows_per_key`: most rows per key in that time.
    pub(super) fn new(length: Duration, rows_per_key: u32) -> Self {
        Self {
            windows: Mutex::default(),
            length,
            rows_per_key,
        }
    }

    /// Takes a row if one is left; returns whether it did.
    ///
    /// - `now`: uptime.
    pub(super) fn try_take(&self, key: AggregationKey, now: Duration) -> bool {
        let mut windows = lock(&self.windows);
        if windows.len() >= KEYS && !windows.contains_key(&key) {
            return false;
        }
        let ends = now.saturating_add(self.length);
        let window = windows.entry(key).or_insert(QuotaWindow { rows: 0, ends });
        if window.ends <= now {
            *window = QuotaWindow { rows: 0, ends };
        }
        let is_left = window.rows < self.rows_per_key;
        window.rows = window.rows.saturating_add(u32::from(is_left));
        is_left
    }

    pub(super) fn evict_expired(&self, now: Duration) {
        let mut windows = lock(&self.windows);
        windows.retain(|_, one| one.ends > now);
    }
}
