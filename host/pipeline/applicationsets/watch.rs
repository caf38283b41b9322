//! What becomes of ApplicationSets, as it happens.
//!
//! In: snapshots as they come into force. Out: an event for each set that changed,
//! while the caller may see it. Never: an event after the caller's account was
//! withdrawn; a queue without a bound: what was not sent yet is compared anew.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Desk;
use super::read::{is_of, labels};
use crate::applicationset::selector::Selector;
use crate::authenticate::Principal;
use crate::authorize::applicationsets;
use crate::front::applicationsets::{Error, Watch};
use crate::rejection::Rejection;
use crate::snapshot::{Current, Snapshot};
use crate::state::{ObjectName, Resources};

/// What becomes of a set, as Kubernetes says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Added,
    Modified,
    Deleted,
}

impl Event {
    fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// Somebody who watches.
struct Watcher {
    current: Current,
    changes: watch::Receiver<u64>,
    principal: Arc<Principal>,
    wanted: Watch,
    selector: Selector,
    /// What was told last.
    seen: Arc<Resources>,
    /// What is to be sent before anything is compared again.
    queue: VecDeque<Value>,
}

impl Desk<'_, '_> {
    /// Events until the caller goes away. As in Argo CD, one that is named comes first
    /// as it is.
    pub(super) fn watch(&mut self, wanted: Watch) -> Result<BoxStream<'static, Value>, Rejection> {
        let selector = Selector::parse(&wanted.filter.selector).map_err(Error::Selector)?;
        // First the signal: what changes from now on is not missed.
        let changes = self.room.changes();
        let snapshot = self.current.load_full();
        let mut watcher = Watcher {
            current: Arc::clone(self.current),
            changes,
            principal: Arc::clone(self.principal),
            selector,
            seen: Arc::clone(&snapshot.resources),
            queue: VecDeque::new(),
            wanted,
        };
        if !watcher.wanted.name.is_empty() {
            let all = snapshot.resources.application_sets.iter();
            let named = all.map(|(name, set)| (Event::Added, name, &**set));
            watcher.queue = watcher.told(&snapshot, named);
        }
        let events = stream::unfold(watcher, |mut watcher| async move {
            let event = watcher.next().await?;
            Some((event, watcher))
        });
        Ok(events.boxed())
    }
}

impl Watcher {
    /// The next event; none when the caller is not known any more, or the gateway ends.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            self.changes.changed().await.ok()?;
            let snapshot = self.current.load_full();
            if !snapshot.authenticator.still(&self.principal) {
                return None;
            }
            self.compare(&snapshot);
        }
    }

    /// Queues what differs from what was told last.
    fn compare(&mut self, snapshot: &Arc<Snapshot>) {
        let before = std::mem::replace(&mut self.seen, Arc::clone(&snapshot.resources));
        let (old, new) = (&before.application_sets, &snapshot.resources.application_sets);
        let names: BTreeSet<&ObjectName> = old.keys().chain(new.keys()).collect();
        let changed = names
            .into_iter()
            .filter_map(|name| match (old.get(name), new.get(name)) {
                (None, Some(now)) => Some((Event::Added, name, &**now)),
                (Some(was), Some(now)) if !Arc::ptr_eq(was, now) && was != now => Some((Event::Modified, name, &**now)),
                (Some(was), None) => Some((Event::Deleted, name, &**was)),
                (_, _) => None,
            });
        self.queue = self.told(snapshot, changed);
    }

    /// Events about those that are asked for and that the caller may see.
    fn told<'a>(
        &self,
        snapshot: &Arc<Snapshot>,
        events: impl Iterator<Item = (Event, &'a ObjectName, &'a Value)>,
    ) -> VecDeque<Value> {
        let caller = snapshot.callers.of(&self.principal, &snapshot.rbac);
        let Some(desk) = applicationsets::Desk::new(snapshot, &caller) else {
            return VecDeque::new();
        };
        let told = events.filter(|(_, name, set)| self.wants(name, set) && desk.may_get(name, set, std::iter::empty()));
        told.map(|(event, _, set)| json!({"type": event.as_str(), "applicationSet": set}))
            .collect()
    }

    fn wants(&self, name: &ObjectName, set: &Value) -> bool {
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        let version = set.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let oldest = number(Some(&self.wanted.resource_version)).unwrap_or_default();
        is(&self.wanted.name, &name.name)
            && is(&self.wanted.filter.namespace, &name.namespace)
            && number(version).is_none_or(|version| version >= oldest)
            && is_of(set, &BTreeSet::new(), &self.wanted.filter.projects)
            && self.selector.takes(&labels(set))
    }
}
