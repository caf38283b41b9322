//! What the store holds, as the other rooms see it.
//!
//! In: nothing. Out: plain values. Never: a secret; where one matters, its hash.

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::SecretHash;
use tollgate_core::agent::AgentId;
use tollgate_core::session::SessionId;
use tollgate_core::user::User;

/// Who does something: a person of the directory, or an operator's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Actor {
    /// Number in the directory, where they have one.
    pub user_id: Option<i64>,
    /// Name for people.
    pub name: String,
}

/// A personal access token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Token {
    /// Its number; also the id of its session.
    pub id: Uuid,
    /// What its owner calls it.
    pub name: String,
    /// Whose it is.
    pub user: User,
    /// The one agent it is for.
    pub agent_id: AgentId,
    /// What that agent was when the token was made, as
    /// [`tollgate_core::agent::Agent::identity`]: the number alone may be given to another one.
    /// A token without lets nobody in until [`super::Store::bind_tokens`].
    pub agent: Option<String>,
    /// `k8s_proxy` alone, except for imported ones, which then let nobody in.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Timestamp,
    /// When somebody ended it.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, to about a minute.
    pub last_used_at: Option<Timestamp>,
}

/// A browser session without its secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrowserSession {
    /// Its number; also the id of its session.
    pub id: Uuid,
    /// Whose it is.
    pub user: User,
    /// Hash of the CSRF token.
    #[serde(skip)]
    pub csrf: SecretHash,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Timestamp,
    /// When somebody ended it.
    pub revoked_at: Option<Timestamp>,
}

/// That a session ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Counts up; what is known to one process is all up to a number.
    pub sequence: i64,
    /// Which.
    pub session: SessionId,
    /// When it would have ended by itself: what is past need not be known.
    pub until: Timestamp,
}

/// Something that is written down for good.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditEvent {
    /// Version 7, so that ids sort by time.
    pub id: Uuid,
    /// When it happened, or first happened.
    pub first_at: Timestamp,
    /// When it last happened.
    pub last_at: Timestamp,
    /// How often.
    pub count: u64,
    /// What happened: `token.created`, `token.revoked`, `session.created`,
    /// `session.revoked`, `access.allowed`, `access.denied`, `stream.closed`.
    pub action: String,
    /// Who did it; empty for callers nobody knows.
    pub user: String,
    /// Their number, where they have one.
    pub user_id: Option<i64>,
    /// The agent it is about.
    pub agent_id: Option<AgentId>,
    /// The session it came with, or is about.
    pub session: Option<String>,
    /// Everything else: verb, resource, namespace, name, reason, client address,
    /// Audit-ID, who revoked. Never a secret, a query or content.
    pub details: serde_json::Map<String, serde_json::Value>,
}

/// Which audit events are asked for; every part that is set must match.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// By this person, or about a token or session of theirs.
    pub user_id: Option<i64>,
    /// About one of these agents, when set.
    pub agents: Option<Vec<AgentId>>,
    /// With this action.
    pub action: Option<String>,
    /// Older than this event, for the next page.
    pub before: Option<Uuid>,
    /// At most this many, newest first; 1 to 1,000.
    pub limit: u32,
}

/// Which tokens or sessions are asked for; every part that is set must match.
#[derive(Clone, Debug, Default)]
pub struct Owned {
    /// Of the person with this number.
    pub user_id: Option<i64>,
    /// Of a person of this name.
    pub username: Option<String>,
    /// For one of these agents, when set; browser sessions are for all.
    pub agents: Option<Vec<AgentId>>,
}

/// Which rows of a list are given.
#[derive(Clone, Debug)]
pub struct Page<P> {
    /// Those behind this position.
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
pub type MadeAt = (Timestamp, Uuid);

/// Position of an active session in its list, which is ordered by the bytes of its id, then by agent.
pub type UsedFor = (String, AgentId);

/// Whose session is revoked, and for which agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Whose it is.
    pub user: User,
    /// The one agent it is for, where it is for one.
    pub agent_id: Option<AgentId>,
}

/// A session that was seen at work lately, by one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeenSession {
    /// Text form of its id.
    pub session: String,
    /// The process that saw it.
    pub replica: Uuid,
    /// Whose it is.
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
    /// When the credential ends by itself.
    pub expires_at: Option<Timestamp>,
}
