//! Whether the caller may manage other people's tokens, sessions and audit.
//!
//! In: caller, a right, what it is about. Out: yes or no, and its check for the
//! record. Refuses: 403. Never: asked about a caller's own things.
//!
//! Argo CD's RBAC decides alone, by resources only the gateway has. The object
//! is `<agent>/<username>`; `*` stands in for the agent of a browser session and
//! for whatever a list does not narrow, so that only a row for all matches it.
//! No built-in role has any of them.

use super::facts::Lookup;
use crate::caller::Caller;
use crate::record::Check;
use crate::snapshot::Snapshot;

/// What somebody may do with things of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Look at tokens.
    GetTokens,
    /// Make a token for somebody else.
    CreateTokens,
    /// Revoke tokens.
    DeleteTokens,
    /// Look at sessions.
    GetSessions,
    /// End sessions.
    DeleteSessions,
    /// Read what was written down.
    GetAudit,
}

impl Right {
    /// RBAC resource and action.
    pub fn names(self) -> [&'static str; 2] {
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

/// The object of somebody's things at one agent.
///
/// - `agent`: none where it is about no single one.
/// - `user`: none where it is about everybody.
pub fn object(agent: Option<&str>, user: Option<&str>) -> String {
    format!("{}/{}", agent.unwrap_or("*"), user.unwrap_or("*"))
}

/// Looks one right up.
pub fn check(snapshot: &Snapshot, caller: &Caller, right: Right, object: String) -> Check {
    Lookup::of(&snapshot.rbac, caller, right.names(), object).into_check()
}

/// Whether the caller could have the right to any object of this beginning: yes may be
/// said of none, no never of one.
pub fn could(snapshot: &Snapshot, caller: &Caller, right: Right, prefix: &str) -> bool {
    snapshot.rbac.could(&caller.roles, right.names(), prefix)
}

/// For each object, whether the caller has the right.
pub fn each(snapshot: &Snapshot, caller: &Caller, right: Right, objects: &[String]) -> Vec<bool> {
    let [resource, action] = right.names();
    let texts = objects.iter().map(String::as_str);
    let verdicts = snapshot.rbac.decide_each(&caller.roles, resource, action, texts);
    verdicts.into_iter().map(|verdict| verdict.is_allowed()).collect()
}
