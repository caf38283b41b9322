//! Reads the query parameters meant for the gateway and removes them from the query.
//!
//! Invariant: every other byte of the query stays as it is.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::MalformedAgentCredential;

/// Parameter with the agent's number, for browsers that open WebSockets.
pub const AGENT_PARAMETER: &str = "gitlab-agent-id";
/// Parameter with the CSRF token, likewise.
pub const CSRF_PARAMETER: &str = "gitlab-csrf-token";

/// The form-decoded value of a parameter, which must not occur twice.
pub(super) fn sole(query: &str, name: &'static str) -> Result<Option<String>, MalformedAgentCredential> {
    let found = query.split('&').filter(|pair| is_named(pair, name));
    let Some(pair) = super::sole(found, name)? else {
        return Ok(None);
    };
    let value = pair.split_once('=').map_or("", |(_, value)| value);
    let value = decode(value).ok_or(MalformedAgentCredential::Encoding(name))?;
    Ok(Some(value))
}

/// Removes the parameters that are for the gateway from a query, [`AGENT_PARAMETER`] and
/// [`CSRF_PARAMETER`]. All other bytes stay as they are and in order; `None` if nothing is left.
///
/// SECURITY: names are compared decoded, as the cluster would read them; an
/// escaped spelling must not carry a CSRF token into its audit log.
pub fn strip(query: Option<&str>) -> Option<Cow<'_, str>> {
    let query = query?;
    let is_ours = |pair: &&str| is_named(pair, AGENT_PARAMETER) || is_named(pair, CSRF_PARAMETER);
    if !query.split('&').any(|pair| is_ours(&pair)) {
        return Some(Cow::Borrowed(query));
    }
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_ours(pair)).collect();
    (!kept.is_empty()).then(|| Cow::Owned(kept.join("&")))
}

/// Decodes `application/x-www-form-urlencoded` once; `None` for a broken escape
/// or bytes that are not UTF-8.
pub(super) fn decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let broken = bytes.iter().enumerate().any(|(at, byte)| {
        let digit = |ahead: usize| bytes.get(at.saturating_add(ahead)).is_some_and(u8::is_ascii_hexdigit);
        *byte == b'%' && !(digit(1) && digit(2))
    });
    if broken {
        return None;
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

fn is_named(pair: &str, name: &str) -> bool {
    let spelled = pair.split_once('=').map_or(pair, |(name, _)| name);
    // The usual spelling needs no decoding.
    spelled == name || (spelled.contains('%') && decode(spelled).is_some_and(|decoded| decoded == name))
}
