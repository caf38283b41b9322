//! Decides whether a person may use an agent, and which identity they act as there.
//!
//! The gateway sends an [`AccessQuery`] to the platform, which is either the gateway's own user
//! directory or a remote GitLab or Plural. Errors are 401 with the same text for every reason, 403
//! for CI jobs, and 500.
//!
//! Security: only this module makes an [`AccessGrant`]. A token of another agent, a membership
//! below developer or an agent with a broken configuration gives none.

mod agents;
mod authorizer;
mod cache;
mod embedded;
pub mod endpoint;
mod error;
mod gateway_token;
mod membership;
mod remote;
pub mod secret;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::person::PersonNames;
use crate::sessions::SessionHolder;
use jiff::Timestamp;
use secrecy::SecretString;
use tollgate_core::access::AccessFacts;
use tollgate_core::agent::{Agent, AgentId};
use tollgate_core::session::{AccessType, SessionId};
#[cfg(any(test, feature = "unchecked"))]
use tollgate_core::user::AccessAs;
use tollgate_core::user::{Identity, User};

pub use agents::{AgentShare, Agents, issuer_only_user};
pub use authorizer::Authorizer;
pub(crate) use error::AccessDenyReason;
pub use error::{CredentialOwner, Error};
pub use membership::Member;
pub use remote::{ConfigurationReporter, SetupError};

/// A query to the platform: whether a credential gives access to an agent.
#[derive(Clone, Debug)]
pub struct AccessQuery {
    /// The requested agent.
    pub agent: AgentId,
    /// The credential.
    pub key: AccessKey,
}

/// A credential that was recognized but, except for ID tokens, not yet verified.
#[derive(Clone, Debug)]
pub enum AccessKey {
    /// The part after `pat:<agent>:`.
    PersonalAccessToken(SecretString),
    /// A verified ID token.
    OidcIdToken(Arc<IdToken>),
    /// The cookie's value and the CSRF token beside it.
    SessionCookie {
        /// Value of the cookie, form-decoded once.
        cookie: SecretString,
        /// Value of the header field or query parameter.
        csrf_token: SecretString,
    },
    /// The part after `ci:<agent>:`.
    CiJobToken(SecretString),
}

impl AccessKey {
    /// The kind of credential.
    pub fn access_type(&self) -> AccessType {
        match self {
            Self::PersonalAccessToken(_) => AccessType::PersonalAccessToken,
            Self::OidcIdToken(_) => AccessType::OidcIdToken,
            Self::SessionCookie { .. } => AccessType::SessionCookie,
            Self::CiJobToken(_) => AccessType::CiJobToken,
        }
    }

    fn secrets(&self) -> (&SecretString, Option<&SecretString>) {
        match self {
            Self::PersonalAccessToken(token) | Self::CiJobToken(token) => (token, None),
            Self::OidcIdToken(token) => (&token.token, None),
            Self::SessionCookie { cookie, csrf_token } => (cookie, Some(csrf_token)),
        }
    }
}

/// An ID token whose signature, issuer, audience and times were verified.
#[derive(Clone, Debug)]
pub struct IdToken {
    /// The token itself, for a remote platform.
    pub token: SecretString,
    /// `iss`.
    pub issuer: String,
    /// The agent claim.
    pub agent: AgentId,
    /// The session, which can be revoked: a hash of `sid`; else of who signed in when with which
    /// client; else of this token.
    pub session: SessionId,
    /// `exp`.
    pub expires_at: Timestamp,
    /// Every claim.
    pub claims: serde_json::Map<String, serde_json::Value>,
    /// The identity from the issuer's `claimMappings`, if it has any.
    pub mapped: Option<Identity>,
}

impl IdToken {
    fn names(&self) -> PersonNames {
        names_of(&self.claims, self.mapped.as_ref())
    }
}

/// The names that an issuer gives: the subject, and the user name of its claim mappings.
fn names_of(claims: &serde_json::Map<String, serde_json::Value>, identity: Option<&Identity>) -> PersonNames {
    let names = PersonNames::of(identity.map(|identity| identity.username.as_str()));
    names.and_subject(claims)
}

/// Proof that a person may use an agent. Only [`crate::access`] makes one.
#[derive(Debug)]
pub struct AccessGrant {
    facts: AccessFacts,
    expires_at: Option<Timestamp>,
    /// The claims of the issuer by which the person was found.
    linked: Option<Arc<LinkedClaims>>,
    names: PersonNames,
}

/// The claims that link an ID token or a login to a person of the directory.
#[derive(Debug, PartialEq, Eq)]
struct LinkedClaims {
    issuer: String,
    claims: serde_json::Map<String, serde_json::Value>,
    /// The identity that the issuer vouches for, by whose groups the person may have roles.
    identity: Option<Identity>,
}

impl AccessGrant {
    /// The facts policies decide on.
    pub fn facts(&self) -> &AccessFacts {
        &self.facts
    }

    /// The agent.
    pub fn agent(&self) -> &Arc<Agent> {
        &self.facts.agent
    }

    /// The person; for CI jobs, the job's user.
    pub fn user(&self) -> &User {
        &self.facts.user
    }

    /// A hash that identifies the person, for limits: it is the same with every credential.
    pub fn limit_key(&self) -> u64 {
        use std::hash::{BuildHasher as _, BuildHasherDefault};

        BuildHasherDefault::<rustc_hash::FxHasher>::default().hash_one(("agent", self.user().id, &self.user().username))
    }

    /// The names by which the person can be locked.
    pub fn names(&self) -> &PersonNames {
        &self.names
    }

    /// The session; it can be revoked.
    pub fn session(&self) -> &SessionId {
        &self.facts.session
    }

    /// Whose credential it is.
    pub fn owner(&self) -> CredentialOwner {
        CredentialOwner {
            user: self.user().clone(),
            session: self.session().clone(),
            issuer: self.linked.as_ref().map(|linked| linked.issuer.clone()),
        }
    }

    /// When the credential expires.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }

    /// The access of somebody who was let in before, if agent and person are the same; their
    /// identity in the cluster may differ.
    fn renewed(self: &Arc<Self>, facts: AccessFacts) -> Option<Arc<Self>> {
        if *facts.agent != **self.agent() || facts.user != *self.user() {
            return None;
        }
        if facts.access_as == self.facts.access_as && facts.issuer_groups == self.facts.issuer_groups {
            return Some(Arc::clone(self));
        }
        Some(Arc::new(Self {
            facts,
            expires_at: self.expires_at,
            linked: self.linked.clone(),
            names: self.names.clone(),
        }))
    }
}

impl<'a> From<&'a AccessGrant> for SessionHolder<'a> {
    fn from(access: &'a AccessGrant) -> Self {
        Self {
            session: access.session(),
            user: access.user(),
            names: Some(access.names()),
            agent: access.agent().id,
            expires_at: access.expires_at(),
        }
    }
}

#[cfg(any(test, feature = "unchecked"))]
impl AccessGrant {
    /// For tests of later modules: access by a token that does not expire.
    pub fn for_test(agent: Agent, user: User, access_as: AccessAs, session: SessionId) -> Arc<Self> {
        Arc::new(Self {
            names: PersonNames::of([user.username.as_str()]),
            facts: AccessFacts {
                agent: Arc::new(agent),
                user,
                issuer_groups: None,
                access_as,
                session,
            },
            expires_at: None,
            linked: None,
        })
    }
}
