//! Reads the cookie of GitLab's pages, with its agent and CSRF token, as
//! [`AccessKey::SessionCookie`].
//!
//! Security: two cookies of the same name are refused, because a site in a parent domain may
//! have planted one of them.

use http::header::COOKIE;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use secrecy::SecretString;

use super::query::{self, AGENT_PARAMETER, CSRF_PARAMETER};
use super::{MAX_KEY_BYTES, MalformedAgentCredential, PresentedCredential, bounded, members, sole};
use crate::access::{AccessKey, AccessQuery};
use tollgate_core::agent::AgentId;
use tollgate_core::query_parameters::decode;

/// GitLab, `lib/gitlab/kas/user_access.rb`.
const COOKIE_NAME: &str = "_gitlab_kas";
const AGENT_FIELD: HeaderName = HeaderName::from_static("gitlab-agent-id");
const CSRF_FIELD: HeaderName = HeaderName::from_static("x-csrf-token");

/// Whether the cookie is present, any number of times and with any value.
pub fn is_present(fields: &HeaderMap) -> bool {
    values(fields).next().is_some()
}

/// Reads cookie, agent and CSRF token. A header field takes precedence over a query parameter.
pub(super) fn read(head: &Parts) -> Result<PresentedCredential, MalformedAgentCredential> {
    let cookie = cookie(&head.headers)?;
    let agent = header_or_parameter(head, AGENT_FIELD, "Gitlab-Agent-Id", AGENT_PARAMETER, "the agent id")?;
    let csrf = header_or_parameter(head, CSRF_FIELD, "X-Csrf-Token", CSRF_PARAMETER, "the CSRF token")?;
    Ok(PresentedCredential::Query(AccessQuery {
        agent: AgentId::parse(&agent).ok_or(MalformedAgentCredential::Agent)?,
        key: AccessKey::SessionCookie {
            cookie: SecretString::from(cookie),
            csrf_token: SecretString::from(csrf),
        },
    }))
}

/// The cookie's value, form-decoded once, as Rack escapes it.
fn cookie(fields: &HeaderMap) -> Result<String, MalformedAgentCredential> {
    let part = "the value of cookie `_gitlab_kas`";
    let value = sole(values(fields), COOKIE_NAME)?.unwrap_or_default();
    let text = std::str::from_utf8(value).map_err(|_| MalformedAgentCredential::Encoding(part))?;
    let value = decode(text).ok_or(MalformedAgentCredential::Encoding(part))?;
    bounded(value.len(), part, MAX_KEY_BYTES)?;
    Ok(value)
}

/// Raw values of the cookie; one without `=` has an empty one.
fn values(fields: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    members(fields, &COOKIE, b';').filter_map(|pair| {
        let rest = pair.strip_prefix(COOKIE_NAME.as_bytes())?;
        if rest.is_empty() {
            return Some(rest);
        }
        rest.strip_prefix(b"=")
    })
}

/// The only value of a field, else of a query parameter.
fn header_or_parameter(
    head: &Parts,
    field: HeaderName,
    shown: &'static str,
    parameter: &'static str,
    part: &'static str,
) -> Result<String, MalformedAgentCredential> {
    let value = match sole(head.headers.get_all(field), shown)? {
        Some(field) => {
            let text = field.to_str().map_err(|_| MalformedAgentCredential::Encoding(part))?;
            text.to_owned()
        }
        None => {
            let found = query::sole(head.uri.query().unwrap_or_default(), parameter)?;
            found.ok_or(MalformedAgentCredential::Missing(part))?
        }
    };
    bounded(value.len(), part, MAX_KEY_BYTES)?;
    Ok(value)
}
