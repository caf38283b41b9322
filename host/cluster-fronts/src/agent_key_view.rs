//! [`AgentKeyView`].

use jiff::Timestamp;

use tollgate_core::agent::AgentKey;
use tollgate_store::StoredAgentKey;

/// A key of a cluster's agent, for people.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentKeyView {
    pub(crate) key: String,
    /// `secret`, or `joined`.
    pub(crate) from: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) joined_at: Option<Timestamp>,
    /// When it ends, because another one took its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revoked_at: Option<Timestamp>,
}

impl AgentKeyView {
    /// A key that the cluster's Secret names.
    pub(crate) fn in_secret(key: &AgentKey) -> Self {
        Self {
            key: key.to_string(),
            from: "secret",
            joined_at: None,
            expires_at: None,
            revoked_at: None,
        }
    }

    /// A key that the store has.
    pub(crate) fn joined(stored: &StoredAgentKey) -> Self {
        Self {
            key: stored.key.to_string(),
            from: "joined",
            joined_at: Some(stored.joined_at),
            expires_at: stored.expires_at,
            revoked_at: stored.revoked_at,
        }
    }
}
