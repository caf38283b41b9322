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

use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::applicationsets::read::is_in_projects;
use crate::applicationsets::request::{Error, EventStream, EventType, Query, WatchEvent};
use crate::applicationsets::{ApplicationSetHandler, ApplicationSetsFrontState};
use tollgate_applicationset::selector::Selector;
use tollgate_applicationset_rights::{self, self as permit, labels};
use tollgate_front::Denial;
use tollgate_front::open_exchanges::{Change, PtrEqArc, Reauthorize};
use tollgate_front::policies::{Policies, PolicyBundle};
use tollgate_front::set_list::{OwnedApplication, SetList};
use tollgate_front::snapshot::Snapshot;
use tollgate_identity::authenticate::Principal;
use tollgate_objects::{ApplicationSetStatus, ApplicationSetStatuses, ObjectName};
use tollgate_policy::rbac::Rbac;
use tollgate_rego as rego;

mod comparisons;
mod statuses;

pub(super) use comparisons::ComparisonScheduler;

pub(super) use statuses::EndedWatches;

use statuses::{StatusReceiver, is_unreported};

/// Time between two comparisons that only a changed status causes.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// The sets that a watch shows, by name.
#[derive(Debug, Default)]
struct ShownSets(BTreeMap<Arc<ObjectName>, ShownSet>);

#[derive(Clone, Debug)]
struct ShownSet {
    /// The set in the snapshot.
    set: Arc<Value>,
    /// Its status, if it was written without a change of the snapshot.
    status: Option<Arc<ApplicationSetStatus>>,
}

/// What changed of the sets that a watch shows, by name.
type SetChanges = BTreeMap<Arc<ObjectName>, (EventType, Arc<Value>)>;

/// Everything that decides which sets a caller may see. What else decides changes neither the
/// caller nor the set.
struct ComparedWith {
    sets: Arc<SetList>,
    rbac: Arc<Rbac>,
    policy: Arc<PolicyBundle>,
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
    shown: ShownSets,
    /// What `shown` was last compared with.
    compared_with: Option<ComparedWith>,
    compared_statuses: Arc<ApplicationSetStatuses>,
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

/// A watch of ApplicationSets. Every authenticated caller may watch, because each event is authorized by itself.
#[derive(Debug, PartialEq, Eq, Hash)]
struct WatchReauthorization(PtrEqArc<Principal>);

impl Reauthorize for WatchReauthorization {
    fn front(&self) -> &'static str {
        "applicationsets"
    }

    fn principal(&self) -> Option<&Principal> {
        let Self(PtrEqArc(principal)) = self;
        Some(principal)
    }

    fn is_allowed_by(&self, now: &Snapshot) -> bool {
        let Self(PtrEqArc(principal)) = self;
        now.policies.bundle(rego::Front::ApplicationSets).is_some() && now.authenticator.is_still_valid(principal)
    }

    fn inputs_unchanged(&self, change: &Change<'_>) -> bool {
        change.same_callers()
    }
}

impl ApplicationSetHandler<'_, '_> {
    /// Streams events until the caller goes away. As in Argo CD, a watch of one set begins with an
    /// event that has its current state.
    pub(super) async fn watch(&mut self, query: Query) -> Result<EventStream, Denial> {
        let selector = Selector::parse(&query.selector).map_err(Error::Selector)?;
        let reauthorization = WatchReauthorization(PtrEqArc(Arc::clone(self.principal)));
        let guard = self.open.register(reauthorization, self.snapshot, self.record.id())?;
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
            shown: ShownSets::default(),
            compared_with: None,
            compared_statuses: Arc::default(),
            queue: VecDeque::new(),
            controller_timeout: settings.map_or(Duration::ZERO, |settings| settings.controller_timeout),
            unreported: None,
            query,
        };
        let compared = move || watcher.compare(&snapshot).map(|()| watcher);
        let comparisons = &self.front_state.comparisons;
        let compared = comparisons.run(self.principal.limit_key(), compared).await;
        // A closed front responds as if it did not exist.
        let mut watcher = compared.ok_or(Error::Broken)?.ok_or_else(Denial::not_found)?;
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
            if self.is_up_to_date() {
                continue;
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

    /// Whether there is nothing to compare: most changes of objects change no set.
    fn is_up_to_date(&mut self) -> bool {
        let snapshot = self.snapshots.borrow_and_update();
        let same_sets = self.compared_with.as_ref();
        let same_sets = same_sets.is_some_and(|compared| compared.is_same(&snapshot.policies));
        same_sets && Arc::ptr_eq(&self.statuses.latest(), &self.compared_statuses)
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
        let changed = self.changes(snapshot)?;
        let changes = changed.into_values();
        let changes = changes.filter(|(event, set)| *event == EventType::Deleted || self.is_new_enough(set));
        self.queue = changes.map(|(event, set)| WatchEvent { event, set }).collect();
        self.compared_at = Instant::now();
        self.note_unreported();
        Some(())
    }

    /// Notes since when a set that is watched by its name has no condition.
    fn note_unreported(&mut self) {
        let is_waiting = !self.query.name.is_empty() && !self.query.is_for_page;
        let mut named = self.shown.0.iter().filter(|_| is_waiting);
        let unreported = named.find(|(_, shown)| is_unreported(&shown.current()));
        self.unreported = unreported.map(|(name, _)| match self.unreported.take() {
            Some((before, since)) if before == **name => (before, since),
            _ => (ObjectName::clone(name), self.compared_at),
        });
    }

    /// Updates what the watch shows: the sets that match it and that the caller may see, as in a
    /// list. Only sets whose result could have changed are evaluated. Returns the changes by name.
    fn changes(&mut self, snapshot: &Arc<Snapshot>) -> Option<SetChanges> {
        let policies = &snapshot.policies;
        let now = ComparedWith::of(policies)?;
        let caller = policies.caller(&self.principal);
        let authorizer = permit::SetAuthorizer::new(policies, &caller)?;
        let statuses = self.statuses.latest();
        let mut changes = SetChanges::new();
        let unchanged_rules = self.compared_with.as_ref().filter(|before| before.has_rules_of(&now));
        let names = match unchanged_rules {
            Some(before) => now.sets.changes_since(&before.sets),
            None => {
                // What left the list of sets is not in it any more, but still shown.
                let shown = self.shown.0.keys().filter(|name| now.sets.find(name).is_none());
                now.sets.iter().map(|entry| &entry.name).chain(shown).cloned().collect()
            }
        };
        for name in names {
            let entry = now.sets.find(&name).filter(|entry| {
                let (set, owned) = (&entry.set, entry.owned());
                self.matches(&name, set, owned) && authorizer.may_get(&name, set, owned)
            });
            let set = entry.map(|entry| Arc::clone(&entry.set));
            if let Some(change) = self.shown.update(&name, set, &statuses) {
                changes.insert(name, change);
            }
        }
        if !Arc::ptr_eq(&statuses, &self.compared_statuses) {
            self.shown.update_statuses(&statuses, &mut changes);
        }
        (self.compared_with, self.compared_statuses) = (Some(now), statuses);
        Some(changes)
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

impl ComparedWith {
    /// `None` if the front is closed.
    fn of(policies: &Policies) -> Option<Self> {
        Some(Self {
            sets: Arc::clone(&policies.sets),
            rbac: Arc::clone(&policies.rbac),
            policy: Arc::clone(policies.bundle(rego::Front::ApplicationSets)?),
        })
    }

    fn has_rules_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.rbac, &other.rbac) && Arc::ptr_eq(&self.policy, &other.policy)
    }

    /// Whether a caller sees the same of a snapshot with these policies.
    fn is_same(&self, policies: &Policies) -> bool {
        let same_policy = policies
            .bundle(rego::Front::ApplicationSets)
            .is_some_and(|now| Arc::ptr_eq(&self.policy, now));
        same_policy && Arc::ptr_eq(&self.rbac, &policies.rbac) && Arc::ptr_eq(&self.sets, &policies.sets)
    }
}

impl ShownSets {
    /// Shows a set as it is now, or no longer. Returns the change: a set that is no longer shown
    /// counts as deleted, in its state when it was last shown.
    fn update(
        &mut self,
        name: &Arc<ObjectName>,
        set: Option<Arc<Value>>,
        statuses: &ApplicationSetStatuses,
    ) -> Option<(EventType, Arc<Value>)> {
        let Some(set) = set else {
            let was = self.0.remove(name)?;
            return Some((EventType::Deleted, was.current()));
        };
        let earlier = self.0.get(name);
        let status = statuses.get(name).or_else(|| earlier?.status.as_ref()).cloned();
        let now = ShownSet { set, status };
        let current = now.current();
        match self.0.insert(Arc::clone(name), now) {
            None => Some((EventType::Added, current)),
            Some(was) => (was.current() != current).then_some((EventType::Modified, current)),
        }
    }

    /// Updates the statuses of the sets that are shown, and adds what changed to `changes`.
    fn update_statuses(&mut self, statuses: &ApplicationSetStatuses, changes: &mut SetChanges) {
        for (name, shown) in &mut self.0 {
            let Some(status) = statuses.get(&**name) else { continue };
            if shown.status.as_ref().is_some_and(|before| Arc::ptr_eq(before, status)) {
                continue;
            }
            let before = shown.current();
            shown.status = Some(Arc::clone(status));
            let now = shown.current();
            if before != now {
                // A change that is in there already was made with the new status.
                changes.entry(Arc::clone(name)).or_insert((EventType::Modified, now));
            }
        }
    }
}

impl ShownSet {
    /// The set with its latest status.
    fn current(&self) -> Arc<Value> {
        let current = self.status.as_ref().and_then(|status| status.applied_to(&self.set));
        current.map_or_else(|| Arc::clone(&self.set), Arc::new)
    }
}

#[cfg(test)]
mod tests;
