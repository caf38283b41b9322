//! The gateway's end: who is connected, and requests through them.
//!
//! Security: an agent is served only while a cluster names its key. A connection whose key none names any
//! more ends at once. Nothing that an agent says about itself decides anything, but the key that it proves.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use jiff::Timestamp;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::hello::{Challenge, MESSAGE_BYTES, Proof, ProofError, Refused};
use crate::wire::{self, WireError};
use crate::{limits, websocket};
use tollgate_core::agent::AgentKey;

/// Content of a request.
pub type RequestBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// How long an agent may take to prove its key.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// Pause before idle connections are looked for again.
const DRAIN_POLL: Duration = Duration::from_millis(100);

/// Agents that have not proved their key yet.
const UNPROVED: usize = 64;

/// Why a connection of an agent ended, or never began.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// Too many have not proved their key yet.
    #[error("{UNPROVED} agents have not proved their key yet")]
    TooMany,
    /// HTTP/2 failed.
    #[error("the connection broke: {0}")]
    Broken(#[from] hyper::Error),
    /// No proof within 5 s.
    #[error("the agent did not prove its key within {HELLO_WITHIN:?}")]
    Slow,
    /// The answer is no proof.
    #[error("the agent did not prove its key: {0}")]
    Proof(#[from] ProofError),
    /// The system has no random bytes.
    #[error("there are no random bytes")]
    Random,
    /// No cluster names the key.
    #[error("no cluster names the key `{0}`")]
    UnknownKey(AgentKey),
    /// Another process of the agent is connected.
    #[error("another process with the key `{key}` is connected from {address}")]
    Connected {
        /// The key of both.
        key: AgentKey,
        /// The address of the other one.
        address: IpAddr,
    },
}

impl ConnectionError {
    /// What the agent is told; `None` for an agent that proved nothing.
    fn refusal(&self) -> Option<Refused> {
        let reason = match self {
            Self::UnknownKey(_) => "key_unknown",
            Self::Connected { .. } => "already_connected",
            Self::TooMany | Self::Broken(_) | Self::Slow | Self::Proof(_) | Self::Random => return None,
        };
        Some(Refused {
            reason: reason.to_owned(),
            message: self.to_string(),
        })
    }
}

/// Why a request got no answer through an agent.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No agent of the cluster is connected. (503)
    #[error("the cluster's agent is not connected")]
    Absent,
    /// As many requests as may be are open. (503)
    #[error("the cluster's agent has {allowed} requests open, as many as it may have", allowed = limits::STREAMS)]
    Busy,
    /// The connection broke. (502)
    #[error("the connection to the cluster's agent broke")]
    Broken(#[source] hyper::Error),
    /// The agent's answer is none. (502)
    #[error("the agent's answer cannot be used")]
    Wire(#[from] WireError),
}

/// One agent that is connected, for people and programs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// The public half of its key.
    #[serde(serialize_with = "as_text")]
    pub key: AgentKey,
    /// The cluster's name, as the agent's settings have it.
    pub cluster: String,
    /// The agent's version.
    pub version: String,
    /// The address that it came from.
    pub address: IpAddr,
    /// Since when.
    pub connected_since: Timestamp,
    /// Open requests.
    pub streams: usize,
}

fn as_text<S: serde::Serializer>(key: &AgentKey, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(key)
}

/// All agents that are connected. There is one for each process.
#[derive(Debug)]
pub struct Connections {
    state: Mutex<State>,
    unproved: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    /// Keys that clusters name, and how many processes may have each.
    known: HashMap<AgentKey, usize>,
    open: HashMap<AgentKey, Vec<Arc<Connection>>>,
}

#[derive(derive_more::Debug)]
struct Connection {
    key: AgentKey,
    proof: Proof,
    address: IpAddr,
    since: Timestamp,
    #[debug(skip)]
    sender: SendRequest<RequestBody>,
    streams: Arc<AtomicUsize>,
    end: Notify,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            unproved: Semaphore::new(UNPROVED),
        }
    }
}

impl Connections {
    /// Sets whom clusters name, and ends the connections of all others.
    ///
    /// - `known`: how many processes of an agent may be connected, by key.
    pub fn set_known(&self, known: HashMap<AgentKey, usize>) {
        let mut state = self.state();
        let unknown = state.open.iter().filter(|(key, _)| !known.contains_key(key));
        for connection in unknown.flat_map(|(_, connections)| connections) {
            tracing::info!(key = %connection.key, "no cluster names the key of an agent any more: it is disconnected");
            connection.end.notify_one();
        }
        state.open.retain(|key, _| known.contains_key(key));
        state.known = known;
    }

    /// Who is connected.
    pub fn statuses(&self) -> Vec<AgentStatus> {
        let state = self.state();
        let mut statuses: Vec<AgentStatus> = state.open.values().flatten().map(|open| open.status()).collect();
        statuses.sort_by_key(|status| (status.key, status.connected_since));
        statuses
    }

    /// Accepts nobody any more, and ends each connection once it has no open request. Returns when none is
    /// left.
    pub async fn drain(&self) {
        loop {
            {
                let mut state = self.state();
                state.known.clear();
                let idle = state.open.values().flatten();
                let idle = idle.filter(|connection| connection.streams.load(Ordering::Relaxed) == 0);
                idle.for_each(|connection| connection.end.notify_one());
                if state.open.values().all(Vec::is_empty) {
                    return;
                }
            }
            sleep(DRAIN_POLL).await;
        }
    }

    /// Serves the connection of an agent until it ends. The WebSocket's handshake is done.
    ///
    /// # Errors
    /// [`ConnectionError`]: why it ended.
    pub async fn serve<I>(&self, io: I, address: IpAddr) -> Result<(), ConnectionError>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let permit = self.unproved.try_acquire().map_err(|_| ConnectionError::TooMany)?;
        let socket = websocket::wrap(io, Role::Server).await;
        let (mut sender, driver) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .adaptive_window(false)
            .initial_stream_window_size(limits::STREAM_WINDOW)
            .initial_connection_window_size(limits::CONNECTION_WINDOW)
            .max_header_list_size(limits::HEAD_BYTES)
            .max_send_buf_size(limits::SEND_BUFFER)
            .max_concurrent_reset_streams(limits::PENDING_RESETS)
            .keep_alive_interval(limits::PING_EVERY)
            .keep_alive_timeout(limits::PING_WITHIN)
            .keep_alive_while_idle(true)
            .handshake::<_, RequestBody>(TokioIo::new(websocket::bytes(socket)))
            .await?;
        let mut driver = std::pin::pin!(driver);
        let (key, proof) = tokio::select! {
            ended = driver.as_mut() => return Err(ended.err().map_or(ConnectionError::Slow, ConnectionError::Broken)),
            proved = timeout(HELLO_WITHIN, hello(&mut sender)) => proved.map_err(|_| ConnectionError::Slow)??,
        };
        drop(permit);
        let opened = self.open(Connection {
            key,
            proof,
            address,
            since: Timestamp::now(),
            sender: sender.clone(),
            streams: Arc::default(),
            end: Notify::new(),
        });
        let open = match opened {
            Ok(open) => open,
            Err(error) => {
                let told = async {
                    if let Some(refused) = error.refusal() {
                        let _ = timeout(HELLO_WITHIN, ask(&mut sender, "/refused", &refused)).await;
                    }
                };
                tokio::select! {
                    _ = driver.as_mut() => {}
                    () = told => {}
                }
                return Err(error);
            }
        };
        let connection = &open.connection;
        tracing::info!(
            %key, %address, cluster = connection.proof.cluster, version = connection.proof.version,
            "an agent is connected"
        );
        tokio::select! {
            ended = driver => Ok(ended?),
            () = connection.end.notified() => Ok(()),
        }
    }

    /// Adds a connection that proved its key. It replaces an earlier one of the same process.
    fn open(&self, connection: Connection) -> Result<OpenConnection<'_>, ConnectionError> {
        let key = connection.key;
        let mut state = self.state();
        let State { known, open } = &mut *state;
        let allowed = *known.get(&key).ok_or(ConnectionError::UnknownKey(key))?;
        let others = open.entry(key).or_default();
        others.retain(|other| {
            let is_same = other.proof.instance == connection.proof.instance;
            if is_same {
                // The agent came back before the gateway noticed that it was gone.
                other.end.notify_one();
            }
            !is_same && !other.sender.is_closed()
        });
        if let Some(other) = others.first().filter(|_| others.len() >= allowed) {
            let address = other.address;
            return Err(ConnectionError::Connected { key, address });
        }
        let connection = Arc::new(connection);
        others.push(Arc::clone(&connection));
        Ok(OpenConnection { all: self, connection })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    fn status(&self) -> AgentStatus {
        AgentStatus {
            key: self.key,
            cluster: self.proof.cluster.clone(),
            version: self.proof.version.clone(),
            address: self.address,
            connected_since: self.since,
            streams: self.streams.load(Ordering::Relaxed),
        }
    }
}

/// A connection that requests may use, until it is dropped.
#[derive(Debug)]
struct OpenConnection<'a> {
    all: &'a Connections,
    connection: Arc<Connection>,
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        let mut state = self.all.state();
        if let Some(others) = state.open.get_mut(&self.connection.key) {
            others.retain(|other| !Arc::ptr_eq(other, &self.connection));
        }
    }
}

/// Has the agent prove its key.
async fn hello(sender: &mut SendRequest<RequestBody>) -> Result<(AgentKey, Proof), ConnectionError> {
    let challenge = Challenge::new().ok_or(ConnectionError::Random)?;
    let response = ask(sender, "/hello", &challenge).await?;
    let content = Limited::new(response.into_body(), MESSAGE_BYTES).collect().await;
    let content = content.map_err(|_| ProofError::Malformed)?.to_bytes();
    let proof: Proof = serde_json::from_slice(&content).map_err(|_| ProofError::Malformed)?;
    Ok((proof.verify(&challenge)?, proof))
}

/// Sends a request to the agent itself.
async fn ask(
    sender: &mut SendRequest<RequestBody>,
    path: &'static str,
    message: &impl Serialize,
) -> Result<Response<Incoming>, hyper::Error> {
    let content = Bytes::from(serde_json::to_vec(message).unwrap_or_default());
    let mut request = Request::new(Full::new(content).map_err(|never| match never {}).boxed_unsync());
    *request.method_mut() = Method::POST;
    if let Some(uri) = wire::uri(wire::AGENT, PathAndQuery::from_static(path)) {
        *request.uri_mut() = uri;
    }
    let kind = HeaderValue::from_static("application/json");
    request.headers_mut().insert(CONTENT_TYPE, kind);
    sender.ready().await?;
    sender.send_request(request).await
}

/// Sends requests to the API server of one cluster, through whichever of its agents is connected.
#[derive(Clone, Debug)]
pub struct AgentClient {
    connections: Arc<Connections>,
    keys: Arc<[AgentKey]>,
}

/// A connection for one request.
#[derive(Clone, Debug)]
pub struct AgentSender(Arc<Connection>);

/// Counts a request of a connection, until it is dropped.
#[derive(Debug)]
pub struct StreamPermit(Arc<AtomicUsize>);

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AgentClient {
    /// - `keys`: those of the cluster's agent.
    pub fn new(connections: Arc<Connections>, keys: impl Into<Arc<[AgentKey]>>) -> Self {
        Self {
            connections,
            keys: keys.into(),
        }
    }

    /// Chooses a connection for one request: the one with the fewest.
    ///
    /// # Errors
    /// [`RequestError::Absent`], [`RequestError::Busy`].
    pub fn choose(&self) -> Result<(AgentSender, StreamPermit), RequestError> {
        let state = self.connections.state();
        let open = self.keys.iter().filter_map(|key| state.open.get(key)).flatten();
        let usable = open.filter(|connection| !connection.sender.is_closed());
        let count = |connection: &&Arc<Connection>| connection.streams.load(Ordering::Relaxed);
        let chosen = usable.min_by_key(count).ok_or(RequestError::Absent)?;
        if count(&chosen) >= limits::STREAMS as usize {
            return Err(RequestError::Busy);
        }
        chosen.streams.fetch_add(1, Ordering::Relaxed);
        let permit = StreamPermit(Arc::clone(&chosen.streams));
        Ok((AgentSender(Arc::clone(chosen)), permit))
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
        let mut sender = self.0.sender.clone();
        Box::pin(async move {
            let asked = wire::encode_request(&mut request)?;
            let answered = sender.send_request(request).await;
            let mut response = answered.map_err(RequestError::Broken)?;
            wire::decode_response(&mut response, asked)?;
            Ok(response)
        })
    }
}
