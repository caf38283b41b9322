//! Whether a person may use an agent, and as what.
//!
//! In: an agent, a credential. Out: [`Access`], which only this room makes.
//! Refuses: 401, the same for every reason; 403 for CI jobs; 500. Never: access
//! by a token of another agent, a membership below developer, or an agent whose
//! configuration is broken.
//!
//! The two halves of the design meet here: the gateway asks [`Question`]s, the
//! platform (its own user directory, or a GitLab or Plural elsewhere) answers.

mod agents;
mod asked;
mod authorizer;
mod embedded;
pub mod endpoint;
mod gateway_token;
mod membership;
mod memory;
#[cfg(test)]
mod platform_stub;
mod remote;
pub(crate) mod token_text;
#[cfg(test)]
mod world;

use std::sync::Arc;

use jiff::Timestamp;
use secrecy::SecretString;
use tollgate_core::access::AccessFacts;
use tollgate_core::agent::{Agent, AgentId};
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::{AccessAs, Identity, User};

pub use agents::{Agents, Configuration, Share};
pub use authorizer::Authorizer;
pub use remote::SetupError;

/// What the gateway asks about one request.
#[derive(Debug)]
pub struct Question<'a> {
    /// The agent asked for.
    pub agent: AgentId,
    /// The credential, by its kind.
    pub key: AccessKey<'a>,
}

/// A credential that was recognized, not yet believed, except for ID tokens.
#[derive(Debug)]
pub enum AccessKey<'a> {
    /// The part after `pat:<agent>:`.
    PersonalAccessToken(&'a SecretString),
    /// A verified ID token.
    OidcIdToken(&'a IdToken),
    /// The cookie's value and the CSRF token beside it.
    SessionCookie {
        /// Value of the cookie, form-decoded once.
        cookie: &'a SecretString,
        /// Field or query parameter.
        csrf_token: &'a SecretString,
    },
    /// The part after `ci:<agent>:`.
    CiJobToken(&'a SecretString),
}

impl AccessKey<'_> {
    /// Which kind of credential.
    pub fn access_type(&self) -> AccessType {
        match self {
            Self::PersonalAccessToken(_) => AccessType::PersonalAccessToken,
            Self::OidcIdToken(_) => AccessType::OidcIdToken,
            Self::SessionCookie { .. } => AccessType::SessionCookie,
            Self::CiJobToken(_) => AccessType::CiJobToken,
        }
    }
}

/// An ID token whose signature, issuer, audience and times are good.
#[derive(Clone, Debug)]
pub struct IdToken {
    /// The token, for a platform elsewhere.
    pub token: SecretString,
    /// `iss`.
    pub issuer: String,
    /// The agent claim.
    pub agent: AgentId,
    /// `sid`, else who signed in when with which client, else this token, hashed:
    /// what can be revoked.
    pub session: SessionId,
    /// `exp`.
    pub expires_at: Timestamp,
    /// Every claim.
    pub claims: serde_json::Map<String, serde_json::Value>,
    /// Who `claimMappings` say it is, where the issuer has any.
    pub mapped: Option<Identity>,
}

/// Proof that a person may use an agent. Only [`crate::access`] makes one.
#[derive(Debug)]
pub struct Access {
    facts: AccessFacts,
    expires_at: Option<Timestamp>,
    /// By which of an issuer's claims the person was found.
    linked: Option<Arc<Linked>>,
}

/// The claims that say who of the directory is meant by an ID token.
#[derive(Debug, PartialEq, Eq)]
struct Linked {
    issuer: String,
    claims: serde_json::Map<String, serde_json::Value>,
}

impl Access {
    /// What policies decide on.
    pub fn facts(&self) -> &AccessFacts {
        &self.facts
    }

    /// The agent.
    pub fn agent(&self) -> &Arc<Agent> {
        &self.facts.agent
    }

    /// The person; a CI job's user for jobs.
    pub fn user(&self) -> &User {
        &self.facts.user
    }

    /// How they came.
    pub fn access_type(&self) -> AccessType {
        self.facts.session.access_type()
    }

    /// A hash of whose it is, for limits: the same person has the same one with
    /// every credential.
    pub fn key(&self) -> u64 {
        use std::hash::{BuildHasher as _, BuildHasherDefault};

        BuildHasherDefault::<rustc_hash::FxHasher>::default().hash_one(("agent", self.user().id, &self.user().username))
    }

    /// As whom they act.
    pub fn access_as(&self) -> &AccessAs {
        &self.facts.access_as
    }

    /// What can be revoked.
    pub fn session(&self) -> &SessionId {
        &self.facts.session
    }

    /// When the credential ends by itself.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }
}

#[cfg(test)]
impl Access {
    /// For tests of the rooms behind this one: by a token that does not end.
    pub(crate) fn for_test(agent: Agent, user: User, access_as: AccessAs, session: SessionId) -> Arc<Self> {
        Arc::new(Self {
            facts: AccessFacts {
                agent: Arc::new(agent),
                user,
                access_as,
                session,
            },
            expires_at: None,
            linked: None,
        })
    }
}

/// Why there is no access.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Refused. The caller is told nothing more than that. (401)
    #[error("{refusal}")]
    Refused {
        /// Why.
        refusal: Refusal,
        /// Whose credential it is, where it is somebody's.
        bearer: Option<Box<Bearer>>,
    },
    /// A CI job whose project the agent is not shared with. (403)
    #[error("the job's project may not use the agent")]
    JobNotAllowed,
    /// The platform, or the store, cannot say. Never remembered. (500)
    #[error("access cannot be judged: {detail}")]
    Unavailable {
        /// For operators; no secret.
        detail: String,
    },
}

/// Why access is refused: for records and operators, never for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such token, cookie or session.
    #[error("the credential is not known")]
    UnknownKey,
    /// It has ended.
    #[error("the credential has expired")]
    Expired,
    /// Somebody ended it.
    #[error("the credential was revoked")]
    Revoked,
    /// Not `k8s_proxy` alone.
    #[error("the token has scopes other than `k8s_proxy` alone")]
    Scope,
    /// It is for another agent.
    #[error("the credential is for another agent")]
    OtherAgent,
    /// Its agent's number stands for another agent or cluster now.
    #[error("the credential is for an agent that had this number before")]
    FormerAgent,
    /// Its person's number stands for another person now.
    #[error("the credential is of a user who had this number before")]
    FormerUser,
    /// There is no such agent.
    #[error("there is no such agent")]
    UnknownAgent,
    /// The agent's configuration has errors, or no `user_access`.
    #[error("the agent is not shared: {0}")]
    NotShared(&'static str),
    /// The CSRF token is not the session's.
    #[error("the CSRF token is not the session's")]
    Csrf,
    /// Nobody in the directory is meant by the credential.
    #[error("nobody in the user directory is meant by the credential")]
    UnknownUser,
    /// The person is blocked.
    #[error("the user is blocked")]
    Blocked,
    /// Not a developer in any project or group the agent is shared with.
    #[error("the user is a developer in no project and no group the agent is shared with")]
    NotMember,
    /// A platform elsewhere refused.
    #[error("the platform refused with {0}")]
    Platform(u16),
    /// The ID token is not good.
    #[error("the ID token is not valid: {0}")]
    IdToken(String),
}

/// Somebody whose credential is known and good for nothing here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// Whose it is.
    pub user: User,
    /// The credential.
    pub session: SessionId,
}

impl Error {
    /// Whose credential was refused, where it is somebody's.
    pub fn bearer(&self) -> Option<&Bearer> {
        match self {
            Self::Refused { bearer, .. } => bearer.as_deref(),
            Self::JobNotAllowed | Self::Unavailable { .. } => None,
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { refusal, bearer: None }
    }
}

impl Refusal {
    /// With whose credential it is.
    pub fn of(self, bearer: Bearer) -> Error {
        Error::Refused {
            refusal: self,
            bearer: Some(Box::new(bearer)),
        }
    }
}
