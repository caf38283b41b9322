//! Plans what storing or deleting an ApplicationSet would change: the set itself and each of its
//! Applications. A plan writes nothing.
//!
//! Fields that only the store sets (`status`, versions, field managers) are not compared, and an
//! absent field equals the default that Argo CD gives it. Only passwords in URLs are hidden:
//! Applications contain no values of Secrets, and there is no way to tell which parameter of a
//! chart is secret.
//!
//! Security: an Application that belongs to something else is never changed.
//!
//! Invariant: an Application is in its set's namespace, and its project is the template's, not a patch's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::heap_size::count;
use super::{ApplicationSet, ApplicationsSync};
use tollgate_objects::ObjectName;
use tollgate_state::write::batch::Propagation;
use tollgate_state::write::{self, ObjectKey, WritableKind, Writer};

mod application;
mod diff;
mod ignore;
mod owner;
mod set;

pub use owner::{Owner, with_owner_reference, without_owner_reference};
pub use set::{is_equivalent, replaced, upserted};

use application::Planner;
use ignore::IgnoreRules;

/// Annotation of a set with the projects its Applications are in: sorted by name, separated by
/// commas. The gateway writes it and ignores what was sent.
pub const PROJECTS_ANNOTATION: &str = "tollgate.dev/projects";

/// Annotation of a set with the signed statement of its author. The component that writes the set
/// for a user signs it; what was sent is ignored.
pub const AUTHOR_ANNOTATION: &str = "tollgate.dev/author";

/// Annotation of a set with the signed statement of the Application that deployed it. Only the
/// mutating webhook signs it; what was sent is ignored.
pub const PARENT_ANNOTATION: &str = "tollgate.dev/parent";

/// What happens to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::AsRefStr, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Action {
    /// It is created.
    Create,
    /// It is updated.
    Update,
    /// It is deleted.
    Delete,
    /// It is not changed.
    Keep,
}

/// The change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedChange {
    /// Its namespace and name.
    pub name: ObjectName,
    /// What happens to it.
    pub action: Action,
    /// The stored object, with its version; `None` for [`Action::Create`].
    pub before: Option<Value>,
    /// The object to write; `None` for [`Action::Delete`] and [`Action::Keep`].
    pub after: Option<Value>,
    /// The action that the set's `applicationsSync` does not allow; the object is kept.
    pub held_back: Option<Action>,
    /// What the set generates, if the stored object will differ from it: the change is held back,
    /// or `ignoreApplicationDifferences` replaces something. Argo CD's controller still creates it
    /// once the stored object is gone.
    pub generated: Option<Value>,
}

impl PlannedChange {
    fn new(name: ObjectName, action: Action, before: Option<Value>, after: Option<Value>) -> Self {
        Self {
            name,
            action,
            before,
            after,
            held_back: None,
            generated: None,
        }
    }

    /// The object that is stored after the change; `None` if it is deleted.
    pub fn result(&self) -> Option<&Value> {
        match self.action {
            Action::Create | Action::Update => self.after.as_ref(),
            Action::Keep => self.before.as_ref(),
            Action::Delete => None,
        }
    }
}

/// Why a plan cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanProblem {
    /// A generated Application has no name. The number is its position, from 1.
    #[error("application {0} that the set generates has no name")]
    Unnamed(usize),
    /// Two generated Applications have the same name.
    #[error("the set generates more than one application with the name `{0}`")]
    Duplicate(String),
    /// An Application of that name exists and does not belong to the set. Contains the change that
    /// would be made otherwise. The owner is not named, because the caller may not be allowed to
    /// know it.
    #[error("application `{}` exists already and does not belong to the set", .0.name.name)]
    NameConflict(Box<PlannedChange>),
    /// A rule of `ignoreApplicationDifferences` cannot be applied.
    #[error("`spec.ignoreApplicationDifferences[{number}]`: {why}")]
    InvalidIgnoreRule {
        /// Index of the rule, from 0.
        number: usize,
        /// The reason.
        why: String,
    },
}

/// The stored state that a plan is based on.
#[derive(Clone, Debug, Default)]
pub struct StoredState {
    /// The set, if it exists.
    pub set: Option<Value>,
    /// All Applications of its namespace. Those that belong to the set, or are deleted with it,
    /// are complete, with their versions but without `status`. The others only have their names,
    /// so that a large namespace does not fill memory.
    pub applications: Vec<Value>,
}

impl StoredState {
    /// Reads the set and the Applications of its namespace.
    ///
    /// # Errors
    /// Those of [`Writer::read`] and [`Writer::related`]; a set that does not exist is not an
    /// error.
    pub async fn read(writer: &Writer, set: &ObjectName) -> Result<Self, write::Error> {
        let key = ObjectKey {
            kind: WritableKind::ApplicationSet,
            name: set.clone(),
        };
        let stored = match writer.read(&key).await {
            Ok(stored) => Some(stored.object),
            Err(write::Error::NotFound(_)) => None,
            Err(other) => return Err(other),
        };
        let owner = stored.as_ref().map(|stored| Owner::of(&set.name, stored));
        let is_related = move |application: &Value| {
            let owner = owner.as_ref();
            owner.is_some_and(|owner| owner.is_controller_of(application) || owner.garbage_collects(application))
        };
        let applications = writer
            .related(WritableKind::Application, &set.namespace, is_related)
            .await?;
        Ok(Self {
            set: stored,
            applications,
        })
    }

    /// The Applications of the stored set; none if the set is not stored.
    pub fn owned<'a>(&'a self, set: &'a ObjectName) -> impl Iterator<Item = &'a Value> {
        let owner = self.set.as_ref().map(|stored| Owner::of(&set.name, stored));
        let owned = move |application: &&Value| owner.as_ref().is_some_and(|owner| owner.is_controller_of(application));
        self.applications.iter().filter(owned)
    }
}

/// All changes that storing or deleting a set causes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The set.
    pub set: PlannedChange,
    /// Its Applications, sorted by name, including unchanged ones.
    pub changes: Vec<PlannedChange>,
    /// The problems; if there are any, nothing of the plan is carried out.
    pub problems: Vec<PlanProblem>,
    /// What happens to the Applications of a set that is deleted. If they are deleted with it, those
    /// with Argo CD's finalizer have their resources deleted too, once Argo CD's controller handles
    /// it. As in Argo CD, [`Propagation::Background`] becomes [`Propagation::Orphan`] if the stored
    /// set's `applicationsSync` does not allow deletion.
    pub cascade: Propagation,
}

impl Plan {
    /// Plans storing `set` with the Applications it generated.
    ///
    /// `set.object` is the whole object to store ([`upserted`], [`replaced`]); a
    /// `metadata.resourceVersion` in it is the version it is based on.
    pub fn new(set: &ApplicationSet, existing: StoredState, generated: Vec<Value>) -> Self {
        let owner = Owner::of(&set.name.name, existing.set.as_ref().unwrap_or(&Value::Null));
        let is_stored = existing.set.is_some();
        let (rules, mut problems) = IgnoreRules::of(&set.object);
        let applications = existing.applications.into_iter();
        let named = applications.map(|object| (name_of(&object).to_owned(), object));
        let mut remaining: BTreeMap<String, Value> = named.collect();
        let mut changes = Vec::with_capacity(generated.len());
        let mut seen = BTreeSet::new();
        let planner = Planner { set, owner, rules };
        for (number, application) in generated.into_iter().enumerate() {
            let name = name_of(&application).to_owned();
            if name.is_empty() {
                problems.push(PlanProblem::Unnamed(number.saturating_add(1)));
            } else if !seen.insert(name.clone()) {
                problems.push(PlanProblem::Duplicate(name));
            } else if let Some(before) = remaining.remove(&name) {
                // A set that is not stored has no UID yet, and an `Owner` without UID matches by name alone.
                if is_stored && planner.owner.is_controller_of(&before) {
                    changes.push(planner.update(name, before, application));
                } else {
                    problems.push(PlanProblem::NameConflict(Box::new(planner.create(name, application))));
                }
            } else {
                changes.push(planner.create(name, application));
            }
        }
        // What is left was not generated: the set's own Applications are deleted, all others do not concern it.
        remaining.retain(|_, before| is_stored && planner.owner.is_controller_of(before));
        changes.extend(remaining.into_iter().map(|(name, before)| planner.delete(name, before)));
        changes.sort_by(|a, b| a.name.cmp(&b.name));
        // Applications with a name conflict count as well: a dry run shows the annotation.
        let projects = projects(changes.iter().chain(name_conflicts(&problems)));
        Self {
            set: set::change(set, existing.set, projects.as_deref()),
            changes,
            problems,
            cascade: Propagation::Background,
        }
    }

    /// Plans storing the set alone; Argo CD's controller does the rest.
    pub fn set_only(set: &ApplicationSet, stored: Option<Value>) -> Self {
        Self {
            set: set::change(set, stored, None),
            changes: Vec::new(),
            problems: Vec::new(),
            cascade: Propagation::Background,
        }
    }

    /// Plans deleting the stored `set`.
    ///
    /// A cluster deletes every object that refers to a deleted one as its owner, whether as its
    /// controller or not. Applications that refer to the set without belonging to it are therefore
    /// part of the plan. One that also has another owner is kept.
    pub fn deletion(set: &ApplicationSet, existing: StoredState, cascade: Propagation) -> Self {
        let cascade = match may_delete(set.sync()) {
            true => cascade,
            false => Propagation::Orphan,
        };
        let owner = Owner::of(&set.name.name, &set.object);
        let is_bound = |stored: &Value| owner.is_controller_of(stored) || owner.garbage_collects(stored);
        let bound = existing.applications.into_iter().filter(is_bound);
        let change = |before: Value| {
            let name = set.application_name(name_of(&before).to_owned());
            // A cluster deletes an object only once all its owners are gone.
            let goes = owner.is_controller_of(&before) || owner.others(&before).next().is_none();
            let (action, after) = match (cascade, goes) {
                (Propagation::Background, true) => (Action::Delete, None),
                (Propagation::Background, false) => (Action::Keep, None),
                (Propagation::Orphan, _) => (Action::Update, Some(without_owner_reference(&before, &owner))),
            };
            PlannedChange::new(name, action, Some(before), after)
        };
        let mut changes: Vec<PlannedChange> = bound.map(change).collect();
        changes.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            set: PlannedChange::new(set.name.clone(), Action::Delete, existing.set, None),
            changes,
            problems: Vec::new(),
            cascade,
        }
    }

    /// The number of Applications it deletes.
    pub fn deletions(&self) -> u64 {
        let deleted = self.changes.iter().filter(|change| change.action == Action::Delete);
        count(deleted.count())
    }

    /// The plan as previews show it: Applications with a name conflict appear as created.
    ///
    /// SECURITY: a caller who may not see an Application cannot tell its name from a free one.
    /// Callers who may see it find it among the refusals.
    #[must_use]
    pub fn for_preview(mut self) -> Self {
        self.changes.extend(name_conflicts(&self.problems).cloned());
        self.changes.sort_by(|a, b| a.name.cmp(&b.name));
        self
    }

    /// The changes that cannot be made because an Application of that name already exists.
    pub fn name_conflicts(&self) -> impl Iterator<Item = &PlannedChange> {
        name_conflicts(&self.problems)
    }
}

impl ApplicationSet {
    fn sync(&self) -> ApplicationsSync {
        self.spec.sync_policy.applications
    }

    fn application_name(&self, name: String) -> ObjectName {
        let namespace = self.name.namespace.clone();
        ObjectName { namespace, name }
    }
}

fn name_conflicts(problems: &[PlanProblem]) -> impl Iterator<Item = &PlannedChange> {
    problems.iter().filter_map(|problem| match problem {
        PlanProblem::NameConflict(change) => Some(&**change),
        PlanProblem::Unnamed(_) | PlanProblem::Duplicate(_) | PlanProblem::InvalidIgnoreRule { .. } => None,
    })
}

fn may_delete(sync: ApplicationsSync) -> bool {
    match sync {
        ApplicationsSync::Sync | ApplicationsSync::CreateDelete => true,
        ApplicationsSync::CreateOnly | ApplicationsSync::CreateUpdate => false,
    }
}

fn name_of(object: &Value) -> &str {
    object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A map in the metadata; empty when absent.
fn metadata_map(object: &Value, key: &str) -> Map<String, Value> {
    let members = object.get("metadata").and_then(|metadata| metadata.get(key));
    members.and_then(Value::as_object).cloned().unwrap_or_default()
}

fn put_or_remove(members: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(value) => members.insert(key.to_owned(), value),
        None => members.remove(key),
    };
}

/// Sets a member, or removes it if there is nothing in it.
fn put_map(members: &mut Map<String, Value>, key: &str, value: Map<String, Value>) {
    put_or_remove(members, key, (!value.is_empty()).then_some(Value::Object(value)));
}

fn finalizers_of(object: &Value) -> &[Value] {
    let listed = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    listed.map(Vec::as_slice).unwrap_or_default()
}

/// The projects of the Applications that exist after the changes.
fn projects<'a>(changes: impl Iterator<Item = &'a PlannedChange>) -> Option<String> {
    let of = |change: &'a PlannedChange| {
        let project = change.result()?.pointer("/spec/project").and_then(Value::as_str);
        project.filter(|project| !project.is_empty()).or(Some("default"))
    };
    let all: BTreeSet<&str> = changes.filter_map(of).collect();
    (!all.is_empty()).then(|| all.into_iter().collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests;
