//! Whether the caller may see or change AppProjects.
//!
//! In: caller, a right, a project's name. Out: yes or no, and its check for the
//! record. Refuses: 403. Never: a look at whether there is such a project: who may
//! not see it learns nothing.
//!
//! Argo CD's RBAC decides alone: resource `projects`, object the project's name.

use super::facts::Lookup;
use crate::caller::Caller;
use crate::record::Check;
use crate::snapshot::Snapshot;

/// What somebody wants of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To see it.
    Get,
    /// To change it.
    Update,
}

impl Right {
    /// RBAC action.
    pub fn action(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Update => "update",
        }
    }
}

/// Looks one right up.
pub fn check(snapshot: &Snapshot, caller: &Caller, right: Right, name: &str) -> Check {
    Lookup::of(&snapshot.rbac, caller, ["projects", right.action()], name.to_owned()).into_check()
}

/// For each name, whether the caller may see the project.
pub fn visible<'a>(snapshot: &Snapshot, caller: &Caller, names: impl Iterator<Item = &'a str>) -> Vec<bool> {
    let verdicts = snapshot.rbac.decide_each(&caller.roles, "projects", "get", names);
    verdicts.into_iter().map(|verdict| verdict.is_allowed()).collect()
}
