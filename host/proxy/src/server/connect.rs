//! Tunnels that `CONNECT` opens. They end in this server: the client starts TLS inside, with the
//! server's own certificate, and sends requests as on any other connection. The target is never
//! connected to; it only says what these requests are about.
//!
//! Invariant: a tunnel has its own [`Peer`], so that a request has a [`Client::connect_authority`]
//! exactly if it came in a tunnel.
//!
//! Security: after the response nothing on the carrying connection is read as a request.

use std::sync::{Arc, OnceLock};

use http::uri::Authority;
use http::{Response, request};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_util::either::Either;

use super::Handler;
use super::connection::{ServerContext, ShutdownSignals, serve};
use super::detection::handshake;
use super::socket::CheckedStream;
use crate::client::{Client, ConnectTunnel, Peer};
use crate::forward::Body;

/// A `CONNECT` that passed all checks.
#[derive(Debug)]
pub(super) struct AcceptedConnect {
    tunnel: ConnectTunnel,
    /// The connection, once the response is written.
    upgrade: Option<OnUpgrade>,
}

impl AcceptedConnect {
    pub(super) fn new(authority: Authority, client: &Arc<Client>, head: &mut request::Parts) -> Self {
        Self {
            tunnel: ConnectTunnel {
                authority,
                client: Arc::clone(client),
            },
            upgrade: head.extensions.remove::<OnUpgrade>(),
        }
    }

    /// Leaves itself to the connection, and makes the response. It has no fields: one that frames
    /// content is not allowed. Source: RFC 9110, section 9.3.6.
    pub(super) fn respond(self, connects: Option<&OnceLock<Box<Self>>>) -> Response<Body> {
        if let Some(connects) = connects {
            // It is empty: the connection reads no request after an accepted `CONNECT`.
            let _ = connects.set(Box::new(self));
        }
        Response::new(Body::empty())
    }
}

/// Serves a tunnel until it ends. The limits are those of any connection.
pub(super) async fn run<H: Handler>(
    shared: Arc<ServerContext<H>>,
    accepted: AcceptedConnect,
    signals: ShutdownSignals,
) {
    let AcceptedConnect { tunnel, upgrade } = accepted;
    let (Some(tls), Some(upgrade)) = (&shared.tls, upgrade) else {
        return;
    };
    let parts = match upgrade
        .await
        .map(|upgraded| upgraded.downcast::<TokioIo<CheckedStream>>())
    {
        Ok(Ok(parts)) => parts,
        Ok(Err(_)) => return tracing::error!("a tunnel is not on a connection of this server"),
        Err(error) => return tracing::debug!(%error, "connection ended before its tunnel began"),
    };
    // The parser may have read the first bytes of the tunnel together with the head.
    let stream = parts.io.into_inner().into_tunnel(parts.read_buf, &shared.limits);
    let peer = Arc::new(Peer::in_tunnel(tunnel));
    // Before the handshake, so that a tunnel on which nothing comes can be evicted.
    let _registration = shared.clients.connections.register(&peer, &signals.evict);
    let detected = tokio::select! {
        biased;
        () = signals.closing() => return,
        detected = handshake(tls, stream, shared.limits.header_timeout, &peer, Either::Right) => detected,
    };
    // There is no tunnel inside a tunnel.
    serve(&shared, detected, peer, &signals).await;
}
