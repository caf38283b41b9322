//! Decides whether the caller may manage other people's tokens, sessions and audit: yes or 403,
//! with the check for the record. A caller's own need no permission.
//!
//! Argo CD's RBAC decides alone, by resources that only the gateway has. The object is
//! `<agent>/<username>`. `*` stands for the agent of a browser session, and for whatever a list
//! does not narrow, so that only a row for all matches it. No built-in role has any of these
//! resources.

use crate::caller::Caller;
use crate::extensions::facts::Lookup;
use crate::policies::Policies;
use tollgate_proxy::record::CheckRecord;

/// An RBAC resource and an action.
pub(crate) type Permission = [&'static str; 2];

pub(crate) const GET_TOKENS: Permission = ["tokens", "get"];
pub(crate) const CREATE_TOKENS: Permission = ["tokens", "create"];
pub(crate) const DELETE_TOKENS: Permission = ["tokens", "delete"];
pub(crate) const GET_SESSIONS: Permission = ["sessions", "get"];
pub(crate) const DELETE_SESSIONS: Permission = ["sessions", "delete"];
pub(crate) const LOCK_PEOPLE: Permission = ["people", "lock"];
pub(crate) const GET_DECISIONS: Permission = ["decisions", "get"];
pub(crate) const GET_RBAC: Permission = ["rbac", "get"];
pub(crate) const GET_POLICIES: Permission = ["policies", "get"];
pub(crate) const EVALUATE_POLICIES: Permission = ["policies", "eval"];
pub(crate) const GET_PLUGINS: Permission = ["plugins", "get"];
pub(crate) const GET_SYSTEM: Permission = ["system", "get"];
pub(crate) const GET_AUDIT: Permission = ["audit", "get"];

/// The RBAC object of somebody's tokens, sessions or events at one agent.
///
/// - `agent`: `None` if it is not about a single agent.
/// - `user`: `None` if it is about everybody.
pub(crate) fn object(agent: Option<&str>, user: Option<&str>) -> String {
    format!("{}/{}", agent.unwrap_or("*"), user.unwrap_or("*"))
}

pub(crate) fn check(policies: &Policies, caller: &Caller, permission: Permission, object: String) -> CheckRecord {
    Lookup::of(&policies.rbac, caller, permission, object).into_check()
}

/// Whether the caller could have the permission on any object with this prefix. It may return true
/// if they have none, but never false if they have one.
pub(crate) fn may_allow_prefix(policies: &Policies, caller: &Caller, permission: Permission, prefix: &str) -> bool {
    policies.rbac.may_allow_prefix(&caller.roles, permission, prefix)
}

pub(crate) fn check_each(
    policies: &Policies,
    caller: &Caller,
    [resource, action]: Permission,
    objects: &[String],
) -> Vec<bool> {
    let texts = objects.iter().map(String::as_str);
    let verdicts = policies.rbac.decide_each(&caller.roles, resource, action, texts);
    verdicts.into_iter().map(|verdict| verdict.is_allowed()).collect()
}
