//! Decides which AppProjects the caller may see. Argo CD's RBAC decides alone: resource `projects`,
//! with the project's name as the object ([`RbacLookup::of_project`] for a single one).
//!
//! [`RbacLookup::of_project`]: tollgate_front::rbac::RbacLookup::of_project

use tollgate_front::caller::Caller;
use tollgate_front::policies::Policies;

/// For each name, whether the caller may see the project.
pub(crate) fn visible<'a>(policies: &Policies, caller: &Caller, names: impl Iterator<Item = &'a str>) -> Vec<bool> {
    let verdicts = policies.rbac.decide_each(&caller.roles, "projects", "get", names);
    verdicts.into_iter().map(|verdict| verdict.is_allowed()).collect()
}
