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
use tollgate_objects::agent::AccessMode;
use tollgate_store::{ActiveSession, AuditEvent, BrowserSession, Login, Token};

pub(crate) mod content;
pub(crate) mod cookie;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct AgentRef {
    pub(crate) id: AgentId,
    /// Its name. Absent if the agent no longer exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentView {
    pub(crate) id: AgentId,
    pub(crate) name: String,
    pub(crate) cluster: String,
    /// The identity that the cluster sees: `agent`, `user` or `mapped`. Absent if the agent is not
    /// shared with the person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) access_as: Option<&'static str>,
    pub(crate) roles: Vec<RoleView>,
    pub(crate) kubeconfig: KubeconfigView,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RoleView {
    pub(crate) kind: &'static str,
    pub(crate) id: i64,
    pub(crate) path: String,
    /// Role names, from reporter up.
    pub(crate) roles: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct KubeconfigView {
    /// URL of the Kubernetes front, if the settings have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    pub(crate) context: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Active,
    Expired,
    Revoked,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TokenView {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) user: User,
    pub(crate) agent: AgentRef,
    pub(crate) scopes: Vec<String>,
    pub(crate) state: State,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revoked_at: Option<Timestamp>,
    /// When it was last used, accurate to about a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_used_at: Option<Timestamp>,
}

/// A session as the API shows it: one line for each agent it was used for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionView {
    pub(crate) id: String,
    pub(crate) user: User,
    /// The agent it was used for; absent for logins and browser sessions that entered no cluster lately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<AgentRef>,
    pub(crate) first_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) client: String,
    pub(crate) requests: u64,
    pub(crate) open_streams: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditView {
    /// Its number; ids sort by time.
    pub(crate) id: Uuid,
    pub(crate) action: String,
    /// When it happened, or first happened.
    pub(crate) first_at: Timestamp,
    pub(crate) last_at: Timestamp,
    pub(crate) count: u64,
    /// Who did it. Empty for unknown callers.
    pub(crate) user: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<AgentRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    pub(crate) details: Map<String, Value>,
}

impl AgentView {
    pub(crate) fn of(agent: &Agent, share: Option<&AgentShare>, public_url: Option<&Url>) -> Self {
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
            roles: membership.roles.iter().map(Into::into).collect(),
        }
    }
}

impl TokenView {
    pub(crate) fn of(token: Token, agent: AgentRef, now: Timestamp) -> Self {
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
    pub(crate) fn seen(row: ActiveSession, agent: AgentRef) -> Self {
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

    pub(crate) fn login(id: String, login: Login) -> Self {
        Self {
            id,
            user: login.user,
            agent: None,
            first_at: login.created_at,
            last_at: Some(login.used_at),
            client: login.address,
            requests: 0,
            open_streams: 0,
            expires_at: Some(login.expires_at),
        }
    }

    pub(crate) fn unused(id: String, session: BrowserSession) -> Self {
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
    pub(crate) fn of(event: AuditEvent, agent: Option<AgentRef>) -> Self {
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
