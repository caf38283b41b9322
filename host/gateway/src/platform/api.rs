//! Decodes queries and content of the API for tokens, sessions, agents and audit, and encodes rows
//! of the store as JSON. It decides nothing.
//!
//! Security: a response contains no secret except one that was just created.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use url::Url;
use uuid::Uuid;

use tollgate_core::agent::{Agent, AgentId};
use tollgate_core::user::{Membership, User};
use tollgate_identity::access::AgentShare;
use tollgate_identity::store::{ActiveSession, AuditEvent, BrowserSession, Token};
use tollgate_state::agent::AccessMode;

pub mod content;
pub mod cookie;
mod error;
pub mod query;

pub use error::Error;

/// An agent, by number, and by name if it still has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentRef {
    /// Its number.
    pub id: AgentId,
    /// Its name. Absent if the agent no longer exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An agent as the API shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    /// Its number.
    pub id: AgentId,
    /// Its name.
    pub name: String,
    /// The cluster it stands for.
    pub cluster: String,
    /// The identity that the cluster sees: `agent`, `user` or `mapped`. Absent if the agent is not
    /// shared with the person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_as: Option<&'static str>,
    /// The person's roles in what the agent is shared with.
    pub roles: Vec<RoleView>,
    /// What a kubeconfig needs.
    pub kubeconfig: KubeconfigView,
}

/// Roles in one project or group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoleView {
    /// `project` or `group`.
    pub kind: &'static str,
    /// Its number.
    pub id: i64,
    /// Its path.
    pub path: String,
    /// Role names, from reporter up.
    pub roles: Vec<&'static str>,
}

/// What a kubeconfig needs besides a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KubeconfigView {
    /// URL of the Kubernetes front, if the settings have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Suggested name of the context.
    pub context: String,
}

/// State of a token or session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is accepted.
    Active,
    /// It expired.
    Expired,
    /// Somebody revoked it.
    Revoked,
}

/// A token as the API shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenView {
    /// Its number.
    pub id: Uuid,
    /// The name that its owner gave it.
    pub name: String,
    /// Its owner.
    pub user: User,
    /// The one agent it is for.
    pub agent: AgentRef,
    /// What it is for.
    pub scopes: Vec<String>,
    /// Its state.
    pub state: State,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, accurate to about a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
}

/// A session as the API shows it: one line for each agent it was used for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// Text form of its id.
    pub id: String,
    /// Its owner.
    pub user: User,
    /// The agent it was used for; absent for browser sessions not used yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentRef>,
    /// When it was first seen, or made.
    pub first_at: Timestamp,
    /// When it was last seen in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
    /// Client address of the latest request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client: String,
    /// Requests seen.
    pub requests: u64,
    /// Watches, logs and tunnels open now.
    pub open_streams: u32,
    /// When the credential expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// An audit event as the API shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditView {
    /// Its number; ids sort by time.
    pub id: Uuid,
    /// What happened.
    pub action: String,
    /// When it happened, or first happened.
    pub first_at: Timestamp,
    /// When it last happened.
    pub last_at: Timestamp,
    /// How often.
    pub count: u64,
    /// Who did it. Empty for unknown callers.
    pub user: String,
    /// Their number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<i64>,
    /// The agent it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentRef>,
    /// The session it came with, or is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Everything else.
    pub details: Map<String, Value>,
}

impl AgentView {
    /// An agent as a person sees it.
    ///
    /// - `share`: how it is shared with them. `None` if it is not.
    pub fn of(agent: &Agent, share: Option<&AgentShare>, public_url: Option<&Url>) -> Self {
        let access_as = share.map(|share| match share.access_mode {
            AccessMode::Agent => "agent",
            AccessMode::User => "user",
            AccessMode::Mapped(_) => "mapped",
        });
        let roles = share.map_or_else(Vec::new, |share| {
            let projects = share.projects.iter().map(|one| RoleView::of("project", one));
            let groups = share.groups.iter().map(|one| RoleView::of("group", one));
            projects.chain(groups).collect()
        });
        Self {
            id: agent.id,
            name: agent.name.clone(),
            cluster: agent.cluster.clone(),
            access_as,
            roles,
            kubeconfig: KubeconfigView {
                server: public_url.map(Url::to_string),
                context: agent.name.clone(),
            },
        }
    }
}

impl RoleView {
    fn of(kind: &'static str, membership: &Membership) -> Self {
        Self {
            kind,
            id: membership.id,
            path: membership.path.clone(),
            roles: membership.roles.iter().map(|role| role.as_str()).collect(),
        }
    }
}

impl TokenView {
    /// A token, as of `now`.
    pub fn of(token: Token, agent: AgentRef, now: Timestamp) -> Self {
        let state = match token.revoked_at {
            Some(_) => State::Revoked,
            None if token.expires_at <= now => State::Expired,
            None => State::Active,
        };
        Self {
            id: token.id,
            name: token.name,
            user: token.user,
            agent,
            scopes: token.scopes,
            state,
            created_at: token.created_at,
            expires_at: token.expires_at,
            revoked_at: token.revoked_at,
            last_used_at: token.last_used_at,
        }
    }
}

impl SessionView {
    /// A session that was seen in use.
    pub fn seen(row: ActiveSession, agent: AgentRef) -> Self {
        Self {
            id: row.session,
            user: row.user,
            agent: Some(agent),
            first_at: row.first_at,
            last_at: Some(row.last_at),
            client: row.client,
            requests: row.requests,
            open_streams: row.open_streams,
            expires_at: row.expires_at,
        }
    }

    /// A browser session that was not used yet.
    pub fn unused(id: String, session: BrowserSession) -> Self {
        Self {
            id,
            user: session.user,
            agent: None,
            first_at: session.created_at,
            last_at: None,
            client: String::new(),
            requests: 0,
            open_streams: 0,
            expires_at: Some(session.expires_at),
        }
    }
}

impl AuditView {
    /// An event.
    pub fn of(event: AuditEvent, agent: Option<AgentRef>) -> Self {
        Self {
            id: event.id,
            action: event.action,
            first_at: event.first_at,
            last_at: event.last_at,
            count: event.count,
            user: event.user,
            user_id: event.user_id,
            agent,
            session: event.session,
            details: event.details,
        }
    }
}
