//! Paths of the API for tokens, sessions, agents and audit.
//!
//! Security: ids are decoded once, and an encoding that two readers could read differently gets
//! 400.

use http::{Method, Uri};
use uuid::Uuid;

use tollgate_core::session::SessionId;
use tollgate_proxy::target::{Error, check_path};

const API: &str = "/api/v1/";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlatformRoute {
    Agents,
    Tokens,
    CreateToken,
    RevokeToken(Uuid),
    Sessions,
    CreateSession,
    RevokeSession(SessionId),
    Audit,
}

/// Whether pages of allowed origins may call this path. They create and end the session that their
/// calls to clusters use.
pub(crate) fn allows_cors(path: &str) -> bool {
    let tail = path.strip_prefix("/api/v1/sessions");
    tail.is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}

/// Finds what a request to the API asks for. `None` if it is not for the API.
pub(crate) fn platform(method: &Method, uri: &Uri) -> Result<Option<PlatformRoute>, Error> {
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

fn decoded<T>(segment: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
    let text = percent_encoding::percent_decode_str(segment).decode_utf8().ok()?;
    read(&text)
}

#[cfg(test)]
mod tests;
