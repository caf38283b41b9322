//! Watches ApplicationSets: sends an event for each set that changed while the caller may see it.
//!
//! Memory is bounded, because events of later snapshots are not queued: sets are compared again
//! once all events were sent. Comparisons run off the threads that serve. A status that changes
//! alone causes a comparison once a second at most.
//!
//! A watch of one name ends with an error if no controller has written a status of the set in time:
//! `argocd appset create --wait` waits for one, and would never end. A browser's page only shows it.
//!
//! Security: events come only from snapshots by which every open exchange was reauthorized. None
//! comes from a snapshot in which the caller is unknown, and none shows a set as it was while the
//! caller could not see it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::applicationsets::permit::{self, OwnedApplication};
use crate::applicationsets::read::{is_in_projects, labels};
use crate::applicationsets::request::{Error, EventStream, EventType, Query, WatchEvent};
use crate::applicationsets::{ApplicationSetHandler, ApplicationSetsFrontState};
use crate::open_exchanges::{PtrEqArc, Reauthorization};
use crate::rejection::Rejection;
use crate::snapshot::Snapshot;
use tollgate_applicationset::selector::Selector;
use tollgate_identity::authenticate::Principal;
use tollgate_policy::rbac::Rbac;
use tollgate_policy::rego::Bundle;
use tollgate_state::{ApplicationSetStatus, ObjectName, Resources};

mod comparisons;
mod statuses;

pub(super) use comparisons::ComparisonScheduler;

pub(super) use statuses::EndedWatches;

use statuses::{StatusReceiver, is_unreported};

/// Time between two comparisons that only a changed status causes.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
struct WatchedSet {
    /// The set in the snapshot.
    set: Arc<Value>,
    /// Its status, if it was written without a change of the snapshot.
    status: Option<Arc<ApplicationSetStatus>>,
    /// Its Applications, if the permissions on it depend on them.
    owned: BTreeSet<OwnedApplication>,
    is_shown: bool,
}

type Sets = BTreeMap<ObjectName, WatchedSet>;

/// Applications by the set that owns them.
pub(super) type OwnedApplications = BTreeMap<ObjectName, BTreeSet<OwnedApplication>>;

/// Everything but the set itself that decides whether a caller may see it.
struct VisibilityInputs {
    rbac: Arc<Rbac>,
    policy: Option<Arc<Bundle>>,
}

struct Watcher {
    front_state: Arc<ApplicationSetsFrontState>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    statuses: StatusReceiver,
    generation: u64,
    compared_at: Instant,
    principal: Arc<Principal>,
    query: Query,
    selector: Selector,
    watched: Sets,
    visibility_inputs: Option<VisibilityInputs>,
    queue: VecDeque<WatchEvent>,
    /// How long a set that is watched by its name may have no condition.
    controller_timeout: Duration,
    /// A set that is watched by its name and has no condition, and since when.
    unreported: Option<(ObjectName, Instant)>,
}

/// What ends a watcher's wait.
enum Wake {
    Changed,
    NoController,
}

impl ApplicationSetHandler<'_, '_> {
    /// Streams events until the caller goes away. As in Argo CD, a watch of one set begins with an
    /// event that has its current state.
    pub(super) async fn watch(&mut self, query: Query) -> Result<EventStream, Rejection> {
        let selector = Selector::parse(&query.selector).map_err(Error::Selector)?;
        let reauthorization = Reauthorization::ApplicationSets(PtrEqArc(Arc::clone(self.principal)));
        let guard = self.open.register(reauthorization, (self.snapshot, self.record.id()))?;
        // Subscribe first, so that no change from now on is missed.
        let snapshots = self.open.subscribe();
        let statuses = StatusReceiver(self.statuses.take());
        let snapshot = self.current.load_full();
        let settings = snapshot.policies.config.application_sets.as_ref();
        let mut watcher = Watcher {
            front_state: Arc::clone(self.front_state),
            snapshots,
            statuses,
            generation: snapshot.generation,
            compared_at: Instant::now(),
            principal: Arc::clone(self.principal),
            selector,
            watched: Sets::new(),
            visibility_inputs: None,
            queue: VecDeque::new(),
            controller_timeout: settings.map_or(Duration::ZERO, |settings| settings.controller_timeout),
            unreported: None,
            query,
        };
        let compared = move || watcher.compare(&snapshot).map(|()| watcher);
        let comparisons = &self.front_state.comparisons;
        let compared = comparisons.run(self.principal.limit_key(), compared).await;
        // A closed front responds as if it did not exist.
        let mut watcher = compared.ok_or(Error::Broken)?.ok_or(Rejection::NotFound)?;
        if watcher.query.name.is_empty() {
            watcher.queue.clear();
        }
        if let Some((name, _)) = &watcher.unreported
            && self
                .front_state
                .ended_watches
                .contains(self.principal.limit_key(), name)
        {
            return Err(watcher.no_controller(name.clone()).into());
        }
        let ending = guard.ending();
        let events = stream::unfold(Some((watcher, guard)), |open| async move {
            let (watcher, guard) = open?;
            let (event, watcher) = watcher.next().await?;
            Some((event, watcher.map(|watcher| (watcher, guard))))
        });
        let ended = async move { ending.ended().await };
        Ok(events.take_until(ended).boxed())
    }
}

impl Watcher {
    /// The next event, or the error that ends the watch. `None` if the front is closed or the gateway
    /// stops.
    async fn next(mut self) -> Option<(Result<WatchEvent, Error>, Option<Self>)> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some((Ok(event), Some(self)));
            }
            match (self.wait().await?, &self.unreported) {
                (Wake::NoController, Some((name, _))) => {
                    let error = self.no_controller(name.clone());
                    tracing::warn!(%error, "a watch of an ApplicationSet was ended");
                    let person = self.principal.limit_key();
                    self.front_state.ended_watches.record(person, name.clone());
                    return Some((Err(error), None));
                }
                (Wake::NoController, None) | (Wake::Changed, _) => {}
            }
            let front_state = Arc::clone(&self.front_state);
            let person = self.principal.limit_key();
            let compared = front_state.comparisons.run(person, move || self.compare_newest());
            self = compared.await??;
        }
    }

    fn no_controller(&self, name: ObjectName) -> Error {
        Error::NoController {
            name,
            waited: self.controller_timeout,
        }
    }

    /// Waits for something to compare. `None` if the gateway stops.
    async fn wait(&mut self) -> Option<Wake> {
        let unreported = self.unreported.as_ref();
        let controller_deadline = unreported.and_then(|(_, since)| since.checked_add(self.controller_timeout));
        let no_controller = async move {
            match controller_deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.snapshots.changed() => changed.ok().map(|()| Wake::Changed),
            () = self.statuses.changed(self.compared_at + STATUS_INTERVAL) => Some(Wake::Changed),
            () = no_controller => Some(Wake::NoController),
        }
    }

    /// Compares with the newest snapshot and statuses, once this watch is scheduled. `None` if the
    /// front is closed.
    fn compare_newest(mut self) -> Option<Self> {
        let snapshot = Arc::clone(&self.snapshots.borrow_and_update());
        // The first comparison may have been with a snapshot that is received later.
        if snapshot.generation >= self.generation {
            self.generation = snapshot.generation;
            self.compare(&snapshot)?;
        }
        Some(self)
    }

    /// Queues the differences from the last comparison. `None` if the front is closed.
    fn compare(&mut self, snapshot: &Arc<Snapshot>) -> Option<()> {
        let now = self.evaluate_sets(snapshot)?;
        let changes = changed(&self.watched, &now).into_iter();
        let changes = changes.filter(|(event, set)| *event == EventType::Deleted || self.is_new_enough(set));
        self.queue = changes.map(|(event, set)| WatchEvent { event, set }).collect();
        self.watched = now;
        self.compared_at = Instant::now();
        self.note_unreported();
        Some(())
    }

    /// Notes since when a set that is watched by its name has no condition.
    fn note_unreported(&mut self) {
        let is_waiting = !self.query.name.is_empty() && !self.query.is_for_page;
        let mut named = self.watched.iter().filter(|_| is_waiting);
        let unreported = named.find(|(_, watched_set)| watched_set.is_shown && is_unreported(&watched_set.current()));
        self.unreported = unreported.map(|(name, _)| match self.unreported.take() {
            Some((before, since)) if before == *name => (before, since),
            _ => (name.clone(), self.compared_at),
        });
    }

    /// Evaluates which sets the watch shows: those that match it and that the caller may see, as
    /// in a list. Only sets whose result could have changed are evaluated.
    fn evaluate_sets(&mut self, snapshot: &Arc<Snapshot>) -> Option<Sets> {
        let caller = snapshot.policies.caller(&self.principal);
        let authorizer = permit::SetAuthorizer::new(&snapshot.policies, &caller)?;
        let before = self.visibility_inputs.replace(VisibilityInputs {
            rbac: Arc::clone(&snapshot.policies.rbac),
            policy: snapshot.policies.application_sets.clone(),
        });
        let is_as_before = before.is_some_and(|before| {
            let policies = (before.policy.as_ref(), snapshot.policies.application_sets.as_ref());
            let is_same = matches!(policies, (Some(was), Some(now)) if Arc::ptr_eq(was, now));
            is_same && Arc::ptr_eq(&before.rbac, &snapshot.policies.rbac)
        });
        let mut all_owned = owned_applications(&snapshot.policies.resources, |set| authorizer.needs_owned(set));
        let statuses = self.statuses.latest();
        let evaluate = |(name, set): (&ObjectName, &Arc<Value>)| {
            let owned = all_owned.remove(name).unwrap_or_default();
            let earlier = self.watched.get(name);
            let status = statuses.get(name).or_else(|| earlier?.status.as_ref()).cloned();
            let earlier = earlier.filter(|earlier| {
                // A set without Applications may depend on the projects that there are.
                let is_known = !owned.is_empty() || !authorizer.needs_owned(set);
                let is_unchanged = is_as_before && is_known && earlier.owned == owned;
                is_unchanged && Arc::ptr_eq(&earlier.set, set)
            });
            let is_shown = match earlier {
                Some(earlier) => earlier.is_shown,
                None => self.matches(name, set, &owned) && authorizer.may_get(name, set, &owned),
            };
            let watched_set = WatchedSet {
                set: Arc::clone(set),
                status,
                owned,
                is_shown,
            };
            (name.clone(), watched_set)
        };
        let sets = snapshot.policies.resources.application_sets.iter();
        Some(sets.map(evaluate).collect())
    }

    fn is_new_enough(&self, set: &Value) -> bool {
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        let version = set.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let oldest = number(Some(&self.query.resource_version)).unwrap_or_default();
        number(version).is_none_or(|version| version >= oldest)
    }

    fn matches(&self, name: &ObjectName, set: &Value, owned: &BTreeSet<OwnedApplication>) -> bool {
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        is(&self.query.name, &name.name)
            && is(&self.query.namespace, &name.namespace)
            && is_in_projects(set, owned, &self.query.projects)
            && self.selector.matches(&labels(set))
    }
}

impl WatchedSet {
    /// The set with its latest status.
    fn current(&self) -> Arc<Value> {
        let current = self.status.as_ref().and_then(|status| status.applied_to(&self.set));
        current.map_or_else(|| Arc::clone(&self.set), Arc::new)
    }

    fn is_same(&self, other: &Self) -> bool {
        let pointer = |status: &Option<Arc<ApplicationSetStatus>>| status.as_ref().map(Arc::as_ptr);
        Arc::ptr_eq(&self.set, &other.set) && pointer(&self.status) == pointer(&other.status)
    }
}

/// The changes of the sets that are shown. A set that is no longer shown counts as deleted, in its
/// state when it was last shown.
fn changed(before: &Sets, now: &Sets) -> Vec<(EventType, Arc<Value>)> {
    fn shown<'a>(sets: &'a Sets, name: &ObjectName) -> Option<&'a WatchedSet> {
        sets.get(name).filter(|watched_set| watched_set.is_shown)
    }
    let names: BTreeSet<&ObjectName> = before.keys().chain(now.keys()).collect();
    let became = |name: &ObjectName| match (shown(before, name), shown(now, name)) {
        (None, Some(set)) => Some((EventType::Added, set.current())),
        (Some(was), Some(set)) if was.is_same(set) => None,
        (Some(was), Some(set)) => {
            let set = set.current();
            (was.current() != set).then_some((EventType::Modified, set))
        }
        (Some(was), None) => Some((EventType::Deleted, was.current())),
        (None, None) => None,
    };
    names.into_iter().filter_map(became).collect()
}

/// The Applications of each set whose permissions depend on them.
pub(super) fn owned_applications(resources: &Resources, needs_owned: impl Fn(&Value) -> bool) -> OwnedApplications {
    let sets = resources.application_sets.iter();
    let dependent = sets.filter(|(_, set)| needs_owned(set));
    let mut found: OwnedApplications = dependent.map(|(name, _)| (name.clone(), BTreeSet::new())).collect();
    if found.is_empty() {
        return found;
    }
    for application in resources.applications.values() {
        let owner = application.application_set.as_ref().map(|set| ObjectName {
            namespace: application.name.namespace.clone(),
            name: set.clone(),
        });
        if let Some(owned) = owner.and_then(|owner| found.get_mut(&owner)) {
            owned.insert(OwnedApplication::of(application));
        }
    }
    found
}

#[cfg(test)]
mod tests;
