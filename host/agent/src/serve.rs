//! The agent: connects to the gateway, again and again, and serves the requests that come.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use secrecy::SecretString;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::allow::AllowList;
use crate::api_server::{self, ApiServer};
use crate::body::{Content, WithoutEmpty, no_content};
use crate::file::ReadError;
use crate::health::{self, Progress};
use crate::hello::{Challenge, Channel, MESSAGE_BYTES, Refused, Status};
use crate::key::{NoKey, SigningKey};
use crate::key_holder::KeyHolder;
use crate::settings::{KeySettings, Settings};
use crate::{dial, limits, wire};
use tollgate_core::header_map::retain;
use tollgate_core::upgrade::Protocol;

/// First and longest pause before the agent connects again. Each is longer than the one before, and a random
/// part of it, so that thousands of agents do not come back at once.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How much longer the next pause is while the agent looks for another replica.
const SEARCH_STEP: Duration = Duration::from_millis(250);

/// A connection that lasted longer was a good one: the pauses begin anew.
const GOOD_AFTER: Duration = Duration::from_secs(60);

/// Longest wait for both sides of a connection that switches protocols.
const HANDOVER: Duration = Duration::from_secs(10);

/// Bytes copied at once, to the API server and from it. What comes from it is much more.
const BUFFER_BYTES: [usize; 2] = [8 * 1024, 64 * 1024];

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file of the key cannot be read.
    #[error("`key`: {0}")]
    ReadKey(ReadError),
    /// It is no key.
    #[error("`key`: `{path}`: {source}")]
    Key {
        /// The file.
        path: String,
        /// What is wrong.
        source: NoKey,
    },
    /// A file of the API server or of the gateway's authorities.
    #[error(transparent)]
    Tls(#[from] api_server::Error),
}

/// Connections to different replicas of the gateway, so that one that dies takes nothing else along.
const CONNECTIONS: usize = 2;

/// An agent. It runs as long as [`Agent::run`] is polled.
#[derive(Debug)]
pub struct Agent {
    keys: KeyHolder,
    allow: AllowList,
    api_server: ApiServer,
    gateway: dial::Gateway,
    replicas: watch::Sender<GatewayReplicas>,
    progress: Arc<Progress>,
    /// Where probes are answered.
    health: Option<SocketAddr>,
}

/// The replicas of the gateway, as far as the agent knows them.
#[derive(Debug)]
struct GatewayReplicas {
    /// How many the gateway says there are.
    count: usize,
    /// What each connection knows.
    connections: [ConnectionState; CONNECTIONS],
}

impl GatewayReplicas {
    fn others(&self, number: usize) -> impl Iterator<Item = &ConnectionState> {
        let connections = self.connections.iter().enumerate();
        connections
            .filter(move |(other, _)| *other != number)
            .map(|(_, other)| other)
    }

    /// How many other connections there are.
    fn connected_others(&self, number: usize) -> usize {
        self.others(number).filter(|other| other.is_taken()).count()
    }

    /// Whether there is a replica for this connection.
    // A gateway that says it is nobody is tried again all the same.
    fn has_room(&self, number: usize) -> bool {
        self.count.max(1) > number.max(self.connected_others(number))
    }
}

/// What the gateway said on one connection.
#[derive(Debug, Default)]
struct ConnectionState {
    /// The replica that it reached.
    replica: Option<Uuid>,
    /// Whether another connection has reached the same.
    is_duplicate: bool,
    /// Why the gateway does not serve the agent.
    refused: Option<Refused>,
}

impl ConnectionState {
    /// Whether it has reached a replica that did not refuse it.
    fn is_taken(&self) -> bool {
        self.replica.is_some() && self.refused.is_none()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionOutcome {
    Served,
    /// Another connection had reached the same replica.
    Duplicate,
    /// The gateway was not reached, or refused the agent.
    Unserved,
}

impl Agent {
    /// Reads the files that the settings name. Connects nowhere.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(settings: Settings) -> Result<Self, StartError> {
        let api_server = ApiServer::new(&settings.api_server)?;
        let gateway = dial::Gateway::new(&settings)?;
        let keys = match settings.key {
            KeySettings::Secret { name, rotate_every } => KeyHolder::in_secret(name, rotate_every, settings.cluster),
            KeySettings::File(file) => {
                let pem = std::fs::read_to_string(&file).map_err(ReadError::of(&file));
                let pem = SecretString::from(pem.map_err(StartError::ReadKey)?);
                let path = file.display().to_string();
                let key = SigningKey::from_pem(&pem).map_err(|source| StartError::Key { path, source })?;
                KeyHolder::fixed(key, settings.cluster)
            }
        };
        Ok(Self {
            keys,
            allow: settings.allow,
            api_server,
            gateway,
            progress: Arc::new(Progress::new(CONNECTIONS)),
            health: settings.health,
            replicas: watch::Sender::new(GatewayReplicas {
                count: 1,
                connections: Default::default(),
            }),
        })
    }

    /// Connects and serves, again and again, until `stop`. Open requests then have `drain` to end.
    ///
    /// # Errors
    /// Probes cannot be listened for.
    pub async fn run(self: Arc<Self>, stop: CancellationToken, drain: Duration) -> Result<(), String> {
        let health = match self.health {
            Some(address) => Some(health::bind(address).await?),
            None => None,
        };
        let probes = async {
            match health {
                Some(listener) => health::serve(listener, Arc::clone(&self.progress)).await,
                None => std::future::pending().await,
            }
        };
        let connections = join_all((0..CONNECTIONS).map(|number| self.keep_connected(number, &stop, drain)));
        tokio::select! {
            _ = connections => Ok(()),
            never = probes => match never {},
        }
    }

    /// Keeps one connection. Those after the first are for further replicas.
    async fn keep_connected(self: &Arc<Self>, number: usize, stop: &CancellationToken, drain: Duration) {
        let mut pause = PAUSES.0;
        let mut replicas = self.replicas.subscribe();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                waited = replicas.wait_for(|replicas| replicas.has_room(number)) => if waited.is_err() { return },
            }
            self.progress.connects(number);
            let started = Instant::now();
            let mut outcome = ConnectionOutcome::Unserved;
            tokio::select! {
                () = stop.cancelled() => return,
                connected = self.connect() => match connected {
                    Ok((io, channel)) => {
                        self.progress.is_idle(number);
                        outcome = self.serve_once(io, channel, number, stop, drain).await;
                    }
                    Err(error) => tracing::warn!(gateway = %self.gateway, %error, "the gateway cannot be reached"),
                },
            }
            if started.elapsed() > GOOD_AFTER {
                pause = PAUSES.0;
            }
            // While another one serves nobody waits, and thousands of agents have lost the same replica.
            let wait = if outcome == ConnectionOutcome::Served && replicas.borrow().connected_others(number) > 0 {
                pause = PAUSES.0;
                PAUSES.1.mul_f64(random_fraction())
            } else {
                pause.mul_f64(0.5 + random_fraction() / 2.0)
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(wait) => {}
            }
            let longer = match outcome {
                // Chance leads to a replica, so the next one may be the right one.
                ConnectionOutcome::Duplicate => pause + SEARCH_STEP,
                ConnectionOutcome::Served | ConnectionOutcome::Unserved => pause * 2,
            };
            pause = longer.min(PAUSES.1);
            // It waits for room next, for as long as it takes.
            self.progress.is_idle(number);
        }
    }

    async fn connect(
        &self,
    ) -> Result<(impl AsyncRead + AsyncWrite + Unpin + Send + use<>, Channel), Box<dyn std::error::Error + Send + Sync>>
    {
        self.keys.load(&self.api_server).await?;
        let introduction = self.keys.introduction().await;
        Ok(self.gateway.connect(introduction).await?)
    }

    /// Serves one connection until it ends, and says in the log why.
    async fn serve_once<I>(
        self: &Arc<Self>,
        io: I,
        channel: Channel,
        number: usize,
        stop: &CancellationToken,
        drain: Duration,
    ) -> ConnectionOutcome
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let ended = self.serve(io, channel, number, stop, drain).await;
        // What follows may ask the API server.
        self.progress.connects(number);
        let mut state = ConnectionState::default();
        self.change(number, |own| state = std::mem::take(own));
        let outcome = match &state {
            state if state.is_duplicate => ConnectionOutcome::Duplicate,
            state if state.is_taken() => ConnectionOutcome::Served,
            _ => ConnectionOutcome::Unserved,
        };
        match (state.refused, ended) {
            (Some(Refused { reason, message }), _) => {
                tracing::error!(gateway = %self.gateway, %reason, "the gateway refuses this connector: {message}");
                if let Err(error) = self.keys.refused(&self.api_server, &reason).await {
                    tracing::error!(%error, "the connector's key cannot be read");
                }
            }
            (None, _) if state.is_duplicate => {
                tracing::debug!(gateway = %self.gateway, "another connection has reached the same replica");
            }
            (None, Err(error)) => tracing::warn!(gateway = %self.gateway, %error, "the connection broke"),
            (None, Ok(())) => tracing::info!(gateway = %self.gateway, "the gateway ended the connection"),
        }
        outcome
    }

    fn change(&self, number: usize, change: impl FnOnce(&mut ConnectionState)) {
        self.replicas.send_modify(|replicas| {
            if let Some(own) = replicas.connections.get_mut(number) {
                change(own);
            }
        });
    }

    /// Serves one connection until it ends.
    pub(crate) async fn serve<I>(
        self: &Arc<Self>,
        io: I,
        channel: Channel,
        number: usize,
        stop: &CancellationToken,
        drain: Duration,
    ) -> Result<(), hyper::Error>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let channel = Arc::new(channel);
        let service = service_fn(|request| {
            let (agent, channel) = (Arc::clone(self), Arc::clone(&channel));
            async move { Ok::<_, Infallible>(agent.answer(request, number, &channel).await) }
        });
        let builder = server_builder();
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(io), service));
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        timeout(drain, connection).await.unwrap_or(Ok(()))
    }

    async fn answer(&self, request: Request<Incoming>, number: usize, channel: &Channel) -> Response<Content> {
        if request
            .uri()
            .authority()
            .is_some_and(|authority| authority == wire::AGENT)
        {
            return self.answer_gateway(request, number, channel).await;
        }
        self.forward(request).await
    }

    /// Proves the key, unless another connection has reached the same replica.
    async fn hello(&self, challenge: &Challenge, number: usize, channel: &Channel) -> Response<Content> {
        tracing::debug!(version = challenge.version, replica = %challenge.replica, "the gateway asks who this is");
        let mut is_duplicate = false;
        // Both connections may ask at once, and one of them is the first.
        self.replicas.send_modify(|replicas| {
            let mut others = replicas.others(number);
            is_duplicate = others.any(|other| other.replica == Some(challenge.replica));
            drop(others);
            replicas.count = challenge.replicas;
            if let Some(own) = replicas.connections.get_mut(number) {
                own.is_duplicate = is_duplicate;
                own.replica = Some(challenge.replica).filter(|_| !is_duplicate);
            }
        });
        if is_duplicate {
            return status_only(StatusCode::CONFLICT);
        }
        match self.keys.proof(challenge, channel).await {
            Some(proof) => json(StatusCode::OK, &proof),
            None => status_only(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    async fn answer_gateway(&self, request: Request<Incoming>, number: usize, channel: &Channel) -> Response<Content> {
        let path = request.uri().path().to_owned();
        let Ok(content) = Limited::new(request.into_body(), MESSAGE_BYTES).collect().await else {
            return status_only(StatusCode::BAD_REQUEST);
        };
        let content = content.to_bytes();
        match path.as_str() {
            "/hello" => match serde_json::from_slice::<Challenge>(&content) {
                Ok(challenge) => self.hello(&challenge, number, channel).await,
                Err(_) => status_only(StatusCode::BAD_REQUEST),
            },
            "/status" => {
                let Ok(status) = serde_json::from_slice::<Status>(&content) else {
                    return status_only(StatusCode::BAD_REQUEST);
                };
                // Connections that wait for room wake up only if the number is another one.
                self.replicas.send_if_modified(|replicas| {
                    std::mem::replace(&mut replicas.count, status.replicas) != status.replicas
                });
                json(
                    StatusCode::OK,
                    &self.keys.answer_status(&self.api_server, &status).await,
                )
            }
            "/refused" => {
                self.change(number, |own| own.refused = serde_json::from_slice(&content).ok());
                status_only(StatusCode::NO_CONTENT)
            }
            _ => status_only(StatusCode::NOT_FOUND),
        }
    }

    async fn forward(&self, mut request: Request<Incoming>) -> Response<Content> {
        let asked = match wire::decode_request(&mut request) {
            Ok(asked) => asked,
            Err(error) => return failure(StatusCode::BAD_REQUEST, "BadRequest", &error.to_string(), None),
        };
        // After `decode_request`: until then, the method of a request that switches protocols is `CONNECT`.
        let checked = self
            .allow
            .check(request.method(), request.uri().path(), request.headers());
        if let Err(refusal) = checked {
            tracing::warn!(method = %request.method(), path = request.uri().path(), "refused: {refusal}");
            return failure(StatusCode::FORBIDDEN, "Forbidden", &refusal.to_string(), asked);
        }
        let gateway_side = hyper::upgrade::on(&mut request);
        let (mut head, body) = request.into_parts();
        head.extensions.clear();
        remove_credentials(&mut head.headers);
        let body = match asked.is_some() || body.is_end_stream() {
            // What follows a switch of protocols are the bytes of the tunnel.
            true => no_content(),
            false => WithoutEmpty(body, ()).boxed_unsync(),
        };
        match self.api_server.send(Request::from_parts(head, body)).await {
            Ok(response) => pass_back(response, asked, gateway_side),
            Err(error) => {
                tracing::error!(%error, "a request failed");
                failure(StatusCode::BAD_GATEWAY, "InternalError", &error.to_string(), asked)
            }
        }
    }
}

/// The server's end of HTTP/2: the agent's to the gateway, and that of a replica to another one.
pub(crate) fn server_builder() -> hyper::server::conn::http2::Builder<TokioExecutor> {
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .enable_connect_protocol()
        .adaptive_window(false)
        .initial_stream_window_size(limits::STREAM_WINDOW)
        .initial_connection_window_size(limits::CONNECTION_WINDOW)
        .max_concurrent_streams(limits::STREAMS)
        .max_frame_size(limits::FRAME_BYTES)
        .max_header_list_size(limits::HEAD_BYTES)
        .max_send_buf_size(limits::SEND_BUFFER)
        .max_pending_accept_reset_streams(limits::PENDING_RESETS)
        .keep_alive_interval(limits::PING_EVERY)
        .keep_alive_timeout(limits::PING_WITHIN);
    builder
}

/// Passes an answer of the API server on, and connects both sides if it switches protocols.
fn pass_back(mut response: Response<Incoming>, asked: Option<Protocol>, gateway_side: OnUpgrade) -> Response<Content> {
    let is_switch = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if is_switch {
        let api_side = hyper::upgrade::on(&mut response);
        tokio::spawn(copy_upgraded(gateway_side, api_side));
    }
    wire::encode_response(&mut response, asked);
    response.map(|body| match is_switch {
        true => no_content(),
        false => WithoutEmpty(body, ()).boxed_unsync(),
    })
}

/// Copies between two connections that switched protocols, until both have ended.
pub(crate) async fn copy_upgraded(gateway_side: OnUpgrade, api_side: OnUpgrade) {
    let handover = async { tokio::try_join!(gateway_side, api_side) };
    let Ok(Ok((gateway, api))) = timeout(HANDOVER, handover).await else {
        return;
    };
    let (mut gateway, mut api) = (TokioIo::new(gateway), TokioIo::new(api));
    let [up, down] = BUFFER_BYTES;
    let copied = tokio::io::copy_bidirectional_with_sizes(&mut gateway, &mut api, up, down).await;
    tracing::debug!(?copied, "a tunnel ended");
}

/// Removes the fields by which an authenticating proxy would name its user
/// (`--requestheader-username-headers` of kube-apiserver), and credentials.
fn remove_credentials(fields: &mut HeaderMap) {
    retain(fields, |name| {
        ![AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION].contains(name) && !name.as_str().starts_with("x-remote-")
    });
}

/// An error in the form of the API server: a `Status`, which kubectl prints.
fn failure(status: StatusCode, reason: &str, message: &str, asked: Option<Protocol>) -> Response<Content> {
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": status.as_u16(),
    });
    let mut response = json(status, &body);
    wire::encode_response(&mut response, asked);
    response
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Content> {
    let text = serde_json::to_vec(value).unwrap_or_default();
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn status_only(status: StatusCode) -> Response<Content> {
    let mut response = Response::new(no_content());
    *response.status_mut() = status;
    response
}

/// From 0 up to 1.
fn random_fraction() -> f64 {
    let [byte, other, ..] = *Uuid::new_v4().as_bytes();
    f64::from(u16::from_le_bytes([byte, other])) / f64::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{ConnectionState, GatewayReplicas};
    use crate::hello::Refused;

    /// - `connected`: whether each connection has reached a replica.
    fn room(count: usize, connected: [bool; 2]) -> [bool; 2] {
        let connections = connected.map(|connected| ConnectionState {
            replica: connected.then(Uuid::new_v4),
            ..ConnectionState::default()
        });
        let replicas = GatewayReplicas { count, connections };
        [0, 1].map(|number| replicas.has_room(number))
    }

    #[test]
    fn a_connection_looks_only_for_a_replica_that_the_other_one_does_not_have() {
        // The first one finds out how many there are.
        assert_eq!(room(1, [false, false]), [true, false]);
        assert_eq!(room(0, [false, false]), [true, false]);
        assert_eq!(room(1, [true, false]), [true, false]);
        assert_eq!(room(2, [true, false]), [true, true]);
        // The replica of the first one is gone, and the second has the other one.
        assert_eq!(room(2, [false, true]), [true, true]);
        assert_eq!(room(1, [false, true]), [false, false]);
    }

    #[test]
    fn a_connection_that_is_refused_has_no_replica() {
        let refused = |refused| ConnectionState {
            replica: Some(Uuid::new_v4()),
            refused,
            ..ConnectionState::default()
        };
        let why = Refused {
            reason: "key_unknown".to_owned(),
            message: String::new(),
        };
        for (connection, has_room) in [(refused(None), false), (refused(Some(why)), true)] {
            let connections = [ConnectionState::default(), connection];
            let replicas = GatewayReplicas { count: 1, connections };
            assert_eq!(replicas.has_room(0), has_room);
        }
    }
}
