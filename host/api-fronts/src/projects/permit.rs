//! Decides whether the caller may see or change AppProjects: yes, or 403, with the check for the
//! record.
//!
//! Argo CD's RBAC decides alone: resource `projects`, with the project's name as the object.
//!
//! Security: the decision does not depend on whether the project exists, so a caller who may not
//! see it learns nothing.

use tollgate_front::caller::Caller;
use tollgate_front::policies::Policies;

/// For each name, whether the caller may see the project.
pub(crate) fn visible<'a>(policies: &Policies, caller: &Caller, names: impl Iterator<Item = &'a str>) -> Vec<bool> {
    let verdicts = policies.rbac.decide_each(&caller.roles, "projects", "get", names);
    verdicts.into_iter().map(|verdict| verdict.is_allowed()).collect()
}
