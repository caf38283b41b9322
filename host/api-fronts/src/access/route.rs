//! Paths of the API for tokens, sessions, agents and audit.
//!
//! Security: ids are decoded once, and an encoding that two readers could read differently gets
//! 400.

use uuid::Uuid;

use tollgate_core::session::SessionId;
use tollgate_front::path::{Captures, Methods, Part, Path};
use tollgate_identity::access::endpoint;
use tollgate_proxy::target::{Error, check_path};

const API: &str = "/api/v1/";

/// What a row asks for. `None` if an id in the path is none.
pub(crate) type Read = fn(&Captures<'_>) -> Option<AccessRoute>;

pub(crate) const PATHS: &[Path<Read>] = &[
    Path::new(Methods::Read, &["/api/v1/agents"], &[], |_| Some(AccessRoute::Agents)),
    Path::new(Methods::Read, &["/api/v1/tokens"], &[], |_| Some(AccessRoute::Tokens)),
    Path::new(Methods::Post, &["/api/v1/tokens"], &[], |_| {
        Some(AccessRoute::CreateToken)
    }),
    Path::new(Methods::Delete, &["/api/v1/tokens/"], &[ID], |path| {
        decoded(path, |id| Uuid::try_parse(id).ok()).map(AccessRoute::RevokeToken)
    }),
    Path::new(Methods::Read, &["/api/v1/sessions"], &[], |_| {
        Some(AccessRoute::Sessions)
    }),
    Path::new(Methods::Post, &["/api/v1/sessions"], &[], |_| {
        Some(AccessRoute::CreateSession)
    }),
    Path::new(Methods::Delete, &["/api/v1/sessions/"], &[ID], |path| {
        decoded(path, SessionId::parse).map(AccessRoute::RevokeSession)
    }),
    Path::new(Methods::Read, &["/api/v1/audit"], &[], |_| Some(AccessRoute::Audit)),
    Path::new(Methods::Post, &[endpoint::PATH], &[], |_| Some(AccessRoute::Authorize)),
];
const ID: Part = Part::Segment("id");

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessRoute {
    Agents,
    Tokens,
    CreateToken,
    RevokeToken(Uuid),
    Sessions,
    CreateSession,
    RevokeSession(SessionId),
    Audit,
    /// Another gateway asks whether a person may use an agent.
    Authorize,
}

/// Whether pages of allowed origins may call this path. They create and end the session that their
/// calls to clusters use.
pub(crate) fn allows_cors(path: &str) -> bool {
    let tail = path.strip_prefix("/api/v1/sessions");
    tail.is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}

/// Checks a path, if it is one of a collection or below it.
pub(crate) fn check(path: &str) -> Result<(), Error> {
    let collection = path.strip_prefix(API).and_then(|tail| tail.split('/').next());
    match collection {
        Some("agents" | "tokens" | "sessions" | "audit") => check_path(path),
        Some(_) | None => Ok(()),
    }
}

fn decoded<T>(path: &Captures<'_>, read: impl Fn(&str) -> Option<T>) -> Option<T> {
    let text = percent_encoding::percent_decode_str(path.name()).decode_utf8().ok()?;
    read(&text)
}

#[cfg(test)]
mod tests;
