//! What the store of repositories shares with the threads of its fetches.
//!
//! Invariant: no lock is held while reading from the network or the disk.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::cache::Cache;
use crate::disk::{DiskQuota, FetchDirectory};
use crate::fetch_context::FetchContext;
use crate::in_flight::InFlightFetches;
use crate::{Error, MAX_UNPACKING_BYTES};
use tollgate_config::{GitCache, GitLimits};

/// How often a waiting request checks whether its client still waits, without which the fetch
/// itself goes on, and a fetch whether there is memory to unpack it.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What the store shares with the threads of its fetches.
#[derive(Debug)]
pub(crate) struct StoreInner {
    pub(crate) limits: GitLimits,
    pub(crate) unused_ttl: Duration,
    pub(crate) fetch_directory: FetchDirectory,
    pub(crate) quota: Arc<DiskQuota>,
    state: Mutex<State>,
    pub(crate) changed: Condvar,
    /// A permit for each byte of memory that fetches may use for unpacking.
    unpacking: Semaphore,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) cache: Cache,
    pub(crate) in_flight: InFlightFetches,
}

impl StoreInner {
    /// Creates an empty folder, as [`RepositoryStore::new`](crate::RepositoryStore::new) says.
    pub(crate) fn new(limits: GitLimits, cache: &GitCache) -> Result<Self, Error> {
        let parent = cache.directory.clone().unwrap_or_else(std::env::temp_dir);
        Ok(Self {
            limits,
            unused_ttl: cache.unused_ttl,
            fetch_directory: FetchDirectory::make(&parent)?,
            quota: DiskQuota::new(cache.bytes),
            state: Mutex::default(),
            changed: Condvar::new(),
            unpacking: Semaphore::new(usize::try_from(MAX_UNPACKING_BYTES).unwrap_or(Semaphore::MAX_PERMITS)),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a cached commit to free disk space. Returns whether there was one.
    pub(crate) fn evict(&self) -> bool {
        // Dropped outside the lock.
        let evicted = self.state().cache.evict();
        evicted.is_some()
    }

    /// Removes all cached commits that nobody reads. Returns whether there were any.
    pub(crate) fn evict_all(&self) -> bool {
        let evicted = self.evict();
        while self.evict() {}
        evicted
    }

    /// Waits for a change, for at most one [`POLL_INTERVAL`].
    pub(crate) fn wait<'s>(&'s self, state: MutexGuard<'s, State>, until: Instant) -> MutexGuard<'s, State> {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout(state, left.min(POLL_INTERVAL));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until there is memory to unpack `needed` bytes at once.
    pub(crate) fn reserve_unpacking(&self, needed: u64, context: &FetchContext) -> Result<SemaphorePermit<'_>, Error> {
        Error::check_bound(&context.url, "bytes to unpack it in", needed, MAX_UNPACKING_BYTES)?;
        let needed = u32::try_from(needed).unwrap_or(u32::MAX);
        loop {
            if let Ok(reserved) = self.unpacking.try_acquire_many(needed) {
                return Ok(reserved);
            }
            if context.is_over() {
                return Err(context.timeout_error());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
