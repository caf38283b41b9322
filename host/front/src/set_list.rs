//! The ApplicationSets of a snapshot in order of their names, with the Applications on which the
//! permissions on them depend. The snapshot has one list, which every watch and every request shares.
//!
//! It is made when the snapshot is, from the list before it: the same list if nothing in it changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxBuildHasher;
use serde_json::Value;

use tollgate_config::{ApplicationSetPermissions, ApplicationSets};
use tollgate_objects::{Application, ObjectName, Project, Resources};

/// The ApplicationSets of a snapshot.
#[derive(Debug, Default)]
pub struct SetList {
    /// Differs from that of every other list that is not empty.
    number: u64,
    /// In order of their names.
    entries: Vec<SetEntry>,
    /// All projects, if a set's permissions depend on them.
    projects: Vec<Arc<Project>>,
    /// The number of the list before this one.
    previous: u64,
    /// What differs between that list and this one.
    changed: Vec<Arc<ObjectName>>,
}

/// One set.
#[derive(Debug)]
pub struct SetEntry {
    /// Its name.
    pub name: Arc<ObjectName>,
    /// The set as it is stored.
    pub set: Arc<Value>,
    /// Its Applications. `None` if the permissions on it depend neither on them nor on projects.
    owned: Option<Arc<BTreeSet<OwnedApplication>>>,
}

static NO_APPLICATIONS: BTreeSet<OwnedApplication> = BTreeSet::new();

impl SetEntry {
    /// Its Applications, if the permissions on it depend on them.
    pub fn owned(&self) -> &BTreeSet<OwnedApplication> {
        self.owned.as_deref().unwrap_or(&NO_APPLICATIONS)
    }
}

impl SetList {
    /// The list of `resources`.
    ///
    /// - `previous`: the list of the snapshot before. It is returned if it is the list of
    ///   `resources` as well.
    /// - `needs_owned`: whether the permissions on a set depend on its Applications, or on all
    ///   projects if it has none.
    pub fn next(
        previous: Option<&Arc<Self>>,
        resources: &Resources,
        needs_owned: impl Fn(&Value) -> bool,
    ) -> Arc<Self> {
        // 0 is the number of the empty list.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let none = Arc::default();
        let previous = previous.unwrap_or(&none);
        let mut all_owned = owned_applications(resources, needs_owned);
        let has_dependent = !all_owned.is_empty();
        let entry = |(name, set): (&ObjectName, &Arc<Value>)| {
            let before = previous.find(name);
            let owned = all_owned.remove(name).map(|now| {
                // Shared with the list before, so that a comparison of both is mostly one of pointers.
                let unchanged = before.and_then(|before| before.owned.as_ref());
                unchanged
                    .filter(|before| ***before == now)
                    .map_or_else(|| Arc::new(now), Arc::clone)
            });
            SetEntry {
                name: before.map_or_else(|| Arc::new(name.clone()), |before| Arc::clone(&before.name)),
                set: Arc::clone(set),
                owned,
            }
        };
        let mut list = Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            entries: resources.application_sets.iter().map(entry).collect(),
            projects: match has_dependent {
                true => resources.projects.values().cloned().collect(),
                false => Vec::new(),
            },
            previous: previous.number,
            changed: Vec::new(),
        };
        list.changed = list.differences(previous);
        if list.changed.is_empty() {
            return Arc::clone(previous);
        }
        Arc::new(list)
    }

    /// The sets in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &SetEntry> {
        self.entries.iter()
    }

    /// The set of this name.
    pub fn find(&self, name: &ObjectName) -> Option<&SetEntry> {
        let found = self.entries.binary_search_by(|entry| (*entry.name).cmp(name));
        self.entries.get(found.ok()?)
    }

    /// The names of sets that differ from those of an earlier list, or whose permissions may.
    pub fn changes_since(&self, before: &Self) -> Vec<Arc<ObjectName>> {
        match before.number {
            number if number == self.number => Vec::new(),
            // A watch that keeps up asks for the last step, which is computed once for all watches.
            number if number == self.previous => self.changed.clone(),
            _ => self.differences(before),
        }
    }

    fn differences(&self, before: &Self) -> Vec<Arc<ObjectName>> {
        let same_projects = self.projects.len() == before.projects.len()
            && self
                .projects
                .iter()
                .zip(&before.projects)
                // A project that was decoded anew counts as changed: at worst an event too many, never one too few.
                .all(|(now, before)| Arc::ptr_eq(now, before));
        let is_same = |before: &SetEntry, now: &SetEntry| {
            let same_owned = match (&before.owned, &now.owned) {
                (None, None) => true,
                (Some(before), Some(now)) => same_projects && (Arc::ptr_eq(before, now) || before == now),
                (Some(_), None) | (None, Some(_)) => false,
            };
            same_owned && Arc::ptr_eq(&before.set, &now.set)
        };
        let is_changed = |now: &&SetEntry| before.find(&now.name).is_none_or(|before| !is_same(before, now));
        let is_gone = |before: &&SetEntry| self.find(&before.name).is_none();
        let changed = self.entries.iter().filter(is_changed);
        let gone = before.entries.iter().filter(is_gone);
        changed.chain(gone).map(|entry| Arc::clone(&entry.name)).collect()
    }
}

/// The Applications of each set whose permissions depend on them.
fn owned_applications(
    resources: &Resources,
    needs_owned: impl Fn(&Value) -> bool,
) -> BTreeMap<ObjectName, BTreeSet<OwnedApplication>> {
    let sets = resources.application_sets.iter();
    let dependent = sets.filter(|(_, set)| needs_owned(set));
    let mut found: BTreeMap<_, BTreeSet<_>> = dependent.map(|(name, _)| (name.clone(), BTreeSet::new())).collect();
    if found.is_empty() {
        return found;
    }
    // By borrowed names: an `ObjectName` for each lookup would be two allocations for each Application.
    let mut by_namespace: HashMap<&str, HashMap<&str, &mut BTreeSet<_>, FxBuildHasher>, FxBuildHasher> =
        HashMap::default();
    for (name, owned) in &mut found {
        let members = by_namespace.entry(&name.namespace).or_default();
        members.insert(&name.name, owned);
    }
    for application in resources.applications.values() {
        let owner = application.application_set.as_ref().map(|owner| owner.name.as_str());
        // An owner reference of Kubernetes cannot name an object of another namespace.
        let members = by_namespace.get_mut(application.name.namespace.as_str());
        let owned = owner.zip(members).and_then(|(owner, members)| members.get_mut(owner));
        if let Some(owned) = owned {
            owned.insert(OwnedApplication::of(application));
        }
    }
    drop(by_namespace);
    found
}

/// Whether the permissions on a set depend on the Applications it owns, and on the projects that
/// exist if it owns none.
pub fn needs_owned(settings: &ApplicationSets, set: &Value) -> bool {
    is_templated(project_text(set)) || settings.permissions == ApplicationSetPermissions::Inherited
}

/// An Application that a set owns, as far as the permissions on the set depend on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnedApplication {
    /// Its project.
    pub project: String,
    /// Its name, in the namespace of the set.
    pub name: String,
}

impl OwnedApplication {
    /// From a decoded Application.
    pub fn of(application: &Application) -> Self {
        Self {
            project: application.project.clone(),
            name: application.name.name.clone(),
        }
    }

    /// From an Application as it is stored.
    pub fn of_stored(application: &Value) -> Self {
        let name = application.pointer("/metadata/name").and_then(Value::as_str);
        Self {
            project: project_of(application).to_owned(),
            name: name.unwrap_or_default().to_owned(),
        }
    }
}

/// The project of a set's template, as it is written.
pub fn project_text(set: &Value) -> &str {
    let text = set.pointer("/spec/template/spec/project").and_then(Value::as_str);
    text.unwrap_or_default()
}

/// Whether a project is only known once Applications are rendered.
pub fn is_templated(project: &str) -> bool {
    // Both template engines of Argo CD begin a placeholder like this.
    project.contains("{{")
}

/// The project; `default` if it is empty, as in Argo CD.
pub fn or_default(project: &str) -> &str {
    if project.is_empty() { "default" } else { project }
}

/// The project of an Application, `default` if it names none.
pub fn project_of(application: &Value) -> &str {
    let text = application.pointer("/spec/project").and_then(Value::as_str);
    or_default(text.unwrap_or_default())
}

#[cfg(test)]
mod tests;
