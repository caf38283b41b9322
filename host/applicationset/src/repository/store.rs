//! What was fetched, for all requests.
//!
//! In: bounds, patterns. Out: a [`Reader`] for each request. Never: a lock held over
//! a read of network or disk.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::cache::{Cache, Checkout};
use super::disk::{Home, Room};
use super::error::quoted;
use super::exchange::Exchange;
use super::flight::{Asked, Flights};
use super::location::Location;
use super::permission::{Permitted, permitted};
use super::tree::CommitTree;
use super::{Error, MAX_PATH_BYTES, MAX_UNPACKING_BYTES, fetch, local};
use crate::inputs::InputError;
use crate::{Budget, Exceeded, Repositories, Tree};
use tollgate_config::{GitCache, GitLimits};
use tollgate_state::Resources;

/// How long somebody waits before they look whether anybody waits for them. A fetch ends
/// without them.
const STEP: Duration = Duration::from_millis(100);

/// Repositories of all requests: what was fetched, and what is being fetched. One for
/// the process; its folder goes with it.
pub struct Store {
    patterns: Vec<String>,
    shared: Arc<Shared>,
}

/// What fetching threads hold on to.
pub(super) struct Shared {
    pub(super) limits: GitLimits,
    /// How long a commit is kept that nobody asks for.
    keep: Duration,
    /// Private to this user.
    pub(super) home: Home,
    /// What there is in it.
    pub(super) room: Arc<Room>,
    state: Mutex<State>,
    changed: Condvar,
}

/// What is known right now.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) cache: Cache,
    pub(super) flights: Flights,
    /// Bytes of memory that fetches unpack in.
    unpacking: u64,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Gives up a commit to make room on disk; whether there was one.
    pub(super) fn evict(&self) -> bool {
        let gone = self.state().cache.evict();
        gone.is_some()
    }

    /// Gives up all that nobody reads; whether there was any of it.
    pub(super) fn evict_all(&self) -> bool {
        std::iter::repeat_with(|| self.evict()).take_while(|gone| *gone).count() > 0
    }

    /// Waits until there is memory to unpack `needed` bytes at once.
    pub(super) fn unpacking(&self, needed: u64, exchange: &Exchange) -> Result<Unpacking<'_>, Error> {
        if needed > MAX_UNPACKING_BYTES {
            return Err(Error::TooLarge {
                url: exchange.url().to_owned(),
                what: "bytes to unpack it in",
                observed: needed,
                allowed: MAX_UNPACKING_BYTES,
            });
        }
        let mut state = self.state();
        while state.unpacking.saturating_add(needed) > MAX_UNPACKING_BYTES {
            if exchange.is_over() || Instant::now() >= exchange.ends() {
                return Err(exchange.slow());
            }
            state = self.wait(state, exchange.ends());
        }
        state.unpacking = state.unpacking.saturating_add(needed);
        Ok(Unpacking { shared: self, needed })
    }

    /// Waits for a change, a [`STEP`] at most.
    pub(super) fn wait<'s>(&'s self, state: MutexGuard<'s, State>, until: Instant) -> MutexGuard<'s, State> {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout(state, left.min(STEP));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Memory that a fetch unpacks in, given back when it is dropped.
pub(super) struct Unpacking<'s> {
    shared: &'s Shared,
    needed: u64,
}

impl Drop for Unpacking<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.unpacking = state.unpacking.saturating_sub(self.needed);
        drop(state);
        self.shared.wake();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Store");
        shown.field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Fetches that are under way hold the folder too, and may outlive the process's
        // orderly end.
        if let Err(error) = std::fs::remove_dir_all(self.folder()) {
            tracing::warn!(%error, "what was fetched of repositories cannot be removed");
        }
    }
}

impl Store {
    /// An empty store below the system's folder for temporary files.
    ///
    /// - `patterns`: `applicationSets.repositories`.
    ///
    /// # Errors
    /// [`Error::Disk`], [`Error::Full`]: the folder cannot be written to.
    pub fn new(limits: GitLimits, patterns: &[String]) -> Result<Self, Error> {
        Self::kept(limits, &GitCache::default(), patterns)
    }

    /// As [`Store::new`], kept as the settings say.
    ///
    /// # Errors
    /// As [`Store::new`].
    pub fn kept(limits: GitLimits, cache: &GitCache, patterns: &[String]) -> Result<Self, Error> {
        let parent = cache.directory.clone().unwrap_or_else(std::env::temp_dir);
        Ok(Self {
            patterns: patterns.to_vec(),
            shared: Arc::new(Shared {
                limits,
                keep: cache.keep,
                home: Home::make(&parent)?,
                room: Room::new(cache.bytes),
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
        })
    }

    /// What the store gives a request that goes by `resources`, for a set of `project`
    /// (its `spec.template.spec.project`; empty when that is templated, as then only
    /// Secrets of no project are used).
    pub fn with<'r>(&'r self, resources: &'r Resources, project: &'r str) -> Reader<'r> {
        Reader {
            store: self,
            resources,
            project,
        }
    }

    /// Whether the gateway may read `url` for a set of `project`; nothing is asked of
    /// the repository. See [`permitted`].
    ///
    /// # Errors
    /// As [`permitted`].
    pub fn permitted(&self, resources: &Resources, (project, url): (&str, &str)) -> Result<Permitted, Error> {
        permitted(resources, &self.patterns, (project, url))
    }

    /// The private folder of what was fetched.
    pub fn folder(&self) -> &Path {
        self.shared.home.path()
    }

    /// Fetches begun since the start.
    pub fn fetches(&self) -> u64 {
        self.shared.state().flights.begun()
    }

    fn open(&self, permitted: &Permitted, revision: &str, budget: &Budget) -> Result<CommitTree, Error> {
        let revision = match revision.trim() {
            "" => "HEAD",
            named => named,
        };
        // What is asked for is remembered, and told.
        if revision.len() > MAX_PATH_BYTES {
            return Err(Error::Revision {
                url: permitted.url().to_owned(),
                revision: quoted(revision),
                hint: "; it is longer than any name",
            });
        }
        match permitted.location() {
            Location::Local(path) => local::open(permitted, (path, &self.patterns), revision),
            Location::Remote(_) => {
                let checkout = self.fetched(permitted, revision, budget)?;
                checkout.tree(permitted.url())
            }
        }
    }

    /// What was fetched of a revision, waiting for it if need be.
    fn fetched(&self, permitted: &Permitted, revision: &str, budget: &Budget) -> Result<Arc<Checkout>, Error> {
        let asked = Asked::new(permitted, revision);
        let now = Instant::now();
        let old = self.shared.state().cache.expire(now, self.shared.keep);
        drop(old);
        let fresh = (now, self.shared.limits.fresh);
        if let Some(known) = self.shared.state().cache.fresh(&asked, fresh) {
            return known;
        }
        let waited = budget.waiting(|| self.waited(permitted, asked, budget));
        waited.unwrap_or_else(|_| {
            let url = permitted.url().to_owned();
            let allowed = budget.limits().time;
            Err(Error::Time { url, allowed })
        })
    }

    /// What was fetched of a revision, now or by somebody else just then.
    fn waited(&self, permitted: &Permitted, asked: Asked, budget: &Budget) -> Result<Arc<Checkout>, Error> {
        let mut state = self.shared.state();
        loop {
            waited_for(permitted.url(), budget)?;
            let now = Instant::now();
            // Somebody else's fetch may have ended meanwhile.
            if let Some(known) = state.cache.fresh(&asked, (now, self.shared.limits.fresh)) {
                return known;
            }
            if let Some(flight) = state.flights.of(&asked) {
                return self.join(state, (&flight, permitted.url()), budget);
            }
            if state.flights.has_room(&asked) {
                let flight = state.flights.begin(&asked);
                // The end of a flight takes the lock, and it may end at once.
                drop(state);
                fetch::begin(&self.shared, (asked, permitted.clone()), &flight);
                return self.join(self.shared.state(), (&flight, permitted.url()), budget);
            }
            if now >= budget.ends() {
                let running = state.flights.running();
                let url = permitted.url().to_owned();
                return Err(Error::Busy { url, running });
            }
            state = self.shared.wait(state, budget.ends());
        }
    }

    fn join<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        (flight, url): (&super::flight::Flight, &str),
        budget: &Budget,
    ) -> Result<Arc<Checkout>, Error> {
        // The fetch ends itself; what it is given up after is a little later, so that
        // its own, better words are heard.
        let gives_up = flight.begun() + self.shared.limits.time + fetch::GRACE;
        let until = gives_up.min(budget.ends());
        loop {
            if let Some(outcome) = flight.outcome() {
                return outcome.clone();
            }
            waited_for(url, budget)?;
            if Instant::now() >= until {
                let allowed = self.shared.limits.time.min(budget.limits().time);
                let url = url.to_owned();
                return Err(Error::Time { url, allowed });
            }
            state = self.shared.wait(state, until);
        }
    }
}

/// The repositories one request may read. Blocks; call it off the runtime.
#[derive(Clone, Copy)]
pub struct Reader<'r> {
    store: &'r Store,
    resources: &'r Resources,
    project: &'r str,
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("project", &self.project)
            .finish_non_exhaustive()
    }
}

impl Repositories for Reader<'_> {
    fn open(&self, url: &str, revision: &str, budget: &Budget) -> Result<Box<dyn Tree>, InputError> {
        let permitted = self.store.permitted(self.resources, (self.project, url))?;
        Ok(Box::new(self.store.open(&permitted, revision, budget)?))
    }
}

/// Whether somebody still waits for what is asked; that time is over has better words.
fn waited_for(url: &str, budget: &Budget) -> Result<(), Error> {
    match budget.time() {
        Err(Exceeded::Cancelled) => Err(Error::GivenUp { url: url.to_owned() }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Asked, Checkout, Error, Store, permitted};
    use crate::Budget;
    use tollgate_config::GenerationLimits;
    use tollgate_config::GitLimits;
    use tollgate_state::Resources;

    const URL: &str = "https://git.example/app";

    fn ask(store: &Store, budget: &Budget) -> Result<Arc<Checkout>, Error> {
        let permitted = permitted(&Resources::default(), &store.patterns, ("", URL)).unwrap();
        store.fetched(&permitted, "main", budget)
    }

    /// A store where somebody else's fetch of the same is under way, and its end.
    fn busy() -> (Store, fn(&Store)) {
        let store = Store::new(GitLimits::default(), &["https://git.example/*".to_owned()]).unwrap();
        store.shared.state().flights.begin(&asked());
        let end = |store: &Store| {
            let url = "ended".to_owned();
            store.shared.state().flights.end(&asked(), Err(Error::Absent { url }));
            store.shared.wake();
        };
        (store, end as fn(&Store))
    }

    #[test]
    fn a_revision_longer_than_any_name_is_not_asked_for() {
        let (store, _end) = busy();
        let permitted = permitted(&Resources::default(), &store.patterns, ("", URL)).unwrap();
        let budget = Budget::new(GenerationLimits::default());
        budget.cancel();
        let open = |length: usize| store.open(&permitted, &"x".repeat(length), &budget).unwrap_err();
        assert!(
            matches!(open(super::MAX_PATH_BYTES), Error::GivenUp { .. }),
            "asked for"
        );
        let refused = open(super::MAX_PATH_BYTES + 1).to_string();
        assert!(
            refused.contains("longer than any name") && refused.len() < 600,
            "{refused}"
        );
    }

    /// The fetch never ends here: without a look at the budget this would wait for all of
    /// its time, and have another error.
    #[test]
    fn who_went_away_waits_for_no_fetch() {
        let (store, _end) = busy();
        let budget = Budget::new(GenerationLimits::default());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ask(&store, &budget).unwrap_err());
            until_joined(&store);
            budget.cancel();
            assert_eq!(waiting.join().unwrap(), Error::GivenUp { url: URL.to_owned() });
        });
    }

    #[test]
    fn who_stays_has_what_came_of_it() {
        let (store, end) = busy();
        let budget = Budget::new(GenerationLimits::default());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ask(&store, &budget).unwrap_err());
            until_joined(&store);
            end(&store);
            let url = "ended".to_owned();
            assert_eq!(waiting.join().unwrap(), Error::Absent { url });
        });
    }

    /// Until somebody else has the fetch as well.
    fn until_joined(store: &Store) {
        while Arc::strong_count(&store.shared.state().flights.of(&asked()).unwrap()) < 3 {
            std::thread::yield_now();
        }
    }

    fn asked() -> Asked {
        let patterns = ["https://git.example/*".to_owned()];
        Asked::new(&permitted(&Resources::default(), &patterns, ("", URL)).unwrap(), "main")
    }
}
