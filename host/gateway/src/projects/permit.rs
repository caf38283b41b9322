//! Decides whether the caller may see or change AppProjects: yes, or 403, with the check for the
//! record.
//!
//! Argo CD's RBAC decides alone: resource `projects`, with the project's name as the object.
//!
//! Security: the decision does not depend on whether the project exists, so a caller who may not
//! see it learns nothing.

use crate::policies::Policies;
use tollgate_front::caller::Caller;
use tollgate_front::rbac::RbacLookup;
use tollgate_proxy::record::CheckRecord;

pub(crate) fn check(policies: &Policies, caller: &Caller, action: &'static str, name: &str) -> CheckRecord {
    RbacLookup::of(&policies.rbac, caller, ["projects", action], name.to_owned()).into_check()
}

/// For each name, whether the caller may see the project.
pub(crate) fn visible<'a>(policies: &Policies, caller: &Caller, names: impl Iterator<Item = &'a str>) -> Vec<bool> {
    let verdicts = policies.rbac.decide_each(&caller.roles, "projects", "get", names);
    verdicts.into_iter().map(|verdict| verdict.is_allowed()).collect()
}
