//! The permissions of the gateway's own API, and questions about them: yes or 403, with the check for the record. A
//! caller's own tokens, sessions and decisions need none.
//!
//! Argo CD's RBAC decides alone, by resources that only the gateway has. The object is
//! `<agent>/<username>`. `*` stands for the agent of a browser session, and for anything that a
//! list does not narrow, so that only a row for all matches it. No built-in role has any of these
//! resources.

use crate::caller::Caller;
use crate::rbac::RbacLookup;
use tollgate_policy::rbac::Rbac;
use tollgate_proxy::record::CheckRecord;

/// An RBAC resource and an action.
pub type Permission = [&'static str; 2];

/// List others' tokens.
pub const GET_TOKENS: Permission = ["tokens", "get"];
/// Create tokens for others.
pub const CREATE_TOKENS: Permission = ["tokens", "create"];
/// Revoke others' tokens.
pub const DELETE_TOKENS: Permission = ["tokens", "delete"];
/// List others' sessions.
pub const GET_SESSIONS: Permission = ["sessions", "get"];
/// End others' sessions.
pub const DELETE_SESSIONS: Permission = ["sessions", "delete"];
/// Lock and unlock people.
pub const LOCK_PEOPLE: Permission = ["people", "lock"];
/// Read others' decisions.
pub const GET_DECISIONS: Permission = ["decisions", "get"];
/// Ask what others may do.
pub const GET_RBAC: Permission = ["rbac", "get"];
/// Read policies.
pub const GET_POLICIES: Permission = ["policies", "get"];
/// Evaluate policies with inputs.
pub const EVALUATE_POLICIES: Permission = ["policies", "eval"];
/// List plugins.
pub const GET_PLUGINS: Permission = ["plugins", "get"];
/// Read the state of the gateway.
pub const GET_SYSTEM: Permission = ["system", "get"];
/// Read others' audit events.
pub const GET_AUDIT: Permission = ["audit", "get"];

/// The RBAC object of somebody's tokens, sessions or events at one agent.
///
/// - `agent`: `None` if it is not about a single agent.
/// - `user`: `None` if it is about everybody.
pub fn object(agent: Option<&str>, user: Option<&str>) -> String {
    format!("{}/{}", agent.unwrap_or("*"), user.unwrap_or("*"))
}

/// Asks for a permission on an object.
pub fn check(rbac: &Rbac, caller: &Caller, permission: Permission, object: String) -> CheckRecord {
    RbacLookup::of(rbac, caller, permission, object).into_check()
}

/// Whether the caller could have the permission on any object with this prefix. It may return true
/// if they have none, but never false if they have one.
pub fn may_allow_prefix(rbac: &Rbac, caller: &Caller, permission: Permission, prefix: &str) -> bool {
    rbac.may_allow_prefix(&caller.roles, permission, prefix)
}

/// Asks for a permission on each of several objects.
pub fn check_each(rbac: &Rbac, caller: &Caller, [resource, action]: Permission, objects: &[String]) -> Vec<bool> {
    let texts = objects.iter().map(String::as_str);
    let verdicts = rbac.decide_each(&caller.roles, resource, action, texts);
    verdicts.into_iter().map(|verdict| verdict.is_allowed()).collect()
}
