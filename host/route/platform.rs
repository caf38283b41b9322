//! Paths of the API for tokens, sessions, agents and audit.
//!
//! In: a method and a path. Out: what is asked for. Refuses: 400 for an encoding
//! two readers could read differently. Never: an id that was decoded twice.

use http::{Method, Uri};
use uuid::Uuid;

use super::{Error, check_path};
use tollgate_core::session::SessionId;

/// Where the API is.
const API: &str = "/api/v1/";

/// What a request wants of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlatformRoute {
    /// The agents the caller may use.
    Agents,
    /// Tokens, without their secrets.
    Tokens,
    /// A new token.
    CreateToken,
    /// The end of a token.
    RevokeToken(Uuid),
    /// Sessions that are at work or could be.
    Sessions,
    /// A new browser session.
    CreateSession,
    /// The end of a session of any kind.
    RevokeSession(SessionId),
    /// What was written down.
    Audit,
}

/// Whether pages of allowed origins call this path: they make the session that
/// their calls to clusters come with, and end it.
pub fn is_for_pages(path: &str) -> bool {
    let tail = path.strip_prefix("/api/v1/sessions");
    tail.is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}

/// Finds what a request wants of the API; nothing when it is not about it.
///
/// # Errors
/// [`Error`] of [`check_path`], where the path is one of the API's.
pub(super) fn platform(method: &Method, uri: &Uri) -> Result<Option<PlatformRoute>, Error> {
    let Some(tail) = uri.path().strip_prefix(API) else {
        return Ok(None);
    };
    let (collection, item) = match tail.split_once('/') {
        Some((collection, item)) => (collection, Some(item)),
        None => (tail, None),
    };
    if !matches!(collection, "agents" | "tokens" | "sessions" | "audit") {
        return Ok(None);
    }
    check_path(uri.path())?;
    let reads = *method == Method::GET || *method == Method::HEAD;
    let route = match (collection, item) {
        ("agents", None) if reads => PlatformRoute::Agents,
        ("tokens", None) if reads => PlatformRoute::Tokens,
        ("tokens", None) if *method == Method::POST => PlatformRoute::CreateToken,
        ("sessions", None) if reads => PlatformRoute::Sessions,
        ("sessions", None) if *method == Method::POST => PlatformRoute::CreateSession,
        ("audit", None) if reads => PlatformRoute::Audit,
        ("tokens", Some(id)) if *method == Method::DELETE => match decoded(id, |id| Uuid::try_parse(id).ok()) {
            Some(id) => PlatformRoute::RevokeToken(id),
            None => return Ok(None),
        },
        ("sessions", Some(id)) if *method == Method::DELETE => match decoded(id, SessionId::parse) {
            Some(id) => PlatformRoute::RevokeSession(id),
            None => return Ok(None),
        },
        (_, _) => return Ok(None),
    };
    Ok(Some(route))
}

/// What a segment says once decoded.
fn decoded<T>(segment: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
    let text = percent_encoding::percent_decode_str(segment).decode_utf8().ok()?;
    read(&text)
}

#[cfg(test)]
mod tests;
