//! The gateway's end: accepts agents, and knows which of them requests may go through.
//!
//! Security: an agent is served only while its key is known: by a cluster's Secret, or because it joined. A
//! connection whose key is not known any more ends at once. Nothing that an agent says about itself decides
//! anything, but the key that it proves.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::hello::{
    BindingRule, Challenge, EndsTls, Introduction, MESSAGE_BYTES, Proof, ProofError, Refused, Status, StatusAnswer,
};
use crate::peers::{Peers, RemoteAgent};
use crate::registry::{AgentEvent, AgentIdentity, Expected, JoinRequest, NoRegistry, Registry, RegistryError};
use crate::request::{RequestBody, client_builder};
use crate::status::AgentStatus;
use crate::traffic::Counted;
use crate::unproved::Unproved;
use crate::{token, websocket, wire};
use tollgate_core::agent::{AgentKey, ClusterAgent};

mod client;
mod state;

pub use client::{AgentClient, AgentSender};
use state::{Connection, State};

/// How long an agent may take to prove its key, and to answer what the gateway asks it.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How long somebody may take whose key is not known yet.
const STRANGER_WITHIN: Duration = Duration::from_secs(2);

/// How often the gateway tells an agent its status. The time until the answer is its latency.
const STATUS_EVERY: Duration = Duration::from_secs(60);

/// Pause before idle connections are looked for again.
const DRAIN_POLL: Duration = Duration::from_millis(100);

/// Why a connection of an agent ended, or never began.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// It gave way to another one before it proved a key.
    #[error("it gave way to another connection before it proved its key: too many connect at once")]
    TooMany,
    /// HTTP/2 failed.
    #[error("the connection broke: {0}")]
    Broken(#[from] hyper::Error),
    /// No proof in time: 5 s if its key is known, 2 s if not.
    #[error("the connector did not prove its key in time")]
    Slow,
    /// The answer is no proof.
    #[error("the connector did not prove its key: {0}")]
    Proof(#[from] ProofError),
    /// The agent is connected to this replica already, and looks for another one.
    #[error("the connector looks for another replica")]
    Duplicate,
    /// The system has no random bytes.
    #[error("there are no random bytes")]
    Random,
    /// No cluster names the key, and no agent joined with it.
    #[error("no cluster names the key `{0}`")]
    UnknownKey(AgentKey),
    /// The key was revoked.
    #[error("the key `{0}` was revoked")]
    RevokedKey(AgentKey),
    /// No cluster has the token.
    #[error("no cluster has this join token")]
    UnknownToken,
    /// The token has expired.
    #[error("the join token expired at {0}")]
    ExpiredToken(Timestamp),
    /// The registry refuses it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Another process of the agent is connected.
    #[error("another process of the connector is connected from {address}, with the key `{key}`")]
    Connected {
        /// The key of the other one.
        key: AgentKey,
        /// The address of the other one.
        address: IpAddr,
    },
    /// The gateway stops.
    #[error("the gateway stops")]
    Stopping,
}

impl ConnectionError {
    /// A stable code, for agents, audit events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooMany => "too_many",
            Self::Broken(_) => "broken",
            Self::Slow => "no_proof_in_time",
            Self::Proof(ProofError::Unbound) => "proof_unbound",
            Self::Proof(ProofError::OtherConnection { .. }) => "proof_of_another_connection",
            Self::Proof(ProofError::Malformed | ProofError::Signature) => "proof_invalid",
            Self::Duplicate => "duplicate",
            Self::Random => "no_random_bytes",
            Self::UnknownKey(_) => "key_unknown",
            Self::RevokedKey(_) => "key_revoked",
            Self::UnknownToken => "token_unknown",
            Self::ExpiredToken(_) => "token_expired",
            Self::Registry(RegistryError::TokenSpent) => "token_spent",
            Self::Registry(RegistryError::Key) => "key_unusable",
            Self::Registry(RegistryError::Closed) => "joining_closed",
            Self::Registry(RegistryError::Unavailable) => "store_unavailable",
            Self::Connected { .. } => "already_connected",
            Self::Stopping => "stopping",
        }
    }

    /// The refusal that the agent receives; `None` for an agent that proved nothing.
    fn refusal(&self) -> Option<Refused> {
        match self {
            Self::TooMany
            | Self::Broken(_)
            | Self::Slow
            | Self::Proof(ProofError::Malformed | ProofError::Signature)
            | Self::Duplicate
            | Self::Random => None,
            _ => Some(Refused {
                reason: self.reason().to_owned(),
                message: self.to_string(),
            }),
        }
    }
}

/// The keys of agents that joined, as the registry has them.
#[derive(Clone, Debug, Default)]
pub struct JoinedKeys {
    /// The server of the cluster of each key that is good.
    pub servers: HashMap<AgentKey, Arc<str>>,
    /// Keys that were revoked.
    pub revoked: HashSet<AgentKey>,
}

/// All agents that are connected to this process, and those that other replicas have.
#[derive(Debug)]
pub struct Connections {
    /// This process.
    pub replica: Uuid,
    state: Mutex<State>,
    unproved: Unproved,
    registry: OnceLock<Arc<dyn Registry>>,
    /// The other replicas, and the agents that are connected to them.
    pub peers: Peers,
    /// Notifies the tasks that send agents their status, which then send it at once.
    inform: Notify,
    binding: OnceLock<BindingRule>,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            replica: Uuid::new_v4(),
            state: Mutex::default(),
            unproved: Unproved::default(),
            registry: OnceLock::new(),
            peers: Peers::default(),
            inform: Notify::new(),
            binding: OnceLock::new(),
        }
    }
}

impl Connections {
    /// Sets which connections of agents are believed to be the gateway's own; without it, those whose TLS ends
    /// here. Only the first call has an effect.
    pub fn set_binding(&self, rule: BindingRule) {
        let _ = self.binding.set(rule);
    }

    /// Sets where agents that join are remembered. Only the first call has an effect.
    pub fn set_registry(&self, registry: Arc<dyn Registry>) {
        let _ = self.registry.set(registry);
    }

    pub(crate) fn registry(&self) -> &dyn Registry {
        const NONE: NoRegistry = NoRegistry;
        self.registry.get().map_or(&NONE, |registry| &**registry)
    }

    /// Sets which clusters have an agent, by their server, and ends the connections of agents that are not
    /// known any more.
    pub fn set_clusters(&self, clusters: HashMap<Arc<str>, ClusterAgent>) {
        self.state().set_clusters(clusters);
    }

    /// Sets which agents have joined, and ends the connections of those that are not known any more.
    pub fn set_joined(&self, joined: JoinedKeys) {
        self.state().set_joined(joined);
    }

    /// Sets whether the registry answers. While it does not, agents that joined are not let in anew, because it
    /// may have revoked their keys.
    pub fn set_registry_available(&self, is_available: bool) {
        self.state().is_registry_away = !is_available;
    }

    /// Tells agents how many replicas there are now.
    pub fn inform(&self) {
        self.inform.notify_waiters();
    }

    /// Who is connected, here and at other replicas.
    ///
    /// - `server`: only agents of the cluster with this server.
    pub fn statuses(&self, server: Option<&str>) -> Vec<AgentStatus> {
        let state = self.state();
        let mut statuses: Vec<AgentStatus> = state
            .connections()
            .filter_map(|connection| connection.status(self.replica))
            .collect();
        drop(state);
        statuses.extend(self.peers.statuses());
        statuses.retain(|status| server.is_none_or(|server| *server == *status.server));
        statuses.sort_by(|one, other| (&one.server, one.connected_since).cmp(&(&other.server, other.connected_since)));
        statuses
    }

    /// The connections of this process that are not among these, and those of these that have ended.
    pub fn changes_since(&self, sessions: &HashSet<Uuid>) -> (Vec<RemoteAgent>, Vec<Uuid>) {
        let state = self.state();
        let open: HashSet<Uuid> = state.connections().map(|connection| connection.session).collect();
        let new = state
            .connections()
            .filter(|connection| !sessions.contains(&connection.session));
        let new = new.filter_map(|connection| {
            Some(RemoteAgent {
                session: connection.session,
                instance: connection.instance,
                status: connection.status(self.replica)?,
            })
        });
        (new.collect(), sessions.difference(&open).copied().collect())
    }

    /// How many agents are connected to this process, and how many requests are open through them.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state();
        state.connections().fold((0, 0), |(agents, streams), connection| {
            (agents.saturating_add(1), streams.saturating_add(connection.streams()))
        })
    }

    /// How many agents of each cluster are connected to this process, by the cluster's server.
    pub fn counts_by_server(&self) -> HashMap<Arc<str>, usize> {
        self.state().counts_by_server()
    }

    /// Accepts nobody any more, and ends each connection once it has no open request. Returns when none is
    /// left.
    pub async fn drain(&self) {
        loop {
            {
                let mut state = self.state();
                state.is_draining = true;
                let idle = state.connections().filter(|connection| connection.streams() == 0);
                idle.for_each(|connection| connection.end());
                if state.connections().next().is_none() {
                    return;
                }
            }
            sleep(DRAIN_POLL).await;
        }
    }

    /// Lets connections on which nobody has proved a key be at most this many.
    pub fn limit_unproved(&self, limit: usize) {
        self.unproved.limit_strangers(limit);
    }

    /// Whether any cluster has an agent. If none has, nobody has a reason to connect.
    pub fn expects_agents(&self) -> bool {
        self.state().has_clusters()
    }

    /// The key of an introduction, if it is known.
    pub fn known_key(&self, introduction: &Introduction) -> Option<AgentKey> {
        let is_known = self.state().is_known(introduction.key());
        // Only known keys are worth a signature's check.
        (is_known && introduction.is_valid(Timestamp::now())).then(|| *introduction.key())
    }

    /// Serves the connection of an agent until it ends. The WebSocket's handshake is done.
    ///
    /// - `ends_tls`: whether TLS ends at this process.
    /// - `introduced`: the known key with which it introduced itself, if it did.
    /// - `closing`: when the connection is to end.
    ///
    /// # Errors
    /// [`ConnectionError`]: why it ended.
    pub async fn serve<I>(
        &self,
        io: I,
        ends_tls: EndsTls,
        address: IpAddr,
        introduced: Option<AgentKey>,
        closing: impl Future<Output = ()>,
    ) -> Result<(), ConnectionError>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let ended = self.serve_counted(io, ends_tls, address, introduced, closing).await;
        if let Err(error @ (ConnectionError::TooMany | ConnectionError::Slow | ConnectionError::Proof(_))) = &ended {
            self.registry().count_refusal(Expected::Agent, error.reason());
        }
        ended
    }

    async fn serve_counted<I>(
        &self,
        io: I,
        ends_tls: EndsTls,
        address: IpAddr,
        introduced: Option<AgentKey>,
        closing: impl Future<Output = ()>,
    ) -> Result<(), ConnectionError>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut closing = std::pin::pin!(closing);
        let room = self.unproved.enter(address, introduced);
        let within = introduced.map_or(STRANGER_WITHIN, |_| ANSWER_WITHIN);
        let end = CancellationToken::new();
        // However this ends, everything on the connection ends with it.
        let _ending = end.clone().drop_guard();
        let (io, traffic) = Counted::new(io, &end);
        let socket = websocket::wrap(io, Role::Server).await;
        let (mut sender, driver) = client_builder()
            .handshake::<_, RequestBody>(TokioIo::new(websocket::bytes(socket)))
            .await?;
        let mut driver = std::pin::pin!(driver);
        let asked = Instant::now();
        let (key, proof) = tokio::select! {
            () = closing.as_mut() => return Ok(()),
            () = room.gives_way() => return Err(ConnectionError::TooMany),
            ended = driver.as_mut() => return Err(ended.err().map_or(ConnectionError::Slow, ConnectionError::Broken)),
            proved = timeout(within, self.hello(&mut sender, ends_tls)) => match proved {
                Err(_) => return Err(ConnectionError::Slow),
                Ok(Err(error)) => {
                    // An agent of an earlier version, or behind what the settings do not name, needs the reason.
                    if let Some(refused) = error.refusal() {
                        tokio::select! {
                            _ = driver.as_mut() => {}
                            _ = timeout(within, ask(&mut sender, "/refused", &refused)) => {}
                        }
                    }
                    return Err(error);
                }
                Ok(Ok(proved)) => proved,
            },
        };
        // Before `join`, which waits for the store: the key is proved.
        drop(room);
        let latency = asked.elapsed();
        let identity = AgentIdentity {
            key,
            server: None,
            cluster: proof.cluster.clone(),
            version: proof.version.clone(),
            address,
        };
        let admitted = async {
            self.join(&proof, &identity).await?;
            let connection = Connection::new(identity.clone(), proof.instance, sender.clone(), traffic, end);
            self.open(connection)
        };
        let admitted = tokio::select! {
            ended = driver.as_mut() => return Err(ended.err().map_or(ConnectionError::Slow, ConnectionError::Broken)),
            admitted = admitted => admitted,
        };
        let open = match admitted {
            Ok(open) => open,
            Err(error) => {
                let token = proof.join_token.as_ref().map(token::hash);
                let server = self.state().claimed_server(&key, token.as_ref());
                let told = self.refuse(&error, &mut sender, AgentIdentity { server, ..identity });
                tokio::select! {
                    _ = driver.as_mut() => {}
                    () = told => {}
                }
                return Err(error);
            }
        };
        let connection = &open.connection;
        connection.set_latency(latency);
        let identity = connection.identity();
        tracing::info!(%key, %address, cluster = identity.cluster, version = identity.version, "a connector is connected");
        let informing = async {
            self.registry().record(AgentEvent::Connected, identity.clone()).await;
            self.keep_informed(connection, sender).await
        };
        let (reason, ended) = tokio::select! {
            biased;
            // What ends a connection breaks it, too.
            () = connection.ended() => ("ended", Ok(())),
            () = closing => ("stopping", Ok(())),
            ended = driver => ("broken", ended.map_err(ConnectionError::Broken)),
            error = informing => ("no_answer", Err(error)),
        };
        let identity = connection.identity();
        connection.end();
        // Before the registry records it, which may take long: no further request is sent through it.
        drop(open);
        self.registry()
            .record(AgentEvent::Disconnected { reason }, identity)
            .await;
        ended
    }

    /// Tells an agent why it is not served.
    async fn refuse(&self, error: &ConnectionError, sender: &mut SendRequest<RequestBody>, agent: AgentIdentity) {
        let reason = error.reason();
        if let Some(refused) = error.refusal() {
            let _ = timeout(ANSWER_WITHIN, ask(sender, "/refused", &refused)).await;
        }
        self.registry().record(AgentEvent::Refused { reason }, agent).await;
    }

    /// Has the agent prove its key.
    async fn hello(
        &self,
        sender: &mut SendRequest<RequestBody>,
        ends_tls: EndsTls,
    ) -> Result<(AgentKey, Proof), ConnectionError> {
        let replicas = self.peers.replicas();
        let challenge = Challenge::new(self.replica, replicas).ok_or(ConnectionError::Random)?;
        let response = ask(sender, "/hello", &challenge).await?;
        if response.status() == StatusCode::CONFLICT {
            return Err(ConnectionError::Duplicate);
        }
        let proof: Proof = read(response).await?;
        let rule = self.binding.get_or_init(BindingRule::default);
        Ok((proof.verify(&challenge, rule, ends_tls)?, proof))
    }

    /// Lets an agent with a token join, unless its key is known.
    async fn join(&self, proof: &Proof, agent: &AgentIdentity) -> Result<(), ConnectionError> {
        // The lock is not held while the registry answers.
        let request = {
            let state = self.state();
            if state.is_known(&agent.key) {
                return Ok(());
            }
            // Before the token: a revoked key cannot join again.
            if state.joined.revoked.contains(&agent.key) {
                return Err(ConnectionError::RevokedKey(agent.key));
            }
            let Some(token) = &proof.join_token else {
                return Err(match state.is_registry_away {
                    // It may have joined, and the agent tries again.
                    true => RegistryError::Unavailable.into(),
                    false => ConnectionError::UnknownKey(agent.key),
                });
            };
            let token = token::hash(token);
            let (server, expires_at) = state.find_token(&token).ok_or(ConnectionError::UnknownToken)?;
            if expires_at <= Timestamp::now() {
                return Err(ConnectionError::ExpiredToken(expires_at));
            }
            JoinRequest {
                agent: agent.clone(),
                server,
                token,
            }
        };
        let server = Arc::clone(&request.server);
        self.registry().join(request).await?;
        tracing::info!(key = %agent.key, address = %agent.address, %server, "a connector has joined");
        self.state().add_joined(agent.key, server);
        Ok(())
    }

    /// Adds a connection that proved its key. It replaces an earlier one of the same process.
    fn open(&self, connection: Connection) -> Result<OpenConnection<'_>, ConnectionError> {
        let mut state = self.state();
        if state.is_draining {
            return Err(ConnectionError::Stopping);
        }
        let connection = state.open(connection, &self.peers)?;
        Ok(OpenConnection { all: self, connection })
    }

    /// Tells the agent its status from time to time, until it does not answer.
    async fn keep_informed(&self, connection: &Connection, mut sender: SendRequest<RequestBody>) -> ConnectionError {
        // A new key is confirmed at once, and no more than one in a while.
        let mut is_confirming = false;
        loop {
            // Before the status is sent: it also sees a change that comes while the agent answers.
            let informed = self.inform.notified();
            let replicas = self.peers.replicas();
            let told = timeout(ANSWER_WITHIN, self.tell_status(connection, &mut sender, replicas)).await;
            is_confirming = match told {
                Ok(Ok(has_new_key)) => has_new_key && !is_confirming,
                Ok(Err(error)) => return error,
                // HTTP/2 finds out what is broken. A slow agent may have much to do.
                Err(_) => false,
            };
            if !is_confirming {
                let _ = timeout(STATUS_EVERY, informed).await;
            }
        }
    }

    /// Returns whether the agent has a new key since.
    async fn tell_status(
        &self,
        connection: &Connection,
        sender: &mut SendRequest<RequestBody>,
        replicas: usize,
    ) -> Result<bool, ConnectionError> {
        let key = connection.key();
        let status = Status::new(key, replicas).ok_or(ConnectionError::Random)?;
        let asked = Instant::now();
        let answer: StatusAnswer = read(ask(sender, "/status", &status).await?).await?;
        connection.set_latency(asked.elapsed());
        let Some(new) = answer.new_key else { return Ok(false) };
        let new = new.verify(&status, &key)?;
        if new == key {
            return Ok(false);
        }
        match self.registry().replace(connection.identity(), new).await {
            Ok(()) => {
                tracing::info!(%key, %new, "a connector has a new key");
                self.state().change_key(connection, new);
                Ok(true)
            }
            Err(error) => {
                tracing::warn!(%key, %new, %error, "a connector cannot change its key");
                Ok(false)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.all.state().remove(&self.connection);
    }
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

/// Reads an answer of the agent itself.
async fn read<T: serde::de::DeserializeOwned>(response: Response<Incoming>) -> Result<T, ProofError> {
    let content = Limited::new(response.into_body(), MESSAGE_BYTES).collect().await;
    let content = content.map_err(|_| ProofError::Malformed)?.to_bytes();
    serde_json::from_slice(&content).map_err(|_| ProofError::Malformed)
}
