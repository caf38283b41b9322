//! The agent: connects to the gateway, again and again, and serves the requests that come.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use secrecy::SecretString;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::allow::AllowList;
use crate::api_server::{self, ApiServer, Content};
use crate::file::ReadError;
use crate::hello::{Challenge, MESSAGE_BYTES, Proof, Refused};
use crate::key::{NoKey, SigningKey};
use crate::settings::Settings;
use crate::{dial, limits, wire};
use tollgate_core::header_map::retain;
use tollgate_core::upgrade::Protocol;

/// First and longest pause before the agent connects again. Each is twice the one before, and a random part
/// of it, so that thousands of agents do not come back at once.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A connection that lasted longer was a good one: the pauses begin anew.
const GOOD_AFTER: Duration = Duration::from_secs(60);

/// Longest wait for both sides of a connection that switches protocols.
const HANDOVER: Duration = Duration::from_secs(10);

/// Bytes copied at once, per direction.
const BUFFER_BYTES: usize = 16 * 1024;

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

/// An agent. It runs as long as [`Agent::run`] is polled.
#[derive(Debug)]
pub struct Agent {
    key: SigningKey,
    cluster: String,
    instance: Uuid,
    allow: AllowList,
    api_server: ApiServer,
    gateway: dial::Gateway,
    /// Why the gateway refused the agent last.
    refused: Mutex<Option<Refused>>,
}

impl Agent {
    /// Reads the files that the settings name. Connects nowhere.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn new(settings: Settings) -> Result<Self, StartError> {
        let path = settings.key.display().to_string();
        let pem = std::fs::read_to_string(&settings.key).map_err(ReadError::of(&settings.key));
        let pem = SecretString::from(pem.map_err(StartError::ReadKey)?);
        Ok(Self {
            key: SigningKey::from_pem(&pem).map_err(|source| StartError::Key { path, source })?,
            api_server: ApiServer::new(&settings.api_server)?,
            gateway: dial::Gateway::new(&settings)?,
            cluster: settings.cluster,
            instance: Uuid::new_v4(),
            allow: settings.allow,
            refused: Mutex::default(),
        })
    }

    /// The public half of its key.
    pub fn key(&self) -> &SigningKey {
        &self.key
    }

    /// Connects and serves, again and again, until `stop`. Open requests then have `drain` to end.
    pub async fn run(self: Arc<Self>, stop: CancellationToken, drain: Duration) {
        let mut pause = PAUSES.0;
        while !stop.is_cancelled() {
            let started = Instant::now();
            let connected = tokio::select! {
                () = stop.cancelled() => return,
                connected = self.gateway.connect() => connected,
            };
            match connected {
                Ok(io) => {
                    tracing::info!(gateway = %self.gateway, "connected");
                    let ended = self.serve(io, (&stop, drain)).await;
                    let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
                    match (refused, ended) {
                        (Some(Refused { reason, message }), _) => {
                            tracing::error!(gateway = %self.gateway, %reason, "the gateway refuses this agent: {message}");
                        }
                        (None, Err(error)) => tracing::warn!(gateway = %self.gateway, %error, "the connection broke"),
                        (None, Ok(())) => tracing::info!(gateway = %self.gateway, "the gateway ended the connection"),
                    }
                }
                Err(error) => tracing::warn!(gateway = %self.gateway, %error, "the gateway cannot be reached"),
            }
            if started.elapsed() > GOOD_AFTER {
                pause = PAUSES.0;
            }
            let wait = pause.mul_f64(0.5 + random_fraction() / 2.0);
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(wait) => {}
            }
            pause = pause.saturating_mul(2).min(PAUSES.1);
        }
    }

    /// Serves one connection until it ends.
    pub(crate) async fn serve<I>(
        self: &Arc<Self>,
        io: I,
        (stop, drain): (&CancellationToken, Duration),
    ) -> Result<(), hyper::Error>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .enable_connect_protocol()
            .adaptive_window(false)
            .initial_stream_window_size(limits::STREAM_WINDOW)
            .initial_connection_window_size(limits::CONNECTION_WINDOW)
            .max_concurrent_streams(limits::STREAMS)
            .max_header_list_size(limits::HEAD_BYTES)
            .max_send_buf_size(limits::SEND_BUFFER)
            .max_pending_accept_reset_streams(limits::PENDING_RESETS)
            .keep_alive_interval(limits::PING_EVERY)
            .keep_alive_timeout(limits::PING_WITHIN);
        let service = service_fn(|request| {
            let agent = Arc::clone(self);
            async move { Ok::<_, Infallible>(agent.answer(request).await) }
        });
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(io), service));
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        timeout(drain, connection).await.unwrap_or(Ok(()))
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Content> {
        if request
            .uri()
            .authority()
            .is_some_and(|authority| authority == wire::AGENT)
        {
            return self.answer_gateway(request).await;
        }
        self.forward(request).await
    }

    /// Answers the gateway's own requests.
    async fn answer_gateway(&self, request: Request<Incoming>) -> Response<Content> {
        let path = request.uri().path().to_owned();
        let Ok(content) = Limited::new(request.into_body(), MESSAGE_BYTES).collect().await else {
            return status_only(StatusCode::BAD_REQUEST);
        };
        let content = content.to_bytes();
        match path.as_str() {
            "/hello" => {
                let Ok(challenge) = serde_json::from_slice::<Challenge>(&content) else {
                    return status_only(StatusCode::BAD_REQUEST);
                };
                tracing::debug!(version = challenge.version, "the gateway asks who this is");
                json(
                    StatusCode::OK,
                    &Proof::new(&challenge, &self.key, (&self.cluster, self.instance)),
                )
            }
            "/refused" => {
                let refused = serde_json::from_slice(&content).ok();
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
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
            true => no_content(),
            false => WithoutEmpty(body).boxed_unsync(),
        };
        match self.api_server.send(Request::from_parts(head, body)).await {
            Ok(response) => pass_back(response, (asked, gateway_side)),
            Err(error) => {
                tracing::error!(%error, "a request failed");
                failure(StatusCode::BAD_GATEWAY, "InternalError", &error.to_string(), asked)
            }
        }
    }
}

/// Passes an answer of the API server on, and connects both sides if it switches protocols.
fn pass_back(
    mut response: Response<Incoming>,
    (asked, gateway_side): (Option<Protocol>, OnUpgrade),
) -> Response<Content> {
    let is_switch = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if is_switch {
        let api_side = hyper::upgrade::on(&mut response);
        tokio::spawn(copy(gateway_side, api_side));
    }
    wire::encode_response(&mut response, asked);
    response.map(|body| match is_switch {
        true => no_content(),
        false => WithoutEmpty(body).boxed_unsync(),
    })
}

async fn copy(gateway_side: OnUpgrade, api_side: OnUpgrade) {
    let handover = async { tokio::try_join!(gateway_side, api_side) };
    let Ok(Ok((gateway, api))) = timeout(HANDOVER, handover).await else {
        return;
    };
    let (mut gateway, mut api) = (TokioIo::new(gateway), TokioIo::new(api));
    let copied = tokio::io::copy_bidirectional_with_sizes(&mut gateway, &mut api, BUFFER_BYTES, BUFFER_BYTES).await;
    tracing::debug!(?copied, "a tunnel ended");
}

/// Content without empty frames, of which HTTP/2 takes only some hundred in the life of a connection.
struct WithoutEmpty(Incoming);

impl Body for WithoutEmpty {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let body = &mut self.get_mut().0;
        loop {
            let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
            let is_empty = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(Bytes::is_empty);
            match frame {
                Some(Ok(frame)) if is_empty(&frame) => {}
                frame => return Poll::Ready(frame),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
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

fn no_content() -> Content {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// From 0 up to 1.
fn random_fraction() -> f64 {
    let [byte, other, ..] = *Uuid::new_v4().as_bytes();
    f64::from(u16::from_le_bytes([byte, other])) / f64::from(u16::MAX)
}
