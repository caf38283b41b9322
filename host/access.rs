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

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

pub use agents::{Agents, Configuration, Share};
pub use authorizer::Authorizer;
pub use remote::SetupError;

/// Number of an agent: 1 to 2^63 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentId(i64);

impl AgentId {
    /// The number, where it can be one.
    pub fn new(number: i64) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    /// Reads canonical decimal: no sign, no leading zero, nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        text.parse().ok().filter(|_| canonical).and_then(Self::new)
    }

    /// The number.
    pub fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kinds of credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessType {
    /// `pat:<agent>:<token>`.
    PersonalAccessToken,
    /// An ID token with the agent claim.
    OidcIdToken,
    /// Cookie `_gitlab_kas` with agent and CSRF token.
    SessionCookie,
    /// `ci:<agent>:<token>`.
    CiJobToken,
}

impl AccessType {
    /// The word of the wire and of records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PersonalAccessToken => "personal_access_token",
            Self::OidcIdToken => "oidc_id_token",
            Self::SessionCookie => "session_cookie",
            Self::CiJobToken => "ci_job_token",
        }
    }
}

/// What the ids of [`SessionId::of_one_token`] begin with.
const ONE_TOKEN: &str = "token-";

/// What a session is known by: the credential a person came with.
///
/// Its text form is `pat:<uuid>`, `cookie:<uuid>`, `oidc:<hash>`,
/// `oidc:token-<hash>` or `ci:<hash>`; none of them is a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    access_type: AccessType,
    id: Arc<str>,
}

impl SessionId {
    /// - `id`: without its prefix; ASCII letters, digits and `-_`.
    pub fn new(access_type: AccessType, id: impl Into<Arc<str>>) -> Self {
        Self {
            access_type,
            id: id.into(),
        }
    }

    /// Of an ID token that does not say which sign-in it is of: the next token of
    /// the same person is another session.
    ///
    /// - `hash`: ASCII letters and digits.
    pub fn of_one_token(hash: &str) -> Self {
        Self::new(AccessType::OidcIdToken, format!("{ONE_TOKEN}{hash}"))
    }

    /// Whether ending it ends nothing but one ID token.
    pub fn is_of_one_token(&self) -> bool {
        self.access_type == AccessType::OidcIdToken && self.id.starts_with(ONE_TOKEN)
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Option<Self> {
        let (prefix, id) = text.split_once(':')?;
        let access_type = match prefix {
            "pat" => AccessType::PersonalAccessToken,
            "cookie" => AccessType::SessionCookie,
            "oidc" => AccessType::OidcIdToken,
            "ci" => AccessType::CiJobToken,
            _ => return None,
        };
        let plain = !id.is_empty()
            && id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        plain.then(|| Self::new(access_type, id))
    }

    /// Which kind of credential.
    pub fn access_type(&self) -> AccessType {
        self.access_type
    }

    /// Without the prefix.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.access_type {
            AccessType::PersonalAccessToken => "pat",
            AccessType::OidcIdToken => "oidc",
            AccessType::SessionCookie => "cookie",
            AccessType::CiJobToken => "ci",
        };
        write!(f, "{prefix}:{}", self.id)
    }
}

/// What a role of a member may be, in the order of what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May look at little.
    Guest,
    /// May look.
    Reporter,
    /// May change; the least that reaches agents.
    Developer,
    /// May administer.
    Maintainer,
    /// May do all.
    Owner,
}

impl Role {
    /// Every role, least first.
    pub const LADDER: [Self; 5] = [
        Self::Guest,
        Self::Reporter,
        Self::Developer,
        Self::Maintainer,
        Self::Owner,
    ];

    /// The word of the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Reporter => "reporter",
            Self::Developer => "developer",
            Self::Maintainer => "maintainer",
            Self::Owner => "owner",
        }
    }
}

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

/// A Kubernetes identity: `user.Info`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Never empty.
    pub username: String,
    /// In order, without duplicates.
    pub groups: Vec<String>,
    /// Empty counts as none.
    pub uid: Option<String>,
    /// Lower-case keys and their values.
    pub extra: Vec<(String, Vec<String>)>,
}

/// Proof that a person may use an agent. Only [`crate::access`] makes one.
#[derive(Debug)]
pub struct Access {
    agent: Arc<Agent>,
    user: User,
    access_as: AccessAs,
    session: SessionId,
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

/// An agent, bound to its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its number.
    pub id: AgentId,
    /// Its name: the folder of its `config.yaml`.
    pub name: String,
    /// Number of the project that holds its configuration.
    pub config_project: i64,
    /// Name of the cluster it stands for, as cluster Secrets have it.
    pub cluster: String,
}

impl Agent {
    /// What it is besides its number, which can be given to another agent or cluster.
    /// Names are DNS labels, so that no two agents have one identity.
    pub fn identity(&self) -> String {
        format!("{}/{}", self.name, self.cluster)
    }
}

/// A person, by number and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Number in the directory; 0 for somebody only an issuer knows.
    pub id: i64,
    /// Name in the directory, or the mapped username.
    pub username: String,
}

/// Roles in one project or group that `user_access` lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Number of the project or group.
    pub id: i64,
    /// Its path; empty where a platform elsewhere gave only the number.
    pub path: String,
    /// From reporter up to the effective one.
    pub roles: Vec<Role>,
}

/// Whom the cluster sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessAs {
    /// The agent: the cluster's credential alone, nobody is impersonated.
    Agent,
    /// The person, with the roles that let them in.
    User {
        /// Listed projects, in the configuration's order.
        projects: Vec<Membership>,
        /// Listed groups, in the configuration's order.
        groups: Vec<Membership>,
    },
    /// Whoever the issuer's `claimMappings` say.
    Mapped(Identity),
    /// A CI job.
    CiJob(Box<CiJob>),
    /// A fixed identity, for CI jobs whose configuration says so.
    Impersonate(Identity),
}

/// A CI job, as the platform describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CiJob {
    /// Number of the job.
    pub id: i64,
    /// Number of its pipeline.
    pub pipeline: i64,
    /// Number of its project.
    pub project: i64,
    /// Numbers of the groups above its project.
    pub groups: Vec<i64>,
    /// Slug and tier of its environment, where it has one.
    pub environment: Option<(String, String)>,
}

impl Access {
    /// The agent.
    pub fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// The person; a CI job's user for jobs.
    pub fn user(&self) -> &User {
        &self.user
    }

    /// How they came.
    pub fn access_type(&self) -> AccessType {
        self.session.access_type()
    }

    /// A hash of whose it is, for limits: the same person has the same one with
    /// every credential.
    pub fn key(&self) -> u64 {
        use std::hash::{BuildHasher as _, BuildHasherDefault};

        BuildHasherDefault::<rustc_hash::FxHasher>::default().hash_one(("agent", self.user.id, &self.user.username))
    }

    /// As whom they act.
    pub fn access_as(&self) -> &AccessAs {
        &self.access_as
    }

    /// What can be revoked.
    pub fn session(&self) -> &SessionId {
        &self.session
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
            agent: Arc::new(agent),
            user,
            access_as,
            session,
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
