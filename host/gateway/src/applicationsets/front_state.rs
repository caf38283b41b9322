//! What all requests about ApplicationSets share: the cache of repositories, and the limits on
//! how many sets are generated at once, in total (settings) and for each person ([`MAX_GENERATIONS_PER_PERSON`]).
//!
//! Invariant: work on a set stops when nobody waits for it any more.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::applicationsets::guests::WasmGenerators;
use crate::applicationsets::permit;
use crate::applicationsets::permit::SetPermit;
use crate::applicationsets::request::Error;
use crate::caller::Caller;
use crate::rejection::Rejection;
use crate::snapshot::Snapshot;
use tollgate_applicationset::budget;
use tollgate_applicationset::generate::generate;
use tollgate_applicationset::repository::{self, RepositoryStore};
use tollgate_applicationset::{ApplicationSet, ClusterInput, GenerationBudget, Inputs};
use tollgate_config::ApplicationSets;
use tollgate_identity::clock::Clock;
use tollgate_proxy::forward::{LimitPermit, Limiter};
use tollgate_state::ObjectName;
use tollgate_state::extensions::{LimitSpec, PersonLimitSpec};

use crate::applicationsets::watch::ComparisonScheduler;

/// Most sets that are generated for one person at once.
const MAX_GENERATIONS_PER_PERSON: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// Most requests of one person at once that read objects where they are stored, or write them. A
/// write counts until it is done, even if its caller went away.
const MAX_READERS_PER_PERSON: NonZeroU32 = NonZeroU32::MIN.saturating_add(7);

/// Requests that read many objects at once, for each set that is being generated.
const BULK_READS_PER_GENERATION: usize = 2;

/// Most writes under way at once. More wait.
const MAX_CONCURRENT_WRITES: usize = 1024;

/// Most sets remembered that were written just now.
const MAX_RECENT_WRITES: usize = 64;

/// How long they are remembered if the source does not say so.
const RECENT_WRITE_TTL: Duration = Duration::from_secs(10);

/// Sets that are begun, for each that is being generated. The others wait, each occupying a
/// thread.
const STARTED_PER_GENERATION: usize = 8;

/// How often a waiting request checks whether its caller still waits.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// State that all requests about ApplicationSets share.
#[derive(Debug)]
pub struct ApplicationSetsFrontState {
    /// The cache of repositories.
    pub(super) store: RepositoryStore,
    /// Sets being generated now.
    running: Arc<Semaphore>,
    /// Sets being generated, and those that wait for a repository or a plugin.
    begun: Arc<Semaphore>,
    /// Sets of each person, waiting ones included.
    persons: Arc<Limiter>,
    /// Requests of each person that read or write objects where they are stored.
    readers: Arc<Limiter>,
    /// Requests that read many objects.
    reading: Arc<Semaphore>,
    /// Writes under way.
    writes: Arc<Semaphore>,
    /// Comparisons of watches.
    pub(super) comparisons: ComparisonScheduler,
    /// The latest sets that were written here.
    written: Mutex<VecDeque<RecentWrite>>,
    /// The time at which objects are created.
    pub(super) clock: Clock,
}

/// A set that was written here, until a snapshot has it.
#[derive(Debug)]
struct RecentWrite {
    name: ObjectName,
    at: Instant,
    /// What the snapshot had of it at that time.
    was: Option<Arc<Value>>,
    now: Option<Arc<Value>>,
    projects: Vec<String>,
}

/// What is known of a set without reading it where it is stored.
#[derive(Clone, Debug, Default)]
pub(super) struct CachedSet {
    pub(super) set: Option<Arc<Value>>,
    /// Projects of its Applications, if it was written just now.
    pub(super) projects: Option<Vec<String>>,
}

/// What work on a set needs, off the threads that serve.
pub(super) struct GenerationContext<'a> {
    front_state: &'a ApplicationSetsFrontState,
    snapshot: &'a Snapshot,
    /// Where rights are looked up.
    pub(super) desk: permit::Desk<'a>,
    budget: &'a GenerationBudget,
}

impl ApplicationSetsFrontState {
    /// Makes an empty room.
    ///
    /// # Errors
    /// No folder on disk can be used for repositories.
    pub fn new(settings: &ApplicationSets, clock: Clock) -> Result<Self, repository::Error> {
        let per_person = PersonLimitSpec {
            concurrency: Some(MAX_GENERATIONS_PER_PERSON),
            ..PersonLimitSpec::default()
        };
        Ok(Self {
            store: RepositoryStore::kept(settings.git, &settings.git_cache, &settings.repositories)?,
            running: Arc::new(Semaphore::new(settings.concurrency)),
            begun: Arc::new(Semaphore::new(
                settings.concurrency.saturating_mul(STARTED_PER_GENERATION),
            )),
            persons: Limiter::new(&LimitSpec {
                per_person,
                ..LimitSpec::default()
            }),
            readers: Limiter::new(&LimitSpec {
                per_person: PersonLimitSpec {
                    concurrency: Some(MAX_READERS_PER_PERSON),
                    ..PersonLimitSpec::default()
                },
                ..LimitSpec::default()
            }),
            reading: Arc::new(Semaphore::new(
                settings.concurrency.saturating_mul(BULK_READS_PER_GENERATION),
            )),
            writes: Arc::new(Semaphore::new(MAX_CONCURRENT_WRITES)),
            comparisons: ComparisonScheduler::default(),
            written: Mutex::default(),
            clock,
        })
    }

    /// What is known of a set: as it was written here just now, or else as the snapshot has it.
    pub(super) fn latest_known(&self, name: &ObjectName, snapshot: &Snapshot) -> CachedSet {
        let has = snapshot.resources.application_sets.get(name);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.retain(|one| one.at.elapsed() < RECENT_WRITE_TTL);
        let latest = written.iter().rev().find(|one| one.name == *name);
        // A snapshot that changed since the write is newer than the write.
        let latest = latest.filter(|one| one.was.as_ref().map(Arc::as_ptr) == has.map(Arc::as_ptr));
        match latest {
            Some(one) => CachedSet {
                set: one.now.clone(),
                projects: Some(one.projects.clone()),
            },
            None => CachedSet {
                set: has.cloned(),
                projects: None,
            },
        }
    }

    /// Whether a set of a namespace was written here just now.
    pub(super) fn has_written(&self, namespace: &str) -> bool {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = written.iter().filter(|one| one.at.elapsed() < RECENT_WRITE_TTL);
        fresh.any(|one| one.name.namespace == namespace)
    }

    /// Remembers a set as it is stored now. `None` if it was deleted.
    ///
    /// - `was`: what the snapshot had before the write.
    pub(super) fn record_write(
        &self,
        name: ObjectName,
        (was, now): (Option<Arc<Value>>, Option<Arc<Value>>),
        projects: Vec<String>,
    ) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() >= MAX_RECENT_WRITES {
            written.pop_front();
        }
        written.push_back(RecentWrite {
            name,
            at: Instant::now(),
            was,
            now,
            projects,
        });
    }

    /// Takes one of the person's slots for reading and writing objects where they are stored.
    ///
    /// # Errors
    /// All slots of the person are taken.
    pub(super) fn acquire_reader(&self, person: u64) -> Result<LimitPermit, Rejection> {
        Ok(self.readers.acquire(person)?)
    }

    /// Waits for a slot to read many objects.
    ///
    /// # Errors
    /// No slot was free within `time`.
    pub(super) async fn acquire_bulk_read(&self, time: Duration) -> Result<OwnedSemaphorePermit, Rejection> {
        let free = Arc::clone(&self.reading).acquire_owned();
        match tokio::time::timeout(time, free).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(Error::Busy { waited: time }.into()),
        }
    }

    /// Takes a slot among the writes under way.
    pub(super) async fn acquire_write(&self) -> Result<OwnedSemaphorePermit, Rejection> {
        let place = Arc::clone(&self.writes).acquire_owned().await;
        Ok(place.map_err(|_| Error::Broken)?)
    }

    /// Waits until no write is under way, including those whose callers went away.
    pub async fn finish(&self) {
        let all = u32::try_from(MAX_CONCURRENT_WRITES).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let _ = self.writes.acquire_many(all).await;
    }

    /// Runs work that takes long for a big set: generating, planning, judging and showing.
    ///
    /// If the future is dropped, the work ends the next time it checks the deadline.
    ///
    /// # Errors
    /// The person has too much work under way; others keep all slots for longer than the work may
    /// take; or the work's own error.
    pub(super) async fn run_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        (snapshot, caller): (Arc<Snapshot>, Arc<Caller>),
        person: u64,
        work: impl FnOnce(&GenerationContext<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Rejection> {
        let settings = snapshot.config.application_sets.as_ref();
        let limits = settings.map(|settings| settings.limits).unwrap_or_default();
        let held = self.persons.acquire(person)?;
        let place = Place::new(&self.running);
        let budget = Arc::new(GenerationBudget::new(limits).with_slot(Box::new(place.clone())));
        let _given_up = CancelOnDrop(Arc::clone(&budget));
        let busy = || Error::Busy { waited: limits.time };
        let begun = Arc::clone(&self.begun).acquire_owned();
        let begun = tokio::time::timeout_at(budget.deadline(), begun).await;
        let Ok(Ok(begun)) = begun else {
            return Err(busy().into());
        };
        if !place.take(budget.deadline()).await {
            return Err(busy().into());
        }
        let front_state = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            // Held until the work ends, even if its caller stops waiting.
            let _held: (LimitPermit, _) = (held, begun);
            let _left = ReleaseOnDrop(place);
            let desk = permit::Desk::new(&snapshot, &caller).ok_or(Error::Broken)?;
            work(&GenerationContext {
                front_state: &front_state,
                snapshot: &snapshot,
                desk,
                budget: &budget,
            })
        });
        Ok(done.await.unwrap_or(Err(Error::Broken))?)
    }
}

impl GenerationContext<'_> {
    /// Generates the Applications of a set, as its templates produce them.
    ///
    /// # Errors
    /// That of a generator or a template. [`Error::Generate`] also if a limit is exceeded.
    pub(super) fn generate(&self, cleared: &SetPermit, set: &ApplicationSet) -> Result<Vec<Value>, Error> {
        let resources = &self.snapshot.resources;
        let clusters = ClusterInput::all(resources);
        let gate = self.desk.gate(cleared);
        let repositories = self.front_state.store.with(resources, project(set));
        let guests = WasmGenerators {
            plugins: &self.snapshot.plugins,
            secrets: &resources.secrets,
            set: &set.name,
            runtime: tokio::runtime::Handle::current(),
        };
        let inputs = Inputs {
            clusters: &clusters,
            gate: &gate,
            repositories: &repositories,
            guests: &guests,
        };
        Ok(generate(set, &inputs, self.budget)?)
    }
}

/// The project whose repositories a set may use. `None` if it is a template.
fn project(set: &ApplicationSet) -> &str {
    let project = set.spec.template.pointer("/spec/project");
    let project = project.and_then(Value::as_str).unwrap_or_default();
    if project.contains("{{") { "" } else { project }
}

/// A slot among the sets being generated.
#[derive(Clone, Debug)]
struct Place {
    all: Arc<Semaphore>,
    held: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl Place {
    /// Makes a slot that is not taken yet.
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

impl budget::Place for Place {
    fn release(&self) {
        self.put(None);
    }

    fn reacquire(&self, until: Instant, is_given_up: &dyn Fn() -> bool) -> bool {
        let given_up = async {
            while !is_given_up() {
                tokio::time::sleep(CANCEL_POLL_INTERVAL).await;
            }
        };
        tokio::runtime::Handle::current().block_on(async {
            tokio::select! {
                taken = self.take(until) => taken,
                () = given_up => false,
            }
        })
    }
}

/// Releases a slot when the work is done, successful or not. The budget lives on with the caller.
struct ReleaseOnDrop(Place);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        self.0.put(None);
    }
}

/// Ends the work if its caller goes away.
struct CancelOnDrop(Arc<GenerationBudget>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
