//! Values behind many locks, so that callers with different keys rarely wait for each other.
//!
//! Invariant: no lock is held across an await, and no two of one value are held at once.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct Sharded<T> {
    shards: Box<[Mutex<T>]>,
    hasher: RandomState,
}

impl<T: Default> Sharded<T> {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
        }
    }

    #[expect(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        reason = "the remainder is below the length; the upper bits of a hash may go"
    )]
    pub(crate) fn lock(&self, key: &(impl Hash + ?Sized)) -> MutexGuard<'_, T> {
        let hash = self.hasher.hash_one(key) as usize;
        lock(&self.shards[hash % self.shards.len()])
    }

    /// Locks each value in turn.
    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.shards.iter().map(lock)
    }
}

/// Locks a value whose every state is sound, so that a panic elsewhere does not matter.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
