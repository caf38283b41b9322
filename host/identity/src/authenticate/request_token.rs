//! Finds the token a request carries, and how it was sent.
//!
//! Security: a request with two different tokens is refused, never resolved by choosing one.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderValue};

use super::error::{Error, MalformedCredential};
use super::k8s_proxy::subprotocol;
use super::principal::CredentialTransport;

/// Name of Argo CD's session cookie; chunks after the first are `argocd.token-1`…
const COOKIE_NAME: &str = "argocd.token";
/// Chunks a token may come in (Argo CD's default for `ARGOCD_MAX_COOKIE_NUMBER`).
const MAX_CHUNKS: usize = 20;
/// Most bytes of one token, with its chunks joined.
pub(super) const MAX_TOKEN_BYTES: usize = MAX_CHUNKS * 4093;

/// A token as sent, unverified. No `Debug`: it is a secret.
pub(super) struct PresentedToken<'a> {
    pub(super) token: Cow<'a, str>,
    pub(super) transport: CredentialTransport,
}

/// Finds the only token of a request.
///
/// If the cookie has the same token as `Authorization`, the request counts as bearer: no browser
/// adds that field, or a subprotocol, by itself.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<PresentedToken<'_>>, Error> {
    let bearer = bearer(headers)?;
    let cookie = cookie(headers)?;
    let (token, transport) = match (bearer, cookie) {
        (None, None) => return Ok(None),
        (None, Some(cookie)) => (cookie, CredentialTransport::Cookie),
        (Some(bearer), Some(cookie)) if bearer != cookie => return Err(MalformedCredential::Conflict.into()),
        (Some(bearer), Some(_) | None) => (bearer, CredentialTransport::Bearer),
    };
    let observed = token.len();
    if observed > MAX_TOKEN_BYTES {
        return Err(MalformedCredential::TooLong(observed).into());
    }
    Ok(Some(PresentedToken { token, transport }))
}

/// The only bearer token of a request: of `Authorization` (RFC 6750, section 2.1), or of a subprotocol of a
/// WebSocket, where browsers cannot set that field.
///
/// A credential of another scheme is for a proxy in between, and is passed over as by Argo CD.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<Cow<'_, str>>, MalformedCredential> {
    let offered = subprotocol::read(headers).map_err(MalformedCredential::Subprotocol)?;
    let mut tokens = headers.get_all(AUTHORIZATION).iter().filter_map(bearer_of);
    let sent = tokens.next().transpose()?;
    let more = tokens.count();
    if more > 0 {
        return Err(MalformedCredential::SeveralAuthorizations(more.saturating_add(1)));
    }
    match (sent, offered) {
        (sent, None) => Ok(sent.map(Cow::Borrowed)),
        (None, Some(offered)) => Ok(Some(Cow::Owned(offered.as_str().to_owned()))),
        (Some(sent), Some(offered)) if *sent == **offered => Ok(Some(Cow::Borrowed(sent))),
        (Some(_), Some(_)) => Err(MalformedCredential::Conflict),
    }
}

/// The token of a field; `None` if its scheme is not `Bearer`.
fn bearer_of(field: &HeaderValue) -> Option<Result<&str, MalformedCredential>> {
    let text = field.as_bytes().trim_ascii_start();
    let (scheme, token) = match memchr::memchr(b' ', text) {
        Some(end) => text.split_at_checked(end)?,
        None => (text, &b""[..]),
    };
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return None;
    }
    let token = std::str::from_utf8(token).map(|token| token.trim_matches(' '));
    let token = token.ok().filter(|token| !token.is_empty());
    Some(token.ok_or(MalformedCredential::NotBearer))
}

/// The token of the session cookie, its chunks joined (Argo CD, `util/http` `JoinCookies`).
/// Chunks beyond the announced count are leftovers of a longer token and are ignored.
fn cookie(headers: &HeaderMap) -> Result<Option<Cow<'_, str>>, MalformedCredential> {
    // Argo CD leaves an empty cookie after a sign-out.
    let Some(first) = sole(headers, COOKIE_NAME)?.filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let Some((count, part)) = first.split_once(':') else {
        return Ok(Some(Cow::Borrowed(first)));
    };
    let count = chunk_count(count)?;
    if count == 1 {
        return Ok(Some(Cow::Borrowed(part)));
    }
    let mut token = part.to_owned();
    for index in 1..count {
        let part = sole(headers, &format!("{COOKIE_NAME}-{index}"))?.ok_or(MalformedCredential::MissingChunk(index))?;
        let observed = token.len().saturating_add(part.len());
        if observed > MAX_TOKEN_BYTES {
            return Err(MalformedCredential::TooLong(observed));
        }
        token.push_str(part);
    }
    Ok(Some(Cow::Owned(token)))
}

fn chunk_count(text: &str) -> Result<usize, MalformedCredential> {
    let canonical = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse()
        .ok()
        .filter(|count| canonical && (1..=MAX_CHUNKS).contains(count))
        .ok_or(MalformedCredential::ChunkCount(MAX_CHUNKS))
}

/// The value of the cookie `name`, which must not occur twice. Other cookies are ignored,
/// regardless of their bytes.
pub(super) fn sole<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, MalformedCredential> {
    let mut found = None;
    for field in headers.get_all(COOKIE) {
        let mut rest = field.as_bytes();
        while !rest.is_empty() {
            let end = memchr::memchr(b';', rest).unwrap_or(rest.len());
            let (pair, after) = rest.split_at_checked(end).unwrap_or((rest, b""));
            rest = after.get(1..).unwrap_or_default();
            let Some(value) = pair
                .trim_ascii()
                .strip_prefix(name.as_bytes())
                .and_then(|rest| rest.strip_prefix(b"="))
            else {
                continue;
            };
            let value = std::str::from_utf8(value).map_err(|_| MalformedCredential::NotJwt)?;
            if found.replace(value).is_some() {
                return Err(MalformedCredential::DuplicateCookie(name.to_owned()));
            }
        }
    }
    Ok(found)
}
