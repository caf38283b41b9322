//! Classifies a bearer token, from an `Authorization` field or by itself, as a
//! [`PresentedCredential`].
//!
//! An agent's number has neither a sign nor a leading zero.

use secrecy::SecretString;

use super::{
    CiTokenSupport, Error, MAX_ID_TOKEN_BYTES, MAX_KEY_BYTES, MalformedAgentCredential, PresentedCredential, bounded,
};
use crate::access::{AccessKey, AccessQuery};
use tollgate_core::agent::AgentId;

/// Reads a field (RFC 9110, section 11.4): scheme, exactly one blank, token.
pub(super) fn field(field: &[u8], ci: CiTokenSupport) -> Result<PresentedCredential, Error> {
    let end = field.iter().position(|byte| !is_token_byte(*byte));
    let (scheme, rest) = field
        .split_at_checked(end.unwrap_or(field.len()))
        .unwrap_or((field, b""));
    if scheme.is_empty() {
        return Err(MalformedAgentCredential::Authorization.into());
    }
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return Err(Error::UnknownKind);
    }
    let text = rest
        .strip_prefix(b" ")
        .filter(|text| !text.is_empty())
        .and_then(|text| std::str::from_utf8(text).ok())
        .ok_or(MalformedAgentCredential::Authorization)?;
    token(text, ci)
}

/// Reads the text after `Bearer `.
///
/// The kind is the text before the first colon, the agent the text before the next; the rest is
/// the token and may have colons. A JWT has no colon.
pub(super) fn token(text: &str, ci: CiTokenSupport) -> Result<PresentedCredential, Error> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(MalformedAgentCredential::Authorization.into());
    }
    match (text.split_once(':'), ci) {
        (Some(("pat", rest)), _) => query(rest, AccessKey::PersonalAccessToken),
        (Some(("ci", rest)), CiTokenSupport::Accepted) => query(rest, AccessKey::CiJobToken),
        (Some(_), CiTokenSupport::Accepted | CiTokenSupport::Unknown) => Err(Error::UnknownKind),
        (None, _) => id_token(text),
    }
}

fn query(text: &str, key: fn(SecretString) -> AccessKey) -> Result<PresentedCredential, Error> {
    let (agent, token) = text
        .split_once(':')
        .ok_or(MalformedAgentCredential::Missing("the token"))?;
    let agent = AgentId::parse(agent).ok_or(MalformedAgentCredential::Agent)?;
    bounded(token.len(), "the token", MAX_KEY_BYTES)?;
    Ok(PresentedCredential::Query(AccessQuery {
        agent,
        key: key(SecretString::from(token)),
    }))
}

fn id_token(text: &str) -> Result<PresentedCredential, Error> {
    if !text.contains('.') {
        return Err(Error::UnknownKind);
    }
    if !is_compact_jwt(text) {
        return Err(MalformedAgentCredential::Jwt.into());
    }
    bounded(text.len(), "the token", MAX_ID_TOKEN_BYTES)?;
    Ok(PresentedCredential::IdToken(SecretString::from(text)))
}

/// Whether the text is three parts of base64url (RFC 7515, section 7.1). The signature may be
/// empty: such a token (RFC 7519, section 6) is well-formed but proves nothing, and is refused
/// later like one with a wrong signature.
fn is_compact_jwt(text: &str) -> bool {
    let mut parts = text.split('.');
    let (Some(header), Some(claims), Some(signature), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let is_base64url = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let parts = [header, claims, signature];
    !header.is_empty() && !claims.is_empty() && parts.iter().all(|part| part.bytes().all(is_base64url))
}

/// Bytes of a `token` (RFC 9110, section 5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
