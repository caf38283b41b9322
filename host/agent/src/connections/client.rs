//! Requests through whichever agent of a cluster is connected, here or at another replica.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use uuid::Uuid;

use super::Connections;
use crate::limits;
use crate::peers;
use crate::request::{RequestBody, RequestError, StreamPermit};
use crate::wire;

/// Sends requests to the API server of one cluster.
#[derive(Clone, Debug)]
pub struct AgentClient {
    connections: Arc<Connections>,
    server: Arc<str>,
}

/// A connection for one request.
#[derive(Clone, derive_more::Debug)]
pub struct AgentSender {
    #[debug(skip)]
    sender: SendRequest<RequestBody>,
    /// The connection at another replica.
    remote: Option<peers::RemoteConnection>,
}

impl AgentClient {
    /// - `server`: of the cluster, as its Secret has it.
    pub fn new(connections: Arc<Connections>, server: impl Into<Arc<str>>) -> Self {
        Self {
            connections,
            server: server.into(),
        }
    }

    /// Chooses a connection for one request: the one of this replica with the fewest, else one of another
    /// replica.
    ///
    /// # Errors
    /// [`RequestError::Absent`], [`RequestError::Busy`].
    pub fn choose(&self) -> Result<(AgentSender, StreamPermit), RequestError> {
        let state = self.connections.state();
        let usable = state.of_server(&self.server).iter();
        let usable = usable.filter(|connection| !connection.sender.is_closed());
        if let Some(chosen) = usable.min_by_key(|connection| connection.streams()) {
            let permit = StreamPermit::take(&chosen.streams, limits::STREAMS)?;
            let sender = AgentSender {
                sender: chosen.sender.clone(),
                remote: None,
            };
            return Ok((sender, permit));
        }
        // The peers have a separate lock, and nobody needs to wait for both.
        drop(state);
        let (sender, session, permit) = self.connections.peers.choose(&self.server)?;
        let remote = Some(session);
        Ok((AgentSender { sender, remote }, permit))
    }
}

impl AgentSender {
    /// Sends a request to the API server. Its URI's host has no meaning. The answer's fields and status are
    /// those of the API server, if the agent is honest; a 101 has the connection of the protocol that the
    /// request asks for.
    ///
    /// Cancel safe: dropping the future ends the request.
    pub fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> BoxFuture<'static, Result<Response<Incoming>, RequestError>> {
        let Self { mut sender, remote } = self.clone();
        Box::pin(async move {
            let asked = wire::encode_request(&mut request)?;
            if let Some(session) = &remote {
                session.name(&mut request);
            }
            let answered = sender.send_request(request).await;
            let mut response = answered.map_err(RequestError::Broken)?;
            // SECURITY: on a connection of this replica, it would be the agent that says this.
            if let Some(error) = remote.and_then(|_| peers::no_answer(&response)) {
                return Err(error);
            }
            wire::decode_response(&mut response, asked)?;
            Ok(response)
        })
    }
}

impl Connections {
    /// What sends requests through the connection with this id; `None` if it has ended.
    pub(crate) fn sender_of(
        &self,
        session: Uuid,
    ) -> Option<Result<(SendRequest<RequestBody>, StreamPermit), RequestError>> {
        let state = self.state();
        let connection = state.of_session(session)?;
        let permit = StreamPermit::take(&connection.streams, limits::STREAMS);
        Some(permit.map(|permit| (connection.sender.clone(), permit)))
    }
}
