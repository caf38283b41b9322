//! Takes a bearer token from the subprotocols of a WebSocket upgrade.
//!
//! Browsers cannot set `Authorization` on a WebSocket, so kube-apiserver takes
//! the token from here (`pkg/authentication/request/websocket/protocol.go`).
//!
//! Security: the token is removed from the subprotocols that are sent to the cluster.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue};
use zeroize::Zeroizing;

use super::{MAX_ID_TOKEN_BYTES, MalformedAgentCredential, bounded, members};

const PREFIX: &[u8] = b"base64url.bearer.authorization.k8s.io.";
/// Prefix of subprotocols with a token for any server.
const ANY_PREFIX: &[u8] = b"base64url.bearer.authorization.";
const MAX_ENCODED_BYTES: usize = MAX_ID_TOKEN_BYTES.div_ceil(3).saturating_mul(4);

/// Returns the decoded token; only WebSocket requests have one.
pub(super) fn read(fields: &HeaderMap) -> Result<Option<Zeroizing<String>>, MalformedAgentCredential> {
    let part = "the token in `Sec-WebSocket-Protocol`";
    if !is_websocket(fields) {
        return Ok(None);
    }
    let tokens = offered(fields).filter_map(|offer| offer.strip_prefix(PREFIX));
    let Some(encoded) = super::sole(tokens, "base64url.bearer.authorization.k8s.io")? else {
        return Ok(None);
    };
    bounded(encoded.len(), part, MAX_ENCODED_BYTES)?;
    let bytes = URL_SAFE_NO_PAD.decode(encoded).map(Zeroizing::new);
    let bytes = bytes.map_err(|_| MalformedAgentCredential::Encoding(part))?;
    let token = std::str::from_utf8(&bytes).map_err(|_| MalformedAgentCredential::Encoding(part))?;
    if offered(fields).all(|offer| offer.starts_with(PREFIX)) {
        return Err(MalformedAgentCredential::OnlySubprotocol);
    }
    Ok(Some(Zeroizing::new(token.to_owned())))
}

/// Removes tokens from the WebSocket subprotocols, whatever the request, so that none reaches the
/// cluster. Lines without a token stay as they are.
pub fn strip(fields: &mut HeaderMap) {
    if !offered(fields).any(|offer| offer.starts_with(ANY_PREFIX)) {
        return;
    }
    let kept: Vec<&[u8]> = offered(fields).filter(|offer| !offer.starts_with(ANY_PREFIX)).collect();
    let line = HeaderValue::from_bytes(&kept.join(b", ".as_slice()));
    fields.remove(SEC_WEBSOCKET_PROTOCOL);
    // Parts of valid values joined by commas make a valid value.
    if let Some(line) = line.ok().filter(|line| !line.is_empty()) {
        fields.insert(SEC_WEBSOCKET_PROTOCOL, line);
    }
}

/// Whether a request asks for an upgrade to WebSocket, possibly among others.
pub fn is_websocket(fields: &HeaderMap) -> bool {
    members(fields, &UPGRADE, b',').any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
}

fn offered(fields: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    members(fields, &SEC_WEBSOCKET_PROTOCOL, b',').filter(|member| !member.is_empty())
}
