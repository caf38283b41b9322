//! The store of fetched repositories, shared by all requests. Each request gets a
//! [`RepositoryReader`].
//!
//! Invariant: no lock is held while reading from the network or the disk.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::cache::{Cache, Checkout};
use super::disk::{DiskQuota, FetchDirectory};
use super::error::sanitized;
use super::fetch_context::FetchContext;
use super::in_flight::{FetchKey, InFlightFetches};
use super::location::Location;
use super::permission::{AllowedRepository, allowed_repository};
use super::tree::CommitTree;
use super::{Error, MAX_PATH_BYTES, MAX_UNPACKING_BYTES, fetch, local};
use crate::inputs::InputError;
use crate::{Exceeded, GenerationBudget, GitTree, Repositories};
use tollgate_config::{GitCache, GitLimits};
use tollgate_objects::Resources;

/// How often a waiting request checks whether its client still waits, without which the fetch
/// itself goes on, and a fetch whether there is memory to unpack it.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The repositories of all requests: what was fetched, and what is being fetched. There is one
/// store for the process, and its folder is removed with it.
#[derive(Debug)]
pub struct RepositoryStore {
    patterns: Vec<String>,
    shared: Arc<StoreInner>,
}

/// What the store shares with the threads of its fetches.
#[derive(Debug)]
pub(super) struct StoreInner {
    pub(super) limits: GitLimits,
    unused_ttl: Duration,
    pub(super) fetch_directory: FetchDirectory,
    pub(super) quota: Arc<DiskQuota>,
    state: Mutex<State>,
    pub(super) changed: Condvar,
    /// A permit for each byte of memory that fetches may use for unpacking.
    unpacking: Semaphore,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) cache: Cache,
    pub(super) in_flight: InFlightFetches,
}

impl StoreInner {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a cached commit to free disk space. Returns whether there was one.
    pub(super) fn evict(&self) -> bool {
        // Dropped outside the lock.
        let evicted = self.state().cache.evict();
        evicted.is_some()
    }

    /// Removes all cached commits that nobody reads. Returns whether there were any.
    pub(super) fn evict_all(&self) -> bool {
        let evicted = self.evict();
        while self.evict() {}
        evicted
    }

    /// Waits for a change, for at most one [`POLL_INTERVAL`].
    fn wait<'s>(&'s self, state: MutexGuard<'s, State>, until: Instant) -> MutexGuard<'s, State> {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout(state, left.min(POLL_INTERVAL));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until there is memory to unpack `needed` bytes at once.
    pub(super) fn reserve_unpacking(&self, needed: u64, context: &FetchContext) -> Result<SemaphorePermit<'_>, Error> {
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

impl Drop for RepositoryStore {
    fn drop(&mut self) {
        // Fetches in progress also hold the folder, and may outlive the process's orderly
        // shutdown.
        if let Err(error) = std::fs::remove_dir_all(self.folder()) {
            tracing::warn!(%error, "what was fetched of repositories cannot be removed");
        }
    }
}

impl RepositoryStore {
    /// Creates an empty store in the folder of `cache`, by default below the system's folder for
    /// temporary files.
    ///
    /// - `patterns`: `applicationSets.repositories`.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn new(limits: GitLimits, cache: &GitCache, patterns: &[String]) -> Result<Self, InputError> {
        let parent = cache.directory.clone().unwrap_or_else(std::env::temp_dir);
        Ok(Self {
            patterns: patterns.to_vec(),
            shared: Arc::new(StoreInner {
                limits,
                unused_ttl: cache.unused_ttl,
                fetch_directory: FetchDirectory::make(&parent)?,
                quota: DiskQuota::new(cache.bytes),
                state: Mutex::default(),
                changed: Condvar::new(),
                unpacking: Semaphore::new(usize::try_from(MAX_UNPACKING_BYTES).unwrap_or(Semaphore::MAX_PERMITS)),
            }),
        })
    }

    /// Returns a reader for a request that uses `resources`, for a set of `project` (its
    /// `spec.template.spec.project`; empty if that is templated, in which case only Secrets of no
    /// project are used).
    pub fn reader<'r>(&'r self, resources: &'r Resources, project: &'r str) -> RepositoryReader<'r> {
        RepositoryReader {
            store: self,
            resources,
            project,
        }
    }

    /// The private folder of fetched repositories.
    pub fn folder(&self) -> &Path {
        self.shared.fetch_directory.path()
    }

    /// Number of fetches started since the process started.
    pub fn fetches(&self) -> u64 {
        self.shared.state().in_flight.started_count
    }

    fn open(
        &self,
        permitted: &AllowedRepository,
        revision: &str,
        budget: &GenerationBudget,
    ) -> Result<CommitTree, Error> {
        let revision = match revision.trim() {
            "" => "HEAD",
            named => named,
        };
        // The revision is cached, and repeated in messages.
        if revision.len() > MAX_PATH_BYTES {
            let hint = "; it is longer than any name";
            return Err(Error::revision(&permitted.url, &sanitized(revision), hint));
        }
        if let Location::Local(path) = &permitted.location {
            return local::open(permitted, (path, &self.patterns), revision);
        }
        CommitTree::of(self.fetched(permitted, revision, budget)?, &permitted.url)
    }

    /// The checkout of a revision; waits for a fetch if necessary.
    fn fetched(
        &self,
        permitted: &AllowedRepository,
        revision: &str,
        budget: &GenerationBudget,
    ) -> Result<Arc<Checkout>, Error> {
        let key = FetchKey::new(permitted, revision);
        let old = self.shared.state().cache.expire(self.shared.unused_ttl);
        drop(old);
        if let Some(known) = self.shared.state().cache.lookup(&key, self.shared.limits.revision_ttl) {
            return known;
        }
        let waited = budget.release_while(|| self.waited(permitted, key, budget));
        waited.unwrap_or_else(|_| {
            let url = permitted.url.clone();
            let allowed = budget.limits().time;
            Err(Error::Time { url, allowed })
        })
    }

    /// Waits for the checkout of a revision: from a fetch that another request started, or from a
    /// new one.
    fn waited(
        &self,
        permitted: &AllowedRepository,
        key: FetchKey,
        budget: &GenerationBudget,
    ) -> Result<Arc<Checkout>, Error> {
        let mut state = self.shared.state();
        let fetch = loop {
            check_not_cancelled(&permitted.url, budget)?;
            // Another request's fetch may have ended meanwhile.
            if let Some(known) = state.cache.lookup(&key, self.shared.limits.revision_ttl) {
                return known;
            }
            if let Some(fetch) = state.in_flight.by_key.get(&key) {
                break Arc::clone(fetch);
            }
            if state.in_flight.has_capacity(&key) {
                let fetch = state.in_flight.begin(&key);
                // Ending a fetch takes the lock, and the fetch may end at once.
                drop(state);
                fetch::begin(&self.shared, (key, permitted.clone()), &fetch);
                state = self.shared.state();
                break fetch;
            }
            if Instant::now() >= budget.deadline() {
                let running = state.in_flight.by_key.len();
                let url = permitted.url.clone();
                return Err(Error::Busy { url, running });
            }
            state = self.shared.wait(state, budget.deadline());
        };
        // A fetch ends by itself. The wait lasts a little longer, so that the caller gets the
        // fetch's own, more precise error.
        let gives_up = fetch.started_at + self.shared.limits.time + fetch::GRACE;
        let until = gives_up.min(budget.deadline());
        loop {
            if let Some(outcome) = fetch.outcome.get() {
                return outcome.clone();
            }
            check_not_cancelled(&permitted.url, budget)?;
            if Instant::now() >= until {
                let allowed = self.shared.limits.time.min(budget.limits().time);
                let url = permitted.url.clone();
                return Err(Error::Time { url, allowed });
            }
            state = self.shared.wait(state, until);
        }
    }
}

/// The repositories one request may read. Blocks; call it off the runtime.
#[derive(Clone, Copy, Debug)]
pub struct RepositoryReader<'r> {
    store: &'r RepositoryStore,
    resources: &'r Resources,
    project: &'r str,
}

impl Repositories for RepositoryReader<'_> {
    fn open(&self, url: &str, revision: &str, budget: &GenerationBudget) -> Result<Box<dyn GitTree>, InputError> {
        let permitted = allowed_repository(self.resources, &self.store.patterns, (self.project, url))?;
        Ok(Box::new(self.store.open(&permitted, revision, budget)?))
    }
}

/// Fails if nobody waits for the result any more. A deadline that has passed is reported
/// elsewhere, with a more precise error.
fn check_not_cancelled(url: &str, budget: &GenerationBudget) -> Result<(), Error> {
    match budget.check_deadline() {
        Err(Exceeded::Cancelled) => Err(Error::Cancelled { url: url.to_owned() }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Checkout, Error, FetchKey, RepositoryStore, allowed_repository};
    use crate::GenerationBudget;
    use tollgate_config::GenerationLimits;
    use tollgate_config::{GitCache, GitLimits};
    use tollgate_objects::Resources;

    const URL: &str = "https://git.example/app";

    fn fetch(store: &RepositoryStore, budget: &GenerationBudget) -> Result<Arc<Checkout>, Error> {
        let permitted = allowed_repository(&Resources::default(), &store.patterns, ("", URL)).unwrap();
        store.fetched(&permitted, "main", budget)
    }

    /// A store in which another request's fetch of the same revision is in progress, and a
    /// function that ends that fetch.
    fn busy() -> (RepositoryStore, fn(&RepositoryStore)) {
        let store = RepositoryStore::new(
            GitLimits::default(),
            &GitCache::default(),
            &["https://git.example/*".to_owned()],
        )
        .unwrap();
        store.shared.state().in_flight.begin(&fetch_key());
        let end = |store: &RepositoryStore| {
            let url = "ended".to_owned();
            store
                .shared
                .state()
                .in_flight
                .end(&fetch_key(), Err(Error::Absent { url }));
            store.shared.changed.notify_all();
        };
        (store, end as fn(&RepositoryStore))
    }

    #[test]
    fn a_revision_that_is_too_long_is_not_fetched() {
        let (store, _end) = busy();
        let permitted = allowed_repository(&Resources::default(), &store.patterns, ("", URL)).unwrap();
        let budget = GenerationBudget::new(GenerationLimits::default());
        budget.cancel();
        let open = |length: usize| store.open(&permitted, &"x".repeat(length), &budget).unwrap_err();
        assert!(
            matches!(open(super::MAX_PATH_BYTES), Error::Cancelled { .. }),
            "a revision of this length is fetched"
        );
        let refused = open(super::MAX_PATH_BYTES + 1).to_string();
        assert!(
            refused.contains("longer than any name") && refused.len() < 600,
            "{refused}"
        );
    }

    /// The fetch never ends here. Without a check of the budget this would wait for its whole time
    /// and return another error.
    #[test]
    fn a_cancelled_request_stops_waiting_for_a_fetch() {
        let (store, _end) = busy();
        let budget = GenerationBudget::new(GenerationLimits::default());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| fetch(&store, &budget).unwrap_err());
            until_joined(&store);
            budget.cancel();
            assert_eq!(waiting.join().unwrap(), Error::Cancelled { url: URL.to_owned() });
        });
    }

    #[test]
    fn a_waiting_request_gets_the_result_of_the_fetch() {
        let (store, end) = busy();
        let budget = GenerationBudget::new(GenerationLimits::default());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| fetch(&store, &budget).unwrap_err());
            until_joined(&store);
            end(&store);
            let url = "ended".to_owned();
            assert_eq!(waiting.join().unwrap(), Error::Absent { url });
        });
    }

    /// Waits until another request has joined the fetch.
    fn until_joined(store: &RepositoryStore) {
        while Arc::strong_count(&store.shared.state().in_flight.by_key[&fetch_key()]) < 2 {
            std::thread::yield_now();
        }
    }

    fn fetch_key() -> FetchKey {
        let patterns = ["https://git.example/*".to_owned()];
        FetchKey::new(
            &allowed_repository(&Resources::default(), &patterns, ("", URL)).unwrap(),
            "main",
        )
    }
}
