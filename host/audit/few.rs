//! How many rows of their own entries get before they are counted.
//!
//! In: keys, time. Out: whether there is a row left. Never: more memory for more
//! keys than its bound.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::buckets::Key;

/// Keys that are remembered at once; entries of others get no rows of their own.
const KEYS: usize = 10_000;

/// Rows that each key may still have.
#[derive(Debug)]
pub(super) struct Few {
    taken: Mutex<HashMap<Key, Taken>>,
    length: Duration,
    most: u32,
}

#[derive(Debug)]
struct Taken {
    rows: u32,
    /// In running time, when a key has all its rows again.
    ends: Duration,
}

impl Few {
    /// - `length`: how long a row counts, from a key's first on.
    /// - `most`: rows of one key.
    pub(super) fn new(length: Duration, most: u32) -> Self {
        Self {
            taken: Mutex::default(),
            length,
            most,
        }
    }

    /// Takes a row, where one is left.
    ///
    /// - `now`: running time.
    pub(super) fn take(&self, key: Key, now: Duration) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = taken.len() >= KEYS;
        let ends = now.saturating_add(self.length);
        match taken.get_mut(&key) {
            Some(one) if one.ends > now => {
                let is_left = one.rows < self.most;
                one.rows = one.rows.saturating_add(u32::from(is_left));
                is_left
            }
            Some(one) => {
                *one = Taken { rows: 1, ends };
                true
            }
            None if is_full => false,
            None => {
                taken.insert(key, Taken { rows: 1, ends });
                true
            }
        }
    }

    /// Forgets keys that have all their rows again.
    pub(super) fn forget(&self, now: Duration) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|_, one| one.ends > now);
    }
}
