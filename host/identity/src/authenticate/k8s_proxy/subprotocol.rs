//! Takes a bearer token from the subprotocols of a WebSocket upgrade.
//!
//! Browsers cannot set `Authorization` on a WebSocket, so kube-apiserver takes
//! the token from here (`pkg/authentication/request/websocket/protocol.go`).
//!
//! Security: `tollgate_core::subprotocol::strip` removes the token before the request is sent to the
//! cluster.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use zeroize::Zeroizing;

use super::{MAX_ID_TOKEN_BYTES, MalformedAgentCredential, bounded};
use tollgate_core::subprotocol::{is_websocket, offered};

const PREFIX: &[u8] = b"base64url.bearer.authorization.k8s.io.";
const MAX_ENCODED_BYTES: usize = MAX_ID_TOKEN_BYTES.div_ceil(3).saturating_mul(4);

/// Returns the decoded token; only WebSocket requests have one.
pub(in crate::authenticate) fn read(fields: &HeaderMap) -> Result<Option<Zeroizing<String>>, MalformedAgentCredential> {
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

/// Whether a WebSocket offers a token as a subprotocol, of any form.
pub(super) fn is_present(fields: &HeaderMap) -> bool {
    is_websocket(fields) && offered(fields).any(|offer| offer.starts_with(PREFIX))
}
