//! The decoded objects of one watch. An object keeps its pointer while it says the same.
//!
//! Invariant: the old objects stay until a new list is complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::runtime::watcher::Event;
use serde_json::{Map, Value};

use super::kinds::{WatchRequirement, WatchSpec};
use super::object::Object;
use super::problem::WatchFailure;
use crate::ObjectName;
use crate::decode::read::{Content, DecodedItem, Kind, ObjectDecoder, reuse_equal};
use crate::fields::{Fields, Source};
use tollgate_core::yaml;

/// The objects of one watch.
#[derive(Debug)]
pub(super) struct WatchStore {
    pub(super) watched: WatchSpec,
    pub(super) state: WatchState,
    objects: BTreeMap<ObjectName, Entry>,
    /// The objects of a list that is not complete yet.
    incoming: Option<BTreeMap<ObjectName, Entry>>,
}

/// The state of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WatchState {
    /// No list has been complete yet; with the reason, if known.
    Waiting(Option<WatchFailure>),
    /// Up to date as far as anybody knows.
    Current,
    /// The kind does not exist or may not be read, and the gateway can do without it.
    Absent(WatchFailure),
    /// The objects are the last known ones and may be out of date.
    Stale(WatchFailure),
}

/// Whether those who loaded before should load again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreChange {
    Nothing,
    Changed,
}

/// An object.
#[derive(Clone, Debug)]
struct Entry {
    version: Option<String>,
    uid: Option<String>,
    items: Arc<[DecodedItem]>,
}

impl WatchStore {
    pub(super) fn new(watched: WatchSpec) -> Self {
        Self {
            watched,
            state: WatchState::Waiting(None),
            objects: BTreeMap::new(),
            incoming: None,
        }
    }

    /// What the objects say.
    pub(super) fn decoded_items(&self) -> impl Iterator<Item = Arc<[DecodedItem]>> {
        self.objects.values().map(|entry| Arc::clone(&entry.items))
    }

    /// Applies an event; `namespace` is the control plane's.
    pub(super) fn apply(&mut self, event: Event<Object>, namespace: &str) -> StoreChange {
        match event {
            Event::Init => {
                self.incoming = Some(BTreeMap::new());
                StoreChange::Nothing
            }
            Event::InitApply(object) => {
                let (name, entry) = self.entry(&object, namespace);
                self.incoming.get_or_insert_default().insert(name, entry);
                StoreChange::Nothing
            }
            Event::InitDone => self.replace(),
            Event::Apply(object) => {
                let (name, entry) = self.entry(&object, namespace);
                let now = Arc::clone(&entry.items);
                match self.objects.insert(name, entry) {
                    Some(then) if Arc::ptr_eq(&then.items, &now) => self.mark_synced(StoreChange::Nothing),
                    Some(_) | None => self.mark_synced(StoreChange::Changed),
                }
            }
            Event::Delete(object) => match self.objects.remove(&name_of(&object)) {
                Some(_) => self.mark_synced(StoreChange::Changed),
                None => self.mark_synced(StoreChange::Nothing),
            },
        }
    }

    /// Records that the watch broke. `problem` stays until a list is complete again.
    pub(super) fn fail(&mut self, problem: WatchFailure) -> StoreChange {
        self.incoming = None;
        let optional = self.watched.need == WatchRequirement::Optional;
        let is_gone = problem.is_missing_kind();
        let dispensable = match self.watched.need {
            WatchRequirement::Required => false,
            WatchRequirement::Optional => problem.is_absence(),
            WatchRequirement::OneOfSeveral => problem.is_forbidden(),
        };
        let state = match &self.state {
            WatchState::Waiting(_) if dispensable => WatchState::Absent(problem),
            WatchState::Waiting(_) => WatchState::Waiting(Some(problem)),
            // If a definition is deleted, its objects are deleted too.
            WatchState::Current | WatchState::Absent(_) | WatchState::Stale(_) if optional && is_gone => {
                self.objects.clear();
                WatchState::Absent(problem)
            }
            WatchState::Absent(_) => WatchState::Absent(problem),
            WatchState::Current | WatchState::Stale(_) => WatchState::Stale(problem),
        };
        if self.state == state {
            return StoreChange::Nothing;
        }
        self.state = state;
        StoreChange::Changed
    }

    fn mark_synced(&mut self, effect: StoreChange) -> StoreChange {
        if self.state == WatchState::Current {
            return effect;
        }
        self.state = WatchState::Current;
        StoreChange::Changed
    }

    /// Puts a complete list in force.
    fn replace(&mut self) -> StoreChange {
        let new = self.incoming.take().unwrap_or_default();
        let same = new.len() == self.objects.len()
            && new
                .iter()
                .zip(&self.objects)
                .all(|(new, old)| new.0 == old.0 && Arc::ptr_eq(&new.1.items, &old.1.items));
        self.objects = new;
        self.mark_synced(if same {
            StoreChange::Nothing
        } else {
            StoreChange::Changed
        })
    }

    /// Decodes an object, unless it did not change.
    fn entry(&self, object: &Object, namespace: &str) -> (ObjectName, Entry) {
        let name = name_of(object);
        let (version, uid) = (object.metadata.resource_version.clone(), object.metadata.uid.clone());
        let old = self.objects.get(&name);
        let items = match old {
            Some(old) if version.is_some() && old.version == version && old.uid == uid => Arc::clone(&old.items),
            old => {
                let mut items = read(self.watched.kind, object, namespace);
                if let Some(old) = old {
                    reuse_equal(&mut items, &old.items);
                }
                match old {
                    Some(old) if is_unchanged(&items, &old.items) => Arc::clone(&old.items),
                    Some(_) | None => items.into(),
                }
            }
        };
        let entry = Entry { version, uid, items };
        (name, entry)
    }
}

fn name_of(object: &Object) -> ObjectName {
    ObjectName {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
    }
}

/// Whether an Application, an ApplicationSet or a project says the same as before. Argo CD writes
/// the status of Applications and ApplicationSets all the time, and the status does not matter
/// here.
fn is_unchanged(new: &[DecodedItem], old: &[DecodedItem]) -> bool {
    let ([DecodedItem::Object(new)], [DecodedItem::Object(old)]) = (new, old) else {
        return false;
    };
    let same = match (&new.content, &old.content) {
        (Content::Application(new), Content::Application(old)) => Arc::ptr_eq(new, old),
        (Content::Project(new), Content::Project(old)) => Arc::ptr_eq(new, old),
        (Content::ApplicationSet(new), Content::ApplicationSet(old)) => is_same_set(new, old),
        (Content::Nothing, Content::Nothing) => true,
        _ => false,
    };
    same && new.findings == old.findings
}

/// Whether two states of an ApplicationSet differ at most in what a write of its status changes.
fn is_same_set(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
        return new == old;
    };
    compared_fields(new).eq(compared_fields(old)) && compared_metadata(new).eq(compared_metadata(old))
}

fn compared_fields(set: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    set.iter()
        .filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status"))
}

fn compared_metadata(set: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let metadata = set.get("metadata").and_then(Value::as_object);
    let members = metadata.into_iter().flatten();
    members.filter(|(key, _)| !matches!(key.as_str(), "resourceVersion" | "generation"))
}

/// Reads what an object says.
fn read(kind: Kind, object: &Object, namespace: &str) -> Vec<DecodedItem> {
    let name = name_of(object);
    let place = format!("kubernetes {} {}/{}", kind.as_str(), name.namespace, name.name);
    let source = Source::file(Arc::from(place.as_str()));
    let node = yaml::from_json(&object.value);
    let mut reader = ObjectDecoder::new(namespace);
    let mut findings = Vec::new();
    match Fields::open(&node, &source, String::new(), &mut findings) {
        Some(fields) => reader.decode_object(fields, kind),
        None => findings.into_iter().for_each(|finding| reader.report(finding)),
    }
    reader.finish()
}

#[cfg(test)]
mod tests;
