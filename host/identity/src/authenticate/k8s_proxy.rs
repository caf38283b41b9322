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
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;

mod bearer;
mod cookie;
mod error;
mod id_tokens;
mod query;
pub(super) mod subprotocol;

#[cfg(test)]
mod tests;

pub use id_tokens::IdTokenVerifier;
pub use query::{AGENT_PARAMETER, CSRF_PARAMETER, strip as strip_query};

pub use cookie::is_present as has_cookie;
pub use error::Error;
pub(super) use error::MalformedAgentCredential;

use crate::access::AccessQuery;

/// Most bytes of a personal access token, a job token, a cookie or a CSRF token.
pub(super) const MAX_KEY_BYTES: usize = 8 * 1024;
pub(super) const MAX_ID_TOKEN_BYTES: usize = 64 * 1024;

/// A credential as sent. Its form is valid; nothing else is known.
#[derive(Debug)]
pub enum PresentedCredential {
    /// `Bearer pat:<agent>:<token>`, `Bearer ci:<agent>:<token>`, or cookie `_gitlab_kas` with the
    /// agent and the CSRF token sent separately. Each secret has 1 to 8,192 bytes, and a
    /// token is visible ASCII.
    Query(AccessQuery),
    /// A compact JWT of 1 to 65,536 bytes, for [`IdTokenVerifier::verify`].
    IdToken(SecretString),
}

/// Whether the platform knows the tokens of CI jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CiTokenSupport {
    /// A remote platform verifies them.
    Accepted,
    /// They are unknown: `ci:` is an unknown kind of token.
    Unknown,
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

/// Whether a request carries a token, in `Authorization` or a subprotocol, and no cookie of the
/// front. A browser adds neither of the two by itself.
#[must_use]
pub fn has_only_token(fields: &HeaderMap) -> bool {
    let has_token = fields.contains_key(AUTHORIZATION) || subprotocol::is_present(fields);
    has_token && !cookie::is_present(fields)
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

/// What a separator splits the lines of a field into, without blanks around it.
fn members<'a>(fields: &'a HeaderMap, name: &HeaderName, separator: u8) -> impl Iterator<Item = &'a [u8]> {
    let lines = fields.get_all(name).into_iter().map(HeaderValue::as_bytes);
    lines.flat_map(move |line| line.split(move |byte| *byte == separator).map(<[u8]>::trim_ascii))
}

/// Refuses values that are empty or have more than `allowed` bytes.
fn bounded(observed: usize, part: &'static str, allowed: usize) -> Result<(), MalformedAgentCredential> {
    match observed {
        0 => Err(MalformedAgentCredential::Missing(part)),
        observed if observed > allowed => Err(MalformedAgentCredential::TooLong {
            part,
            observed,
            allowed,
        }),
        _ => Ok(()),
    }
}
