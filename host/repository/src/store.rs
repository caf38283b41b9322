//! The store of fetched repositories, shared by all requests. Each request gets a
//! [`RepositoryReader`].

use std::path::Path;
use std::sync::Arc;

use tokio::time::Instant;

use crate::cache::Checkout;
use crate::error::sanitized;
use crate::fetch_key::FetchKey;
use crate::location::Location;
use crate::permission::{AllowedRepository, allowed_repository};
use crate::store_inner::StoreInner;
use crate::tree::CommitTree;
use crate::{Error, MAX_PATH_BYTES, fetch, local};
use tollgate_applicationset::{Exceeded, GenerationBudget, GitTree, InputError, Repositories};
use tollgate_config::{GitCache, GitLimits};
use tollgate_objects::Resources;

/// The repositories of all requests: what was fetched, and what is being fetched. There is one
/// store for the process, and its folder is removed with it.
#[derive(Debug)]
pub struct RepositoryStore {
    patterns: Vec<String>,
    shared: Arc<StoreInner>,
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
        Ok(Self {
            patterns: patterns.to_vec(),
            shared: Arc::new(StoreInner::new(limits, cache)?),
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
            return local::open(permitted, path, &self.patterns, revision);
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
                fetch::begin(&self.shared, key, permitted.clone(), &fetch);
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
        let permitted = allowed_repository(self.resources, &self.store.patterns, self.project, url)?;
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
    use tollgate_applicationset::GenerationBudget;
    use tollgate_config::GenerationLimits;
    use tollgate_config::{GitCache, GitLimits};
    use tollgate_objects::Resources;

    const URL: &str = "https://git.example/app";

    fn fetch(store: &RepositoryStore, budget: &GenerationBudget) -> Result<Arc<Checkout>, Error> {
        let permitted = allowed_repository(&Resources::default(), &store.patterns, "", URL).unwrap();
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
        let permitted = allowed_repository(&Resources::default(), &store.patterns, "", URL).unwrap();
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
            &allowed_repository(&Resources::default(), &patterns, "", URL).unwrap(),
            "main",
        )
    }
}
