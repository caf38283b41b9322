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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlatformPermission {
    GetTokens,
    CreateTokens,
    DeleteTokens,
    GetSessions,
    DeleteSessions,
    GetAudit,
}

impl PlatformPermission {
    pub(crate) fn resource_and_action(self) -> [&'static str; 2] {
        match self {
            Self::GetTokens => ["tokens", "get"],
            Self::CreateTokens => ["tokens", "create"],
            Self::DeleteTokens => ["tokens", "delete"],
            Self::GetSessions => ["sessions", "get"],
            Self::DeleteSessions => ["sessions", "delete"],
            Self::GetAudit => ["audit", "get"],
        }
    }
}

/// The RBAC object of somebody's tokens, sessions or events at one agent.
///
/// - `agent`: `None` if it is not about a single agent.
/// - `user`: `None` if it is about everybody.
pub(crate) fn object(agent: Option<&str>, user: Option<&str>) -> String {
    format!("{}/{}", agent.unwrap_or("*"), user.unwrap_or("*"))
}

pub(crate) fn check(
    policies: &Policies,
    caller: &Caller,
    permission: PlatformPermission,
    object: String,
) -> CheckRecord {
    Lookup::of(&policies.rbac, caller, permission.resource_and_action(), object).into_check()
}

/// Whether the caller could have the permission on any object with this prefix. It may return true
/// if they have none, but never false if they have one.
pub(crate) fn may_allow_prefix(
    policies: &Policies,
    caller: &Caller,
    permission: PlatformPermission,
    prefix: &str,
) -> bool {
    policies
        .rbac
        .may_allow_prefix(&caller.roles, permission.resource_and_action(), prefix)
}

pub(crate) fn check_each(
    policies: &Policies,
    caller: &Caller,
    permission: PlatformPermission,
    objects: &[String],
) -> Vec<bool> {
    let [resource, action] = permission.resource_and_action();
    let texts = objects.iter().map(String::as_str);
    let verdicts = policies.rbac.decide_each(&caller.roles, resource, action, texts);
    verdicts.into_iter().map(|verdict| verdict.is_allowed()).collect()
}
