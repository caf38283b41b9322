//! Subprotocols of a WebSocket that carry a value for the gateway: a prefix, then base64url without
//! padding. Browsers can set no header field on a WebSocket except this one. The form is that of
//! kube-apiserver (`pkg/authentication/request/websocket/protocol.go`).
//!
//! Security: none of them is passed on.

use http::header::{SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Names the Application that a call of an extension is about.
pub const APPLICATION_PREFIX: &str = "base64url.argocd-application-name.tollgate.dev.";
/// Names the project that a call of an extension is about.
pub const PROJECT_PREFIX: &str = "base64url.argocd-project-name.tollgate.dev.";

/// Prefixes of subprotocols that are for the gateway. The first is a token for any server.
const PREFIXES: [&str; 3] = ["base64url.bearer.authorization.", APPLICATION_PREFIX, PROJECT_PREFIX];

/// The subprotocols that a request offers, in order.
pub fn offered(fields: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    members(fields, &SEC_WEBSOCKET_PROTOCOL).filter(|member| !member.is_empty())
}

/// Whether a subprotocol is for the gateway, and none that a server could choose.
pub fn is_for_gateway(offer: &[u8]) -> bool {
    PREFIXES.iter().any(|prefix| offer.starts_with(prefix.as_bytes()))
}

/// Whether a request asks for an upgrade to WebSocket, possibly among others.
pub fn is_websocket(fields: &HeaderMap) -> bool {
    members(fields, &UPGRADE).any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
}

/// Removes the subprotocols for the gateway from any request, so that no upstream sees one. Lines
/// without any stay as they are.
pub fn strip(fields: &mut HeaderMap) {
    if !offered(fields).any(is_for_gateway) {
        return;
    }
    let kept: Vec<&[u8]> = offered(fields).filter(|offer| !is_for_gateway(offer)).collect();
    let line = HeaderValue::from_bytes(&kept.join(b", ".as_slice()));
    fields.remove(SEC_WEBSOCKET_PROTOCOL);
    // Parts of valid values joined by commas make a valid value.
    if let Some(line) = line.ok().filter(|line| !line.is_empty()) {
        fields.insert(SEC_WEBSOCKET_PROTOCOL, line);
    }
}

/// The members of all lines of a list field, without blanks around them.
fn members<'a>(fields: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = fields.get_all(name).into_iter().map(HeaderValue::as_bytes);
    lines.flat_map(|line| line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii))
}
