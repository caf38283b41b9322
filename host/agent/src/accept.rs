//! The gateway's side of the WebSocket's handshake (RFC 6455, section 4.2).

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderValue, Response, StatusCode, request};
use hyper::upgrade::OnUpgrade;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::SUBPROTOCOL;
use tollgate_core::header_map::lists;

/// The request is no handshake of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connectors connect here, by WebSocket with the protocol `{SUBPROTOCOL}`")]
pub struct NotAnAgent;

/// Answers the handshake, and returns the connection once it has switched protocols. Who it is remains to be
/// proved.
///
/// # Errors
/// [`NotAnAgent`].
pub fn accept(head: &mut request::Parts) -> Result<(Response<()>, OnUpgrade), NotAnAgent> {
    let fields = &head.headers;
    let is_handshake = lists(fields, &UPGRADE, "websocket")
        && lists(fields, &CONNECTION, "upgrade")
        && lists(fields, &SEC_WEBSOCKET_VERSION, "13")
        && lists(fields, &SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
    let key = fields
        .get(SEC_WEBSOCKET_KEY)
        .filter(|_| is_handshake)
        .ok_or(NotAnAgent)?;
    let accepted = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).map_err(|_| NotAnAgent)?;
    let upgrade = head.extensions.remove::<OnUpgrade>().ok_or(NotAnAgent)?;
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = response.headers_mut();
    fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
    fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    fields.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    fields.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    Ok((response, upgrade))
}
