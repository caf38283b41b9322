//! Decides whether the caller may see or change AppProjects: yes, or 403, with the check for the
//! record.
//!
//! Argo CD's RBAC decides alone: resource `projects`, with the project's name as the object.
//!
//! Security: the decision does not depend on whether the project exists, so a caller who may not
//! see it learns nothing.

use crate::caller::Caller;
use crate::extensions::facts::Lookup;
use crate::policies::Policies;
use tollgate_proxy::record::CheckRecord;

/// A permission on a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectPermission {
    /// To see it.
    Get,
    /// To change it.
    Update,
}

impl ProjectPermission {
    /// RBAC action.
    pub fn action(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Update => "update",
        }
    }
}

/// Looks up one permission.
pub fn check(policies: &Policies, caller: &Caller, permission: ProjectPermission, name: &str) -> CheckRecord {
    Lookup::of(
        &policies.rbac,
        caller,
        ["projects", permission.action()],
        name.to_owned(),
    )
    .into_check()
}

/// For each name, whether the caller may see the project.
pub fn visible<'a>(policies: &Policies, caller: &Caller, names: impl Iterator<Item = &'a str>) -> Vec<bool> {
    let verdicts = policies.rbac.decide_each(&caller.roles, "projects", "get", names);
    verdicts.into_iter().map(|verdict| verdict.is_allowed()).collect()
}
