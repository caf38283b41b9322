//! The state that all requests about ApplicationSets share: the cache of repositories, and the
//! limits on how many sets are generated at once, in total (settings) and for each person
//! ([`MAX_GENERATIONS_PER_PERSON`]).
//!
//! Invariant: work on a set stops when nobody waits for it any more.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::applicationsets::plugin_generators::WasmGenerators;
use crate::applicationsets::request::Error;
use crate::set_author;
use tollgate_applicationset::generate::generate;
use tollgate_applicationset::{ApplicationSet, ClusterInput, GenerationBudget, InputError, Inputs, budget};
use tollgate_applicationset_rights as permit;
use tollgate_applicationset_rights::{self, SetPermit};
use tollgate_config::ApplicationSets;
use tollgate_front::Denial;
use tollgate_front::caller::Caller;
use tollgate_front::snapshot::Snapshot;
use tollgate_identity::clock::Clock;
use tollgate_objects::ObjectName;
use tollgate_objects::extensions::{LimitSpec, PersonLimitSpec};
use tollgate_proxy::forward::{LimitPermit, Limiter};
use tollgate_repository::RepositoryStore;

use crate::applicationsets::watch::{ComparisonScheduler, EndedWatches};

pub(super) mod recent_writes;

use recent_writes::RecentWrites;

/// Most sets that are generated for one person at once.
const MAX_GENERATIONS_PER_PERSON: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// Most requests of one person at once that read objects where they are stored, or write them. A
/// write counts until it is done, even if its caller went away.
const MAX_READERS_PER_PERSON: NonZeroU32 = NonZeroU32::MIN.saturating_add(7);

/// Concurrent requests that read many objects, for each set that is being generated.
const BULK_READS_PER_GENERATION: usize = 2;

const MAX_CONCURRENT_WRITES: usize = 1024;

/// Started generations, for each set that is being generated. Those that do not run wait, each
/// occupying a thread.
const STARTED_PER_GENERATION: usize = 8;

/// How often a waiting request checks whether its caller still waits.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// State of the ApplicationSet front that outlives reloads of the snapshot.
#[derive(Debug)]
pub struct ApplicationSetsFrontState {
    pub(super) store: RepositoryStore,
    /// Permits of sets that are being generated.
    running: Arc<Semaphore>,
    /// Permits of started generations, including those that wait for a repository or a plugin.
    started: Arc<Semaphore>,
    /// Sets of each person, waiting ones included.
    persons: Arc<Limiter>,
    /// Requests of each person that read or write objects where they are stored.
    pub(super) readers: Arc<Limiter>,
    /// Permits of requests that read many objects.
    bulk_reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    pub(super) comparisons: ComparisonScheduler,
    pub(super) ended_watches: EndedWatches,
    pub(super) recent_writes: RecentWrites,
    pub(super) clock: Clock,
}

/// Everything that work on a set needs off the threads that serve.
pub(super) struct GenerationContext<'a> {
    front_state: &'a ApplicationSetsFrontState,
    snapshot: &'a Snapshot,
    pub(super) authorizer: permit::SetAuthorizer<'a>,
    budget: &'a GenerationBudget,
}

impl ApplicationSetsFrontState {
    /// # Errors
    /// [`InputError`] if the cache of repositories cannot be opened.
    pub fn new(settings: &ApplicationSets, clock: Clock) -> Result<Self, InputError> {
        let per_person = |concurrency| {
            let per_person = PersonLimitSpec {
                concurrency: Some(concurrency),
                ..PersonLimitSpec::default()
            };
            Limiter::new(&LimitSpec {
                per_person,
                ..LimitSpec::default()
            })
        };
        let slots = |per_generation| {
            let all = settings.concurrency.saturating_mul(per_generation);
            Arc::new(Semaphore::new(all))
        };
        Ok(Self {
            store: RepositoryStore::new(settings.git, &settings.git_cache, &settings.repositories)?,
            running: slots(1),
            started: slots(STARTED_PER_GENERATION),
            persons: per_person(MAX_GENERATIONS_PER_PERSON),
            readers: per_person(MAX_READERS_PER_PERSON),
            bulk_reads: slots(BULK_READS_PER_GENERATION),
            writes: Arc::new(Semaphore::new(MAX_CONCURRENT_WRITES)),
            comparisons: ComparisonScheduler::default(),
            ended_watches: EndedWatches::default(),
            recent_writes: RecentWrites::default(),
            clock,
        })
    }

    pub(super) async fn acquire_bulk_read(&self, time: Duration) -> Result<OwnedSemaphorePermit, Denial> {
        let free = Arc::clone(&self.bulk_reads).acquire_owned();
        match tokio::time::timeout(time, free).await {
            Ok(Ok(acquired)) => Ok(acquired),
            Ok(Err(_)) | Err(_) => Err(Error::Busy { waited: time }.into()),
        }
    }

    pub(super) async fn acquire_write(&self) -> Result<OwnedSemaphorePermit, Denial> {
        let acquired = Arc::clone(&self.writes).acquire_owned().await;
        Ok(acquired.map_err(|_| Error::Broken)?)
    }

    /// Waits until no write runs, including those whose callers went away.
    pub async fn finish(&self) {
        let all = u32::try_from(MAX_CONCURRENT_WRITES).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let _ = self.writes.acquire_many(all).await;
    }

    /// Runs work that takes long for a big set: generating, planning, authorizing and encoding.
    ///
    /// If the future is dropped, the work ends the next time it checks the deadline.
    ///
    /// # Errors
    /// The person has too many generations running; others hold all slots for longer than the work
    /// may take; or the work's own error.
    pub(super) async fn run_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        caller: Arc<Caller>,
        person: u64,
        work: impl FnOnce(&GenerationContext<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Denial> {
        let settings = snapshot.policies.config.application_sets.as_ref();
        let limits = settings.map(|settings| settings.limits).unwrap_or_default();
        let held = self.persons.acquire(person)?;
        let slot = GenerationSlot::new(&self.running);
        let budget = Arc::new(GenerationBudget::new(limits).with_slot(Box::new(slot.clone())));
        let _cancel = CancelOnDrop(Arc::clone(&budget));
        let busy = || Error::Busy { waited: limits.time };
        let started = Arc::clone(&self.started).acquire_owned();
        let started = tokio::time::timeout_at(budget.deadline(), started).await;
        let Ok(Ok(started)) = started else {
            return Err(busy().into());
        };
        // Waits here for the first slot, before the work occupies a thread.
        if !slot.take(budget.deadline()).await {
            return Err(busy().into());
        }
        let front_state = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            // Held until the work ends, even if its caller stops waiting.
            let _held: (LimitPermit, _) = (held, started);
            let _release = ReleaseOnDrop(slot);
            let authorizer = permit::SetAuthorizer::new(&snapshot.policies, &caller).ok_or(Error::Broken)?;
            work(&GenerationContext {
                front_state: &front_state,
                snapshot: &snapshot,
                authorizer,
                budget: &budget,
            })
        });
        Ok(done.await.unwrap_or(Err(Error::Broken))?)
    }
}

impl GenerationContext<'_> {
    /// The statement that the caller wrote the set as it is. `None` if it has one already, and while
    /// the admission webhook is off.
    pub(super) fn author_statement(&self, name: &ObjectName, set: &Value) -> Option<String> {
        let policies = &self.snapshot.policies;
        if set_author::is_signed(policies, name, set) {
            return None;
        }
        let now = self.front_state.clock.unix_seconds();
        set_author::sign(policies, name, set, self.authorizer.principal(), now)
    }

    /// Generates the Applications of a set, as its templates produce them.
    pub(super) fn generate(&self, set_permit: &SetPermit, set: &ApplicationSet) -> Result<Vec<Value>, Error> {
        let resources = &self.snapshot.policies.resources;
        let clusters = ClusterInput::all(resources);
        let authorizer = self.authorizer.input_authorizer(set_permit);
        let repositories = self.front_state.store.reader(resources, authorizer.project());
        let plugin_generators = WasmGenerators {
            plugins: &self.snapshot.plugins,
            secrets: &resources.secrets,
            set: &set.name,
            runtime: tokio::runtime::Handle::current(),
        };
        let inputs = Inputs {
            clusters: &clusters,
            authorizer: &authorizer,
            repositories: &repositories,
            plugin_generators: &plugin_generators,
        };
        Ok(generate(set, &inputs, self.budget)?)
    }
}

#[derive(Clone, Debug)]
struct GenerationSlot {
    all: Arc<Semaphore>,
    held: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl GenerationSlot {
    fn new(all: &Arc<Semaphore>) -> Self {
        Self {
            all: Arc::clone(all),
            held: Arc::default(),
        }
    }

    async fn take(&self, until: Instant) -> bool {
        let free = Arc::clone(&self.all).acquire_owned();
        let taken = tokio::time::timeout_at(until, free).await;
        let Ok(Ok(taken)) = taken else { return false };
        self.put(Some(taken));
        true
    }

    fn put(&self, permit: Option<OwnedSemaphorePermit>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }
}

impl budget::WorkSlot for GenerationSlot {
    fn release(&self) {
        self.put(None);
    }

    fn reacquire(&self, until: Instant, is_given_up: &dyn Fn() -> bool) -> bool {
        // Nothing wakes this thread when the caller goes away.
        let given_up = async {
            while !is_given_up() {
                tokio::time::sleep(CANCEL_POLL_INTERVAL).await;
            }
        };
        // May block, because the work runs on a thread of `spawn_blocking`.
        tokio::runtime::Handle::current().block_on(async {
            tokio::select! {
                taken = self.take(until) => taken,
                () = given_up => false,
            }
        })
    }
}

/// Releases a slot when the work ends, successful or not. The budget lives on with the caller.
struct ReleaseOnDrop(GenerationSlot);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        self.0.put(None);
    }
}

struct CancelOnDrop(Arc<GenerationBudget>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
