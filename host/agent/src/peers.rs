//! The other replicas of the gateway, and requests through the agents that are connected to them.
//!
//! A replica that has no connection of an agent sends the request to one that has, over HTTP/2 with both
//! certificates verified. That one passes it to the agent as it is, and never on to a third.
//!
//! Security: each process makes its own key, and the store has the hash of its certificate while the
//! process lives. Nobody else is a peer. The first replica has decided about the request; the second one
//! decides nothing.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderName, HeaderValue, Request, Response};
use hyper::client::conn::http2::SendRequest;
use tokio::sync::watch;
use url::Url;
use uuid::Uuid;

use crate::request::{RequestBody, RequestError, StreamPermit};
use crate::status::AgentStatus;
use tollgate_core::agent::AgentKey;

mod link;
pub(crate) mod tls;

use link::Link;
pub use tls::{CertificateHash, ReplicaKey, ReplicaKeyError};

/// Names the connection at the replica that has it.
pub(crate) const CONNECTION: HeaderName = HeaderName::from_static("tollgate-session");

/// Why a replica has no answer of an agent: `absent`, `busy` or `broken`.
pub(crate) const NO_ANSWER: HeaderName = HeaderName::from_static("tollgate-no-answer");

/// Requests between two replicas at a time.
pub(crate) const STREAMS: u32 = 16_384;

/// Another replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Its process.
    pub id: Uuid,
    /// Where it listens for peers, of `https`.
    pub url: Url,
    /// Of its certificate.
    pub certificate: CertificateHash,
}

/// An agent that is connected to another replica.
#[derive(Clone, Debug)]
pub struct RemoteAgent {
    /// Its connection.
    pub session: Uuid,
    /// Its process.
    pub instance: Uuid,
    /// Who it is, and which replica has it.
    pub status: AgentStatus,
}

/// The other replicas.
#[derive(Debug, Default)]
pub struct Peers {
    state: Mutex<State>,
    /// Certificates of those that may connect.
    certificates: watch::Sender<HashSet<CertificateHash>>,
}

#[derive(Debug, Default)]
struct State {
    own_key: Option<Arc<ReplicaKey>>,
    links: HashMap<Uuid, Link>,
    agents: HashMap<Arc<str>, Vec<RemoteAgent>>,
}

/// A connection of an agent at another replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteConnection(Uuid);

impl RemoteConnection {
    /// Names the connection in a request to its replica.
    pub(crate) fn name<B>(self, request: &mut Request<B>) {
        let mut buffer = Uuid::encode_buffer();
        if let Ok(value) = HeaderValue::from_str(self.0.hyphenated().encode_lower(&mut buffer)) {
            request.headers_mut().insert(CONNECTION, value);
        }
    }
}

/// Why the other replica has no answer of the agent, if it has none.
pub(crate) fn no_answer<B>(response: &Response<B>) -> Option<RequestError> {
    Some(match response.headers().get(NO_ANSWER)?.as_bytes() {
        b"busy" => RequestError::Busy,
        b"absent" => RequestError::Absent,
        _ => RequestError::BrokenElsewhere,
    })
}

impl Peers {
    /// Sets who this process is to its peers. Without it, it has none.
    pub fn set_key(&self, own_key: Arc<ReplicaKey>) {
        self.state().own_key = Some(own_key);
    }

    /// Sets which other replicas there are, and which agents are connected to them. Connects to new ones,
    /// sends nothing more to those that are gone, and soon ends what they have open here. Needs a Tokio runtime.
    pub fn set(&self, replicas: Vec<Replica>, agents: Vec<RemoteAgent>) {
        let certificates = replicas.iter().map(|replica| replica.certificate).collect();
        self.certificates.send_replace(certificates);
        let mut state = self.state();
        let Some(own_key) = state.own_key.clone() else { return };
        let links = &mut state.links;
        // Compared as a whole: a replica with another URL or certificate needs another connection.
        links.retain(|_, link| replicas.contains(&link.replica));
        for replica in replicas {
            let id = replica.id;
            links.entry(id).or_insert_with(|| Link::start(replica, &own_key));
        }
        let mut by_server: HashMap<Arc<str>, Vec<RemoteAgent>> = HashMap::new();
        for agent in agents {
            let is_of_peer = state.links.contains_key(&agent.status.replica);
            if is_of_peer {
                by_server
                    .entry(Arc::clone(&agent.status.server))
                    .or_default()
                    .push(agent);
            }
        }
        state.agents = by_server;
    }

    /// How many replicas share agents, this one included.
    pub fn replicas(&self) -> usize {
        self.state().links.len().saturating_add(1)
    }

    /// The certificates of the other replicas.
    pub(crate) fn certificates(&self) -> watch::Receiver<HashSet<CertificateHash>> {
        self.certificates.subscribe()
    }

    /// The agents that are connected to the other replicas.
    pub(crate) fn statuses(&self) -> Vec<AgentStatus> {
        let state = self.state();
        state
            .agents
            .values()
            .flatten()
            .map(|agent| agent.status.clone())
            .collect()
    }

    /// The processes of a cluster's agent at the other replicas.
    pub(crate) fn processes(&self, server: &str) -> Vec<(Uuid, AgentKey, IpAddr)> {
        let state = self.state();
        let agents = state.agents.get(server).into_iter().flatten();
        agents
            .map(|agent| (agent.instance, agent.status.key, agent.status.address))
            .collect()
    }

    /// Chooses a connection of a cluster's agent at another replica.
    pub(crate) fn choose(
        &self,
        server: &str,
    ) -> Result<(SendRequest<RequestBody>, RemoteConnection, StreamPermit), RequestError> {
        let state = self.state();
        let agents = state.agents.get(server).into_iter().flatten();
        let usable = agents.filter_map(|agent| {
            let link = state.links.get(&agent.status.replica)?;
            Some((link.sender()?, agent.session, &link.streams))
        });
        let count = |(_, _, streams): &(_, _, &Arc<AtomicUsize>)| streams.load(Ordering::Relaxed);
        let (sender, session, streams) = usable.min_by_key(count).ok_or(RequestError::Absent)?;
        // Only the requests between both replicas: the other one counts those of the agent's connection.
        let permit = StreamPermit::take(streams, STREAMS)?;
        Ok((sender, RemoteConnection(session), permit))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
