//! Recognizes, by form alone, which credential a request under `/k8s-proxy/` carries.
//!
//! [`crate::access`] decides whether to accept a [`PresentedCredential`]; only ID tokens are verified
//! here ([`IdTokenVerifier`]). A malformed credential gives 400; none, or one of an unknown kind,
//! gives 401.
//!
//! Security: two credentials are refused, never resolved by choosing one. No message contains a
//! secret.

use http::header::AUTHORIZATION;
use http::request::Parts;
use secrecy::SecretString;

mod bearer;
mod cookie;
mod id_tokens;
mod query;
mod subprotocol;

#[cfg(test)]
mod tests;

pub use id_tokens::IdTokenVerifier;
pub use query::{AGENT_PARAMETER, CSRF_PARAMETER, strip as strip_query};

pub use cookie::is_present as has_cookie;
pub use subprotocol::{is_websocket, strip as strip_subprotocols};

use crate::access::AccessQuery;
use tollgate_core::agent::AgentId;
use tollgate_core::session::AccessType;

/// Most bytes of a personal access token, a job token, a cookie or a CSRF token.
pub(super) const MAX_KEY_BYTES: usize = 8 * 1024;
/// Most bytes of an ID token.
pub(super) const MAX_ID_TOKEN_BYTES: usize = 64 * 1024;

/// A credential as sent. Its form is valid; nothing else is known.
pub enum PresentedCredential {
    /// `Bearer pat:<agent>:<token>`, `Bearer ci:<agent>:<token>`, or cookie `_gitlab_kas` with the
    /// agent and the CSRF token sent separately. Each secret has 1 to 8,192 bytes, and a
    /// token is visible ASCII.
    Query(AccessQuery),
    /// A compact JWT of 1 to 65,536 bytes, for [`IdTokenVerifier::verify`].
    IdToken(SecretString),
}

impl PresentedCredential {
    /// The kind of credential.
    pub fn access_type(&self) -> AccessType {
        match self {
            Self::Query(query) => query.key.access_type(),
            Self::IdToken(_) => AccessType::OidcIdToken,
        }
    }

    /// The agent the request names; ID tokens name theirs in a claim.
    pub fn agent(&self) -> Option<AgentId> {
        match self {
            Self::Query(query) => Some(query.agent),
            Self::IdToken(_) => None,
        }
    }
}

impl std::fmt::Debug for PresentedCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PresentedCredential")
            .field("access_type", &self.access_type())
            .field("agent", &self.agent())
            .finish_non_exhaustive()
    }
}

/// Whether the platform knows the tokens of CI jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CiTokenSupport {
    /// A remote platform verifies them.
    Accepted,
    /// They are unknown: `ci:` is an unknown kind of token.
    Unknown,
}

/// Why a request has no usable credential.
///
/// The caller may see every message; they concern the form only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing was sent. (401)
    #[error("no credential was sent")]
    NoCredential,
    /// Something was sent that cannot be a credential. (400)
    #[error("malformed credential: {0}")]
    Malformed(#[from] MalformedAgentCredential),
    /// A scheme or a kind of token that is unknown here. (401)
    #[error("the kind of credential is not known")]
    UnknownKind,
}

impl Error {
    /// A stable name of the reason in snake case, for metrics, logs and records.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoCredential => "no_credential",
            Self::Malformed(_) => "malformed_credential",
            Self::UnknownKind => "unknown_credential",
        }
    }
}

/// What is wrong with the form of a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedAgentCredential {
    /// More than one credential; choosing one would be a guess.
    #[error("several credentials, send one")]
    Several,
    /// More than one line, cookie or parameter with the same name.
    #[error("`{name}` occurs {observed} times, once is allowed")]
    Repeated {
        /// Field, cookie or query parameter.
        name: &'static str,
        /// How often it occurs.
        observed: usize,
    },
    /// A required part is missing or empty.
    #[error("{part} is missing")]
    Missing {
        /// Which part.
        part: &'static str,
    },
    /// Not a scheme, one blank and a value without blanks.
    #[error("`Authorization` is not `Bearer`, one blank and a token")]
    Authorization,
    /// Not a positive 64-bit number in canonical decimal.
    #[error("the agent id is not a positive whole number")]
    Agent,
    /// The token has dots, but not the three parts of a signed JWT; it may be an encrypted one.
    #[error("the token is not a signed JWT in compact form")]
    Jwt,
    /// Bytes that cannot be decoded.
    #[error("{part} cannot be decoded")]
    Encoding {
        /// Which part.
        part: &'static str,
    },
    /// A value beyond its bound.
    #[error("{part} has {observed} bytes, {allowed} are allowed")]
    TooLong {
        /// Which part.
        part: &'static str,
        /// Its length.
        observed: usize,
        /// Most bytes allowed.
        allowed: usize,
    },
    /// The token is the only WebSocket subprotocol. Without another one, the cluster has none to
    /// answer with.
    #[error("a token in `Sec-WebSocket-Protocol` needs another subprotocol beside it")]
    OnlySubprotocol,
}

/// Finds the only credential of a request.
///
/// It may be sent as `Authorization: Bearer` (GitLab's `pat:` and `ci:`, or a JWT), a WebSocket
/// subprotocol with the same text (Kubernetes, `base64url.bearer.authorization.k8s.io.`), or the
/// cookie of GitLab's pages. Other cookies are ignored.
///
/// # Errors
/// Every [`Error`]; none of them holds a secret.
pub fn read(head: &Parts, ci: CiTokenSupport) -> Result<PresentedCredential, Error> {
    let authorization = sole(head.headers.get_all(AUTHORIZATION), "Authorization")?;
    let subprotocol = subprotocol::read(&head.headers)?;
    let is_cookie = cookie::is_present(&head.headers);
    match (authorization, subprotocol, is_cookie) {
        (None, None, false) => Err(Error::NoCredential),
        (Some(field), None, false) => bearer::field(field.as_bytes(), ci),
        (None, Some(token), false) => bearer::token(&token, ci),
        (None, None, true) => Ok(cookie::read(head)?),
        (Some(_), Some(_), _) | (Some(_), _, true) | (_, Some(_), true) => {
            Err(MalformedAgentCredential::Several.into())
        }
    }
}

/// The only one of these; `name` must not occur twice.
fn sole<T>(found: impl IntoIterator<Item = T>, name: &'static str) -> Result<Option<T>, MalformedAgentCredential> {
    let mut found = found.into_iter();
    let first = found.next();
    match found.count() {
        0 => Ok(first),
        more => Err(MalformedAgentCredential::Repeated {
            name,
            observed: more.saturating_add(1),
        }),
    }
}

/// Refuses values that are empty or beyond [`MAX_KEY_BYTES`].
fn bounded(value: &str, part: &'static str) -> Result<(), MalformedAgentCredential> {
    match value.len() {
        0 => Err(MalformedAgentCredential::Missing { part }),
        observed if observed > MAX_KEY_BYTES => Err(MalformedAgentCredential::TooLong {
            part,
            observed,
            allowed: MAX_KEY_BYTES,
        }),
        _ => Ok(()),
    }
}
