//! Watches ApplicationSets: sends an event for each set that changed while the caller may see it.
//!
//! Memory is bounded, because events of later snapshots are not queued: sets are compared again
//! once all events were sent. Comparisons run off the threads that serve.
//!
//! Security: events come only from snapshots by which every open exchange was reauthorized. None
//! comes from a snapshot in which the caller is unknown, and none shows a set as it was while the
//! caller could not see it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use serde_json::Value;
use tokio::sync::watch;

use crate::applicationsets::permit::{self, is_templated, project_text};
use crate::applicationsets::read::{is_in_projects, labels};
use crate::applicationsets::request::{Error, EventType, Query, WatchEvent};
use crate::applicationsets::{ApplicationSetHandler, ApplicationSetsFrontState};
use crate::open_exchanges::{PtrEqArc, Reauthorization};
use crate::rejection::Rejection;
use crate::snapshot::Snapshot;
use tollgate_applicationset::selector::Selector;
use tollgate_identity::authenticate::Principal;
use tollgate_policy::rbac::Rbac;
use tollgate_policy::rego::Bundle;
use tollgate_state::{ObjectName, Resources};

mod comparisons;

pub(super) use comparisons::ComparisonScheduler;

#[derive(Clone, Debug)]
struct WatchedSet {
    set: Arc<Value>,
    /// Projects of its Applications, if its own is a template.
    owned: BTreeSet<String>,
    is_shown: bool,
}

type Sets = BTreeMap<ObjectName, WatchedSet>;

/// Everything but the set itself that decides whether a caller may see it.
struct VisibilityInputs {
    rbac: Arc<Rbac>,
    policy: Option<Arc<Bundle>>,
}

struct Watcher {
    front_state: Arc<ApplicationSetsFrontState>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    generation: u64,
    principal: Arc<Principal>,
    query: Query,
    selector: Selector,
    watched: Sets,
    visibility_inputs: Option<VisibilityInputs>,
    queue: VecDeque<WatchEvent>,
}

impl ApplicationSetHandler<'_, '_> {
    /// Streams events until the caller goes away. As in Argo CD, a watch of one set begins with an
    /// event that has its current state.
    pub(super) async fn watch(&mut self, query: Query) -> Result<BoxStream<'static, WatchEvent>, Rejection> {
        let selector = Selector::parse(&query.selector).map_err(Error::Selector)?;
        let reauthorization = Reauthorization::ApplicationSets(PtrEqArc(Arc::clone(self.principal)));
        let guard = self.open.register(reauthorization, (self.snapshot, self.record.id()))?;
        // Subscribe first, so that no change from now on is missed.
        let snapshots = self.open.subscribe();
        let snapshot = self.current.load_full();
        let mut watcher = Watcher {
            front_state: Arc::clone(self.front_state),
            snapshots,
            generation: snapshot.generation,
            principal: Arc::clone(self.principal),
            selector,
            watched: Sets::new(),
            visibility_inputs: None,
            queue: VecDeque::new(),
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
        let ending = guard.ending();
        let events = stream::unfold((watcher, guard), |(watcher, guard)| async move {
            let (event, watcher) = watcher.next().await?;
            Some((event, (watcher, guard)))
        });
        let ended = async move { ending.ended().await };
        Ok(events.take_until(ended).boxed())
    }
}

impl Watcher {
    /// The next event. `None` if the front is closed or the gateway stops.
    async fn next(mut self) -> Option<(WatchEvent, Self)> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some((event, self));
            }
            self.snapshots.changed().await.ok()?;
            let front_state = Arc::clone(&self.front_state);
            let person = self.principal.limit_key();
            let compared = front_state.comparisons.run(person, move || self.compare_newest());
            self = compared.await??;
        }
    }

    /// Compares with the newest snapshot, once this watch is scheduled. `None` if the front is
    /// closed.
    fn compare_newest(mut self) -> Option<Self> {
        let snapshot = Arc::clone(&self.snapshots.borrow_and_update());
        if snapshot.generation > self.generation {
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
        Some(())
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
        let mut projects = projects(&snapshot.policies.resources);
        let evaluate = |(name, set): (&ObjectName, &Arc<Value>)| {
            let owned = projects.remove(name).unwrap_or_default();
            let earlier = self.watched.get(name).filter(|earlier| {
                let is_unchanged = is_as_before && earlier.owned == owned;
                is_unchanged && Arc::ptr_eq(&earlier.set, set)
            });
            let is_shown = match earlier {
                Some(earlier) => earlier.is_shown,
                None => {
                    self.matches(name, set, &owned) && authorizer.may_get(name, set, owned.iter().map(String::as_str))
                }
            };
            let watched_set = WatchedSet {
                set: Arc::clone(set),
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

    fn matches(&self, name: &ObjectName, set: &Value, owned: &BTreeSet<String>) -> bool {
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        is(&self.query.name, &name.name)
            && is(&self.query.namespace, &name.namespace)
            && is_in_projects(set, owned, &self.query.projects)
            && self.selector.matches(&labels(set))
    }
}

/// The changes of the sets that are shown. A set that is no longer shown counts as deleted, in its
/// state when it was last shown.
fn changed(before: &Sets, now: &Sets) -> Vec<(EventType, Arc<Value>)> {
    let shown = |sets: &Sets, name: &ObjectName| -> Option<Arc<Value>> {
        let watched_set = sets.get(name).filter(|watched_set| watched_set.is_shown);
        watched_set.map(|watched_set| Arc::clone(&watched_set.set))
    };
    let names: BTreeSet<&ObjectName> = before.keys().chain(now.keys()).collect();
    let became = |name: &ObjectName| match (shown(before, name), shown(now, name)) {
        (None, Some(set)) => Some((EventType::Added, set)),
        (Some(was), Some(set)) if !Arc::ptr_eq(&was, &set) && was != set => Some((EventType::Modified, set)),
        (Some(was), None) => Some((EventType::Deleted, was)),
        (None, None) | (Some(_), Some(_)) => None,
    };
    names.into_iter().filter_map(became).collect()
}

/// For each set whose own project is a template, the projects of the Applications it
/// owns.
pub(super) fn projects(resources: &Resources) -> BTreeMap<ObjectName, BTreeSet<String>> {
    let templated = resources
        .application_sets
        .iter()
        .filter(|(_, set)| is_templated(project_text(set)));
    let mut found: BTreeMap<ObjectName, BTreeSet<String>> =
        templated.map(|(name, _)| (name.clone(), BTreeSet::new())).collect();
    if found.is_empty() {
        return found;
    }
    for application in resources.applications.values() {
        let owner = application.application_set.as_ref().map(|set| ObjectName {
            namespace: application.name.namespace.clone(),
            name: set.clone(),
        });
        if let Some(projects) = owner.and_then(|owner| found.get_mut(&owner)) {
            projects.insert(application.project.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests;
