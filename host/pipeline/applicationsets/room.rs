//! What all requests about ApplicationSets share: repositories, and who may generate.
//!
//! In: settings; sets to generate. Out: Applications and what they would change.
//! Refuses: more at once than the settings and [`OF_PERSON`] allow. Never: work that
//! goes on for somebody who went away.

use std::num::NonZeroU32;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use crate::applicationset::generate::generate;
use crate::applicationset::guests::Plugins;
use crate::applicationset::plan::{Existing, Plan};
use crate::applicationset::{ApplicationSet, Budget, ClusterInput, Inputs};
use crate::authorize::applicationsets::{Cleared, Desk};
use crate::caller::Caller;
use crate::clock::Clock;
use crate::config::ApplicationSets;
use crate::forward::{Limiter, Permit};
use crate::front::applicationsets::Error;
use crate::front::extensions::config::{LimitSpec, PersonLimitSpec};
use crate::rejection::Rejection;
use crate::repository::{self, Store};
use crate::snapshot::Snapshot;

/// Sets that are generated for one person at once.
const OF_PERSON: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// What the requests share.
#[derive(Debug)]
pub struct Room {
    /// What was read of repositories.
    pub(super) store: Store,
    /// Sets that are generated now.
    running: Arc<Semaphore>,
    /// Those of each person, waiting ones among them.
    persons: Arc<Limiter>,
    /// Says when objects were made.
    pub(super) clock: Clock,
    /// Generation of the snapshot in force.
    changed: watch::Sender<u64>,
}

/// A set that is to be generated, and for whom.
pub(super) struct Job {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) caller: Arc<Caller>,
    pub(super) cleared: Cleared,
    pub(super) set: ApplicationSet,
    pub(super) existing: Existing,
}

/// What was generated.
pub(super) struct Done {
    pub(super) cleared: Cleared,
    /// As the templates gave them, in order.
    pub(super) applications: Vec<Value>,
    pub(super) plan: Plan,
}

impl Room {
    /// An empty room.
    ///
    /// # Errors
    /// There is no place for repositories on disk.
    pub fn new(settings: &ApplicationSets, clock: Clock) -> Result<Self, repository::Error> {
        let per_person = PersonLimitSpec {
            concurrency: Some(OF_PERSON),
            ..PersonLimitSpec::default()
        };
        Ok(Self {
            store: Store::new(settings.git, &settings.repositories)?,
            running: Arc::new(Semaphore::new(settings.concurrency)),
            persons: Limiter::new(&LimitSpec {
                per_person,
                ..LimitSpec::default()
            }),
            clock,
            changed: watch::Sender::new(0),
        })
    }

    /// Tells those who watch that another snapshot is in force.
    pub fn changed(&self, generation: u64) {
        self.changed.send_replace(generation);
    }

    /// Tells when another snapshot comes into force.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Generates a set, and plans what that changes, off the threads that serve.
    ///
    /// Dropping the future ends the work at its next look at the clock.
    ///
    /// # Errors
    /// The person has too much at work; the others have, for longer than the work may
    /// take; a generator's own.
    pub(super) async fn generate(self: &Arc<Self>, person: u64, job: Job) -> Result<Done, Rejection> {
        let settings = job.snapshot.config.application_sets.as_ref();
        let limits = settings.map(|settings| settings.limits).unwrap_or_default();
        let held = self.persons.acquire(person)?;
        let budget = Arc::new(Budget::new(limits));
        let _given_up = GivenUp(Arc::clone(&budget));
        let running = Arc::clone(&self.running).acquire_owned();
        let running = tokio::time::timeout_at(budget.ends(), running).await;
        let Ok(Ok(running)) = running else {
            return Err(Error::Busy { waited: limits.time }.into());
        };
        let room = Arc::clone(self);
        let work = tokio::task::spawn_blocking(move || {
            // Until the work ends, whoever still waits for it.
            let _held: (Permit, _) = (held, running);
            room.work(job, &budget)
        });
        Ok(work.await.unwrap_or(Err(Error::Broken))?)
    }

    fn work(&self, job: Job, budget: &Budget) -> Result<Done, Error> {
        let Job {
            snapshot,
            caller,
            cleared,
            set,
            existing,
        } = job;
        let desk = Desk::new(&snapshot, &caller).ok_or(Error::Broken)?;
        let clusters = ClusterInput::all(&snapshot.resources);
        let project = project(&set);
        let applications = {
            let gate = desk.gate(&cleared);
            let repositories = self.store.with(&snapshot.resources, project);
            let guests = Plugins {
                plugins: &snapshot.plugins,
                secrets: &snapshot.resources.secrets,
                set: &set.name,
                runtime: tokio::runtime::Handle::current(),
            };
            let inputs = Inputs {
                clusters: &clusters,
                gate: &gate,
                repositories: &repositories,
                guests: &guests,
            };
            generate(&set, &inputs, budget)?
        };
        let plan = Plan::new(&set, existing, applications.clone());
        Ok(Done {
            cleared,
            applications,
            plan,
        })
    }
}

/// The project whose repositories a set may use; none where it is a template.
fn project(set: &ApplicationSet) -> &str {
    let project = set.spec.template.pointer("/spec/project");
    let project = project.and_then(Value::as_str).unwrap_or_default();
    if project.contains("{{") { "" } else { project }
}

/// Ends the work when its caller goes away.
struct GivenUp(Arc<Budget>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
