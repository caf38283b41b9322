//! Paths of the API for tokens, sessions, agents and audit.
//!
//! Security: ids are decoded once, and an encoding that two readers could read differently gets
//! 400.

use http::{Method, Uri};
use uuid::Uuid;

use tollgate_core::session::SessionId;
use tollgate_front::path::{self, Answerer, Methods, Part, Path};
use tollgate_proxy::target::{Error, check_path};

const API: &str = "/api/v1/";

pub(crate) const PATHS: &[Path<Endpoint>] = &[
    Path::new(Methods::Read, &["/api/v1/agents"], &[], Endpoint::Agents),
    Path::new(Methods::Read, &["/api/v1/tokens"], &[], Endpoint::Tokens),
    Path::new(Methods::Post, &["/api/v1/tokens"], &[], Endpoint::CreateToken),
    Path::new(Methods::Delete, &["/api/v1/tokens/"], &[ID], Endpoint::RevokeToken),
    Path::new(Methods::Read, &["/api/v1/sessions"], &[], Endpoint::Sessions),
    Path::new(Methods::Post, &["/api/v1/sessions"], &[], Endpoint::CreateSession),
    Path::new(Methods::Delete, &["/api/v1/sessions/"], &[ID], Endpoint::RevokeSession),
    Path::new(Methods::Read, &["/api/v1/audit"], &[], Endpoint::Audit),
];
const ID: Part = Part::Segment("id");

#[derive(Clone, Copy, Debug)]
pub(crate) enum Endpoint {
    Agents,
    Tokens,
    CreateToken,
    RevokeToken,
    Sessions,
    CreateSession,
    RevokeSession,
    Audit,
}

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
    let collection = tail.split('/').next().unwrap_or_default();
    if !matches!(collection, "agents" | "tokens" | "sessions" | "audit") {
        return Ok(None);
    }
    check_path(uri.path())?;
    let Some((row, captures)) = path::find(PATHS, method, uri.path(), Answerer::ALL) else {
        return Ok(None);
    };
    let [id, ..] = captures.segments;
    Ok(match row.operation {
        Endpoint::Agents => Some(PlatformRoute::Agents),
        Endpoint::Tokens => Some(PlatformRoute::Tokens),
        Endpoint::CreateToken => Some(PlatformRoute::CreateToken),
        Endpoint::Sessions => Some(PlatformRoute::Sessions),
        Endpoint::CreateSession => Some(PlatformRoute::CreateSession),
        Endpoint::Audit => Some(PlatformRoute::Audit),
        Endpoint::RevokeToken => decoded(id, |id| Uuid::try_parse(id).ok()).map(PlatformRoute::RevokeToken),
        Endpoint::RevokeSession => decoded(id, SessionId::parse).map(PlatformRoute::RevokeSession),
    })
}

fn decoded<T>(segment: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
    let text = percent_encoding::percent_decode_str(segment).decode_utf8().ok()?;
    read(&text)
}

#[cfg(test)]
mod tests;
