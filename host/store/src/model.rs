//! The plain values the store holds, as other modules see them.
//!
//! Security: they contain hashes of secrets, never secrets.

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use crate::SecretHash;
use tollgate_core::agent::AgentId;
use tollgate_core::session::SessionId;
use tollgate_core::user::User;

/// Who performs an action: a person of the directory, or an operator's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Actor {
    /// Number in the directory, if they have one.
    pub user_id: Option<i64>,
    /// Display name.
    pub name: String,
}

impl From<&User> for Actor {
    /// The person themselves; [`User::id`] is 0 for one who is not in the directory.
    fn from(user: &User) -> Self {
        Self {
            user_id: Some(user.id).filter(|id| *id > 0),
            name: user.username.clone(),
        }
    }
}

/// A personal access token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Token {
    /// Its id, which is also the id of its session.
    pub id: Uuid,
    /// Name chosen by its owner.
    pub name: String,
    /// The owner.
    pub user: User,
    /// The only agent it is for.
    pub agent_id: AgentId,
    /// The agent's identity when the token was made, as
    /// [`tollgate_core::agent::Agent::identity`], since the number may later be given to another
    /// agent. A token without it gives no access until [`crate::Store::bind_tokens`].
    pub agent: Option<String>,
    /// Only `k8s_proxy`. Imported tokens may have others, and then give no access.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, to about a minute.
    pub last_used_at: Option<Timestamp>,
}

/// A browser session without its secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrowserSession {
    /// Its id, which is also the id of its session.
    pub id: Uuid,
    /// The owner.
    pub user: User,
    /// Hash of the CSRF token.
    #[serde(skip)]
    pub csrf: SecretHash,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// A record that a session was revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Increasing sequence number; a process knows all revocations up to some number.
    pub sequence: i64,
    /// Which.
    pub session: SessionId,
    /// When the session would have expired; the revocation may be forgotten after that.
    pub until: Timestamp,
}

/// An audit event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditEvent {
    /// Version 7, so that ids sort by time.
    pub id: Uuid,
    /// When it happened, or first happened.
    pub first_at: Timestamp,
    /// When it last happened.
    pub last_at: Timestamp,
    /// How often it happened.
    pub count: u64,
    /// What happened: `token.created`, `token.revoked`, `session.created`, `session.revoked`,
    /// `access.allowed`, `access.denied`, `stream.closed`, `stream.ended`, `agent.joined`,
    /// `agent.connected`, `agent.disconnected`, `agent.refused`, `agent.key_replaced`,
    /// `agent.key_revoked`, `login.created`, `login.revoked`, `person.locked`, `person.unlocked`.
    pub action: String,
    /// Who did it; empty for unknown callers.
    pub user: String,
    /// Their number, if they have one.
    pub user_id: Option<i64>,
    /// The agent it is about.
    pub agent_id: Option<AgentId>,
    /// The session it was done with, or is about.
    pub session: Option<String>,
    /// Everything else: verb, resource, namespace, name, reason, client address,
    /// Audit-ID, who revoked. Never a secret, a query or content.
    pub details: serde_json::Map<String, serde_json::Value>,
}

/// A filter for audit events; every part that is set must match.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// By this person, or about a token or session of theirs.
    pub user_id: Option<i64>,
    /// Their user name. With it, events of somebody else who had the number before are left out.
    pub username: Option<String>,
    /// About one of these agents, when set.
    pub agents: Option<Vec<AgentId>>,
    /// With this action.
    pub action: Option<String>,
    /// Done with this session, or about it.
    pub session: Option<String>,
    /// Requests with this verb of Kubernetes, such as `delete`.
    pub verb: Option<String>,
    /// Requests for this resource, such as `pods`, with any subresource.
    pub resource: Option<String>,
    /// Requests for this subresource, such as `exec`.
    pub subresource: Option<String>,
    /// Requests in this namespace.
    pub namespace: Option<String>,
    /// Requests for the object of this name. Of reads, only those of Secrets keep the name.
    pub name: Option<String>,
    /// That happened, or last happened, at this time or later.
    pub since: Option<Timestamp>,
    /// That happened, or first happened, before this time.
    pub until: Option<Timestamp>,
    /// Older than this event, for the next page.
    pub before: Option<Uuid>,
    /// At most this many, newest first; 1 to 1,000.
    pub limit: u32,
}

/// A filter for tokens or sessions; every part that is set must match.
#[derive(Clone, Debug, Default)]
pub struct CredentialFilter {
    /// Of the person with this number.
    pub user_id: Option<i64>,
    /// Of a person of this name.
    pub username: Option<String>,
    /// For one of these agents, when set; browser sessions are for all.
    pub agents: Option<Vec<AgentId>>,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Page<P> {
    /// Only rows after this position.
    pub after: Option<P>,
    /// At most this many; 1 to 1,000.
    pub limit: u32,
}

impl<P> Default for Page<P> {
    fn default() -> Self {
        Self {
            after: None,
            limit: 1_000,
        }
    }
}

/// Position of a token or a browser session in its list, which is newest first.
pub type CreationCursor = (Timestamp, Uuid);

/// Position of an active session in its list, which is ordered by the bytes of its id, then by
/// agent.
pub type ActiveSessionCursor = (String, AgentId);

/// The owner and agent of a session that is revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOwner {
    /// The owner.
    pub user: User,
    /// The agent, if it is for only one.
    pub agent_id: Option<AgentId>,
}

/// A session that one replica lately saw active.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ActiveSession {
    /// Text form of its id.
    pub session: String,
    /// The process that saw it.
    pub replica: Uuid,
    /// The owner.
    pub user: User,
    /// The agent it was used for.
    pub agent_id: AgentId,
    /// First request seen.
    pub first_at: Timestamp,
    /// Latest request seen, or now while something is open.
    pub last_at: Timestamp,
    /// Client address of the latest request.
    pub client: String,
    /// Requests seen.
    pub requests: u64,
    /// Watches, logs and tunnels open now.
    pub open_streams: u32,
    /// When the credential expires.
    pub expires_at: Option<Timestamp>,
}
