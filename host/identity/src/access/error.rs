//! Why access is not granted.

use tollgate_core::session::SessionId;
use tollgate_core::user::User;
use tollgate_store as store;

/// Why access was not granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Access is denied. The caller learns nothing more. (401)
    #[error("{reason}")]
    Refused {
        /// Why.
        reason: AccessDenyReason,
        /// The owner of the credential, if it has one.
        owner: Option<Box<CredentialOwner>>,
    },
    /// A CI job whose project the agent is not shared with. (403)
    #[error("the job's project may not use the agent")]
    JobNotAllowed,
    /// The platform or the store could not answer. Never cached. (500)
    /// The text is for operators and has no secrets.
    #[error("access cannot be decided: {0}")]
    Unavailable(String),
}

/// For records and operators, never for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessDenyReason {
    #[error("the credential is not known")]
    UnknownKey,
    #[error("the credential has expired")]
    Expired,
    #[error("the credential was revoked")]
    Revoked,
    #[error("the token has scopes other than `k8s_proxy` alone")]
    Scope,
    #[error("the credential is for another agent")]
    OtherAgent,
    /// The number of the credential's agent now stands for another agent or cluster.
    #[error("the credential was issued for an earlier agent with the same id")]
    FormerAgent,
    /// The number of the credential's owner now stands for another person.
    #[error("the credential was issued to an earlier user with the same id")]
    FormerUser,
    #[error("there is no such agent")]
    UnknownAgent,
    /// The agent's configuration has errors, or no `user_access`.
    #[error("the agent is not shared: {0}")]
    NotShared(&'static str),
    #[error("the CSRF token is not the session's")]
    Csrf,
    #[error("the credential matches nobody in the user directory")]
    UnknownUser,
    #[error("the directory has another user of this name")]
    NameTaken,
    #[error("the user is blocked")]
    Blocked,
    #[error("the user is locked")]
    Locked,
    /// Not a developer in any project or group the agent is shared with.
    #[error("the user is a developer in no project and no group the agent is shared with")]
    NotMember,
    /// A remote platform refused, with this status.
    #[error("the platform refused with {0}")]
    Platform(u16),
    #[error("the ID token is not valid: {0}")]
    IdToken(String),
}

/// The owner of a credential that is known but was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialOwner {
    /// Whose it is.
    pub user: User,
    /// The credential.
    pub session: SessionId,
    /// The issuer that vouches for the person. `None` if the directory or a platform does.
    pub issuer: Option<String>,
}

impl Error {
    /// Returns the owner of the refused credential, if it has one.
    pub fn credential_owner(&self) -> Option<&CredentialOwner> {
        match self {
            Self::Refused { owner, .. } => owner.as_deref(),
            Self::JobNotAllowed | Self::Unavailable(_) => None,
        }
    }
}

impl From<AccessDenyReason> for Error {
    fn from(reason: AccessDenyReason) -> Self {
        Self::Refused { reason, owner: None }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl AccessDenyReason {
    pub(crate) fn with_owner(self, owner: CredentialOwner) -> Error {
        Error::Refused {
            reason: self,
            owner: Some(Box::new(owner)),
        }
    }
}
