//! The decoded objects of one watch. An object keeps its pointer while it decodes to the same.
//!
//! Invariant: the old objects stay until a new list is complete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use kube::runtime::watcher::Event;

use super::kinds::{WatchRequirement, WatchSpec};
use super::object::{MAX_DEPTH, Object};
use super::watch_failure::{FailureClass, WatchFailure};
use tollgate_objects::decode::read::{DecodedItem, ObjectKind, is_unchanged, read_object, reuse_equal};
use tollgate_objects::{ObjectName, WatchAge};

#[derive(Debug)]
pub(super) struct WatchStore {
    pub(super) spec: WatchSpec,
    pub(super) state: WatchState,
    objects: BTreeMap<ObjectName, Entry>,
    /// The objects of a list that is not complete yet.
    incoming: Option<BTreeMap<ObjectName, Entry>>,
    event_at: Option<Instant>,
    listed_at: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WatchState {
    /// No list has been complete yet; with the reason, if known.
    Syncing(Option<WatchFailure>),
    Synced,
    /// The kind does not exist or may not be read, and the gateway can do without it.
    Unavailable(WatchFailure),
    /// The objects are the last known ones and may be out of date.
    Stale(WatchFailure),
}

#[derive(Clone, Debug)]
struct Entry {
    version: Option<String>,
    uid: Option<String>,
    items: Arc<[DecodedItem]>,
}

impl WatchStore {
    pub(super) fn new(spec: WatchSpec) -> Self {
        Self {
            spec,
            state: WatchState::Syncing(None),
            objects: BTreeMap::new(),
            incoming: None,
            event_at: None,
            listed_at: None,
        }
    }

    pub(super) fn age(&self) -> WatchAge {
        WatchAge {
            resource: self.spec.resource(),
            is_broken: matches!(self.state, WatchState::Stale(_)),
            since_event: self.event_at.map(|at| at.elapsed()),
            since_list: self.listed_at.map(|at| at.elapsed()),
        }
    }

    pub(super) fn decoded_items(&self) -> impl Iterator<Item = Arc<[DecodedItem]>> {
        self.objects.values().map(|entry| Arc::clone(&entry.items))
    }

    /// How many objects the list has that is not complete yet.
    pub(super) fn incoming_count(&self) -> usize {
        self.incoming.as_ref().map_or(0, BTreeMap::len)
    }

    pub(super) fn contains(&self, name: &ObjectName) -> bool {
        self.objects.contains_key(name)
    }

    /// Applies an event and returns whether it changed anything; `namespace` is the control plane's.
    pub(super) fn apply<const WHOLE: bool>(&mut self, event: Event<Object<WHOLE>>, namespace: &str) -> bool {
        let now = Instant::now();
        self.event_at = Some(now);
        if matches!(event, Event::InitDone) {
            self.listed_at = Some(now);
        }
        match event {
            Event::Init => {
                self.incoming = Some(BTreeMap::new());
                false
            }
            Event::InitApply(object) => {
                let (name, entry) = self.entry(&object, namespace);
                self.incoming.get_or_insert_default().insert(name, entry);
                false
            }
            Event::InitDone => self.replace(),
            Event::Apply(object) => {
                let (name, entry) = self.entry(&object, namespace);
                let now = Arc::clone(&entry.items);
                let then = self.objects.insert(name, entry);
                self.mark_synced(then.is_none_or(|then| !Arc::ptr_eq(&then.items, &now)))
            }
            Event::Delete(object) => {
                let removed = self.objects.remove(&name_of(&object));
                self.mark_synced(removed.is_some())
            }
        }
    }

    /// Records that the watch broke and returns whether that changed anything. `failure` stays until
    /// a list is complete again.
    pub(super) fn fail(&mut self, failure: WatchFailure) -> bool {
        // Every new attempt lists from the beginning.
        self.incoming = None;
        let optional = self.spec.requirement == WatchRequirement::Optional;
        let is_gone = failure.class == FailureClass::MissingKind;
        let is_forbidden = failure.class == FailureClass::Forbidden;
        let dispensable = match self.spec.requirement {
            WatchRequirement::Required => false,
            WatchRequirement::Optional => is_gone || is_forbidden,
            WatchRequirement::OneOfSeveral => is_forbidden,
        };
        let state = match &self.state {
            WatchState::Syncing(_) if dispensable => WatchState::Unavailable(failure),
            WatchState::Syncing(_) => WatchState::Syncing(Some(failure)),
            // If a definition is deleted, its objects are deleted too.
            WatchState::Synced | WatchState::Unavailable(_) | WatchState::Stale(_) if optional && is_gone => {
                self.objects.clear();
                WatchState::Unavailable(failure)
            }
            WatchState::Unavailable(_) => WatchState::Unavailable(failure),
            WatchState::Synced | WatchState::Stale(_) => WatchState::Stale(failure),
        };
        let changed = self.state != state;
        self.state = state;
        changed
    }

    /// Records that the watch works; `changed` says whether its objects changed.
    fn mark_synced(&mut self, changed: bool) -> bool {
        let was_synced = self.state == WatchState::Synced;
        self.state = WatchState::Synced;
        changed || !was_synced
    }

    fn replace(&mut self) -> bool {
        let new = self.incoming.take().unwrap_or_default();
        let is_same = |((name, new), (old_name, old)): ((&ObjectName, &Entry), (&ObjectName, &Entry))| {
            name == old_name && Arc::ptr_eq(&new.items, &old.items)
        };
        let same = new.len() == self.objects.len() && new.iter().zip(&self.objects).all(is_same);
        self.objects = new;
        self.mark_synced(!same)
    }

    fn entry<const WHOLE: bool>(&self, object: &Object<WHOLE>, namespace: &str) -> (ObjectName, Entry) {
        let name = name_of(object);
        let (version, uid) = (object.metadata.resource_version.clone(), object.metadata.uid.clone());
        let old = self.objects.get(&name);
        let items = match old {
            Some(old) if version.is_some() && old.version == version && old.uid == uid => Arc::clone(&old.items),
            Some(old) => {
                let mut items = read(self.spec.kind, object, namespace);
                reuse_equal(&mut items, &old.items);
                match is_unchanged(&items, &old.items) {
                    true => Arc::clone(&old.items),
                    false => items.into(),
                }
            }
            None => read(self.spec.kind, object, namespace).into(),
        };
        let entry = Entry { version, uid, items };
        (name, entry)
    }
}

pub(super) fn name_of<const WHOLE: bool>(object: &Object<WHOLE>) -> ObjectName {
    ObjectName {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
    }
}

fn read<const WHOLE: bool>(kind: ObjectKind, object: &Object<WHOLE>, namespace: &str) -> Vec<DecodedItem> {
    let name = name_of(object);
    let file = format!("kubernetes {} {}/{}", kind.as_str(), name.namespace, name.name);
    let too_deep = || format!("it is nested too deeply, at most {MAX_DEPTH} levels are read");
    let defect = object.is_truncated.then(too_deep);
    read_object(kind, &object.value, Arc::from(file), namespace, defect.as_deref())
}

#[cfg(test)]
mod tests;
