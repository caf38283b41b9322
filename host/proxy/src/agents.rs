//! Accepts the agents of clusters on the gateway's listener.

use std::sync::Arc;

use http::{Response, request};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::client::Client;
use crate::forward::{Body, HANDOVER};
use tollgate_agent::connections::ConnectionError;
use tollgate_agent::hello::{Introduction, ProofError};
use tollgate_agent::{Connections, NotAnAgent};

/// Answers the handshake of an agent, and serves it from then on. Whether it is served at all is decided when
/// it has proved its key.
///
/// # Errors
/// [`NotAnAgent`].
pub fn accept(
    head: &mut request::Parts,
    client: &Arc<Client>,
    connections: &Arc<Connections>,
) -> Result<Response<Body>, NotAnAgent> {
    let introduction = Introduction::read(&head.headers);
    let (response, upgrade) = tollgate_agent::accept(head)?;
    let (client, connections) = (Arc::clone(client), Arc::clone(connections));
    tokio::spawn(async move {
        let Ok(Ok(io)) = timeout(HANDOVER, upgrade).await else {
            return;
        };
        let address = client.address();
        let closing = client.peer().closing.cancelled();
        let key = introduction.and_then(|introduction| connections.known_key(&introduction));
        match connections
            .serve(TokioIo::new(io), client.peer().ends_tls(), address, key, closing)
            .await
        {
            Ok(()) => tracing::info!(%address, "a connector has disconnected"),
            Err(ConnectionError::Duplicate) => tracing::debug!(%address, "a connector looks for another replica"),
            Err(error @ ConnectionError::Proof(ProofError::Unbound | ProofError::OtherConnection { .. })) => {
                tracing::warn!(%address, %error, "a connector is not served");
            }
            // Strangers cause as many of these as they like; the metric counts them.
            Err(error @ (ConnectionError::TooMany | ConnectionError::Slow | ConnectionError::Proof(_))) => {
                tracing::debug!(%address, %error, "nobody proved a key");
            }
            Err(error) => tracing::warn!(%address, %error, "a connector is not served"),
        }
    });
    Ok(response.map(|()| Body::empty()))
}
