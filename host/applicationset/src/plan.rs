//! What writing an ApplicationSet would change.
//!
//! In: the set as it shall be, what is stored, what it generates. Out: a change for
//! each Application, and the set's own. Never: a write; an Application of somebody
//! else's changed.
//!
//! What the store alone says of an object (`status`, versions, who manages fields) is
//! no difference, nor is a field that is left out where the other has what Argo CD
//! takes for it. Nothing is hidden but the passwords of URLs: Applications have no
//! values of Secrets, and which parameter of a chart is one cannot be told.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{ApplicationSet, ApplicationsSync};
use tollgate_state::ObjectName;
use tollgate_state::write::{self, Key, Kind, Writer};

mod application;
mod diff;
mod ignore;
mod owner;
mod same;
mod set;

pub use owner::{Owner, linked, unlinked};
pub use set::{is_same, replaced, upserted};

use application::{Planner, put_or_remove};
use ignore::Rules;

/// Annotation of a set: the projects its Applications are in, by name, with commas
/// between them. The gateway writes it, whatever was sent.
pub const PROJECTS: &str = "tollgate.dev/projects";

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// It is made.
    Create,
    /// It is changed.
    Update,
    /// It is taken away.
    Delete,
    /// It stays as it is.
    Keep,
}

impl Action {
    /// As previews and records have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Keep => "keep",
        }
    }
}

/// What becomes of the Applications of a set that is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cascade {
    /// They are deleted with it. Those with Argo CD's finalizer take what they
    /// deployed along, once its controller sees to it.
    #[default]
    Background,
    /// They stay, without the reference to the set.
    Orphan,
}

/// An object, before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its namespace and name.
    pub name: ObjectName,
    /// What becomes of it.
    pub action: Action,
    /// As it is stored, with its version; none for [`Action::Create`].
    pub before: Option<Value>,
    /// What is written; none for [`Action::Delete`] and [`Action::Keep`].
    pub after: Option<Value>,
    /// What `applicationsSync` of the set does not let be done; the object is kept.
    pub held_back: Option<Action>,
    /// What the set generates, where that is not what is stored afterwards: it is held
    /// back, or `ignoreApplicationDifferences` puts something else in its place. Argo
    /// CD's controller makes it all the same, once the stored one is gone.
    pub generated: Option<Value>,
}

impl Change {
    /// What is stored when the change is done; none where it is deleted.
    pub fn result(&self) -> Option<&Value> {
        match self.action {
            Action::Create | Action::Update => self.after.as_ref(),
            Action::Keep => self.before.as_ref(),
            Action::Delete => None,
        }
    }

    /// The change as a unified diff of YAML, without what the store alone says;
    /// empty where nothing changes. Passwords of URLs are left out.
    pub fn diff(&self) -> String {
        diff::unified(self)
    }
}

/// Why a plan cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A generated Application has no name.
    #[error("application {number} that the set generates has no name")]
    Unnamed {
        /// Its number, from 1.
        number: usize,
    },
    /// Two have one name.
    #[error("the set generates more than one application with the name `{name}`")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// There is such an Application, and it is not the set's; with what would be made
    /// otherwise. Whose it is, is not told: that may be nobody's business.
    #[error("application `{}` exists already and does not belong to the set", .0.name.name)]
    Taken(Box<Change>),
    /// `ignoreApplicationDifferences` cannot be followed.
    #[error("`spec.ignoreApplicationDifferences[{number}]`: {why}")]
    Ignore {
        /// Number of the rule, from 0.
        number: usize,
        /// Why not.
        why: String,
    },
}

/// What is stored where a plan is made.
#[derive(Clone, Debug, Default)]
pub struct Existing {
    /// The set, if there is one.
    pub set: Option<Value>,
    /// All Applications of its namespace: those that are the set's, or go with it, whole
    /// and with their versions but without `status`; the others by their name, so that a
    /// large namespace does not fill memory.
    pub applications: Vec<Value>,
}

impl Existing {
    /// Reads the set and the Applications of its namespace.
    ///
    /// # Errors
    /// Those of [`Writer::read`] and [`Writer::related`], but for a set that is not there.
    pub async fn read(writer: &Writer, set: &ObjectName) -> Result<Self, write::Error> {
        let key = Key {
            kind: Kind::ApplicationSet,
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
            owner.is_some_and(|owner| owner.owns(application) || owner.takes_along(application))
        };
        let applications = writer.related(Kind::Application, &set.namespace, is_related).await?;
        Ok(Self {
            set: stored,
            applications,
        })
    }

    /// The Applications of the stored set; none where it is not stored.
    pub fn owned<'a>(&'a self, set: &'a ObjectName) -> impl Iterator<Item = &'a Value> {
        let owner = self.set.as_ref().map(|stored| Owner::of(&set.name, stored));
        let owned = move |application: &&Value| owner.as_ref().is_some_and(|owner| owner.owns(application));
        self.applications.iter().filter(owned)
    }
}

/// Everything that changes with a set.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The set.
    pub set: Change,
    /// Its Applications, by name; also those that stay as they are.
    pub changes: Vec<Change>,
    /// What stands in the way; nothing of the plan is carried out then.
    pub problems: Vec<Problem>,
    /// What becomes of the Applications of a set that is deleted. `applicationsSync`
    /// of the stored set turns [`Cascade::Background`] into [`Cascade::Orphan`] where
    /// it lets none be deleted, as Argo CD does.
    pub cascade: Cascade,
}

impl Plan {
    /// What storing `set` with the Applications it generated would change.
    ///
    /// `set.object` is the whole object as it shall be stored ([`upserted`],
    /// [`replaced`]); a `metadata.resourceVersion` in it is the version it is based
    /// on.
    pub fn new(set: &ApplicationSet, existing: Existing, generated: Vec<Value>) -> Self {
        let owner = match &existing.set {
            Some(stored) => Owner::of(&set.name.name, stored),
            None => Owner::unborn(&set.name.name),
        };
        let is_stored = existing.set.is_some();
        let (rules, mut problems) = Rules::of(&set.object);
        let mut there = by_name(existing.applications);
        let mut changes = Vec::with_capacity(generated.len());
        let mut seen = BTreeSet::new();
        let planner = Planner { set, owner, rules };
        for (number, application) in generated.into_iter().enumerate() {
            let name = name_of(&application).to_owned();
            if name.is_empty() {
                problems.push(Problem::Unnamed {
                    number: number.saturating_add(1),
                });
            } else if !seen.insert(name.clone()) {
                problems.push(Problem::Duplicate { name });
            } else if let Some(before) = there.remove(&name) {
                if is_stored && planner.owner.owns(&before) {
                    changes.push(planner.update(name, before, application));
                } else {
                    problems.push(Problem::Taken(Box::new(planner.create(name, application))));
                }
            } else {
                changes.push(planner.create(name, application));
            }
        }
        let gone = there
            .into_iter()
            .filter(|(_, before)| is_stored && planner.owner.owns(before));
        changes.extend(gone.map(|(name, before)| planner.delete(name, before)));
        changes.sort_by(|a, b| a.name.cmp(&b.name));
        // What is taken counts: a dry run shows the annotation.
        let projects = projects(changes.iter().chain(taken(&problems)));
        Self {
            set: set::change(set, existing.set, projects.as_deref()),
            changes,
            problems,
            cascade: Cascade::Background,
        }
    }

    /// What storing the set alone would change; Argo CD's controller does the rest.
    pub fn of_set(set: &ApplicationSet, stored: Option<Value>) -> Self {
        Self {
            set: set::change(set, stored, None),
            changes: Vec::new(),
            problems: Vec::new(),
            cascade: Cascade::Background,
        }
    }

    /// What deleting the stored `set` would change.
    ///
    /// A cluster deletes what refers to a deleted object, whether that was its controller
    /// or not. Applications that refer to the set without belonging to it are therefore
    /// part of the plan; one that something else owns too is kept.
    pub fn deletion(set: &ApplicationSet, existing: Existing, cascade: Cascade) -> Self {
        let cascade = if may_delete(set.sync()) {
            cascade
        } else {
            Cascade::Orphan
        };
        let owner = Owner::of(&set.name.name, &set.object);
        let bound = existing
            .applications
            .into_iter()
            .filter(|application| owner.owns(application) || owner.takes_along(application));
        let change = |before: Value| {
            let name = ObjectName {
                namespace: set.name.namespace.clone(),
                name: name_of(&before).to_owned(),
            };
            let goes = owner.owns(&before) || !owner.has_others(&before);
            let (action, after) = match (cascade, goes) {
                (Cascade::Background, true) => (Action::Delete, None),
                (Cascade::Background, false) => (Action::Keep, None),
                (Cascade::Orphan, _) => (Action::Update, Some(unlinked(&before, &owner))),
            };
            Change {
                name,
                action,
                before: Some(before),
                after,
                held_back: None,
                generated: None,
            }
        };
        let mut changes: Vec<Change> = bound.map(change).collect();
        changes.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            set: Change {
                name: set.name.clone(),
                action: Action::Delete,
                before: existing.set,
                after: None,
                held_back: None,
                generated: None,
            },
            changes,
            problems: Vec::new(),
            cascade,
        }
    }

    /// How many Applications it deletes.
    pub fn deletions(&self) -> u64 {
        let deleted = self.changes.iter().filter(|change| change.action == Action::Delete);
        u64::try_from(deleted.count()).unwrap_or(u64::MAX)
    }

    /// The plan as previews show it: what is taken among what is made.
    ///
    /// SECURITY: who may not know of an Application reads nothing else of its name than
    /// of a free one. That it is taken is among the refusals, for those who may know.
    #[must_use]
    pub fn shown(mut self) -> Self {
        self.changes.extend(taken(&self.problems).cloned());
        self.changes.sort_by(|a, b| a.name.cmp(&b.name));
        self
    }

    /// What cannot be made because there is such an Application already.
    pub fn taken(&self) -> impl Iterator<Item = &Change> {
        taken(&self.problems)
    }

    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.set.action == Action::Keep && self.changes.iter().all(|change| change.action == Action::Keep)
    }
}

impl ApplicationSet {
    fn sync(&self) -> ApplicationsSync {
        self.spec.sync.applications
    }
}

fn taken(problems: &[Problem]) -> impl Iterator<Item = &Change> {
    problems.iter().filter_map(|problem| match problem {
        Problem::Taken(change) => Some(&**change),
        Problem::Unnamed { .. } | Problem::Duplicate { .. } | Problem::Ignore { .. } => None,
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

fn by_name(applications: Vec<Value>) -> BTreeMap<String, Value> {
    let named = applications
        .into_iter()
        .map(|object| (name_of(&object).to_owned(), object));
    named.collect()
}

/// The projects that Applications are in when all is done.
fn projects<'a>(changes: impl Iterator<Item = &'a Change>) -> Option<String> {
    let of = |change: &'a Change| {
        let spec = change.result()?.get("spec");
        let project = spec.and_then(|spec| spec.get("project")).and_then(Value::as_str);
        Some(
            project
                .filter(|project| !project.is_empty())
                .unwrap_or("default")
                .to_owned(),
        )
    };
    let all: BTreeSet<String> = changes.filter_map(of).collect();
    (!all.is_empty()).then(|| all.into_iter().collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests;
