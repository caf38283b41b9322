//! One service of an extension ([`ExtensionSpec`], [`ServiceSpec`]): its address and its connection
//! pool. URLs and fields that would not have the effect they suggest are refused.
//!
//! Invariant: backends share no connections, so a backend that hangs does not affect the others.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::uri::{Authority, Scheme};
use http::{HeaderName, Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tower::Service;

use super::http2_pool::Http2Pool;
use super::resolver::Resolver;
use super::{Body, tls};
use crate::headers::{HeldValue, Origin, RequestHeader, Responder, Upstream};
use tollgate_agent::connections::{AgentClient, AgentSender};
use tollgate_agent::request::RequestError;
use tollgate_objects::extensions::{ConnectionSpec, ExtensionSpec, ServiceSpec, TimeoutSpec};
use tollgate_runtime::certificates;

/// Bytes of one HTTP/2 stream a backend may send before the client reads them.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// Time between two HTTP/2 keep-alive pings, as in client-go.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_WITHIN: Duration = Duration::from_secs(15);

/// The content is boxed because hyper keeps room for the head and content of 32 requests for each
/// connection.
pub(super) type HttpClient = Client<Connector, Box<Body>>;

/// Why a backend cannot be made from its configuration.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Neither `http` nor `https`.
    #[error("scheme `{0}` is neither `http` nor `https`")]
    Scheme(String),
    /// No host, or one that is no authority.
    #[error("url has no host")]
    Host,
    /// User, password, query or fragment: none of them would be used.
    #[error("url has a user, password, query or fragment")]
    Superfluous,
    /// The base path breaks a rule for paths.
    #[error("path of the url is refused")]
    Path(#[source] crate::target::Error),
    /// A configured field is the gateway's own.
    #[error("header `{0}` is the gateway's own and cannot be configured")]
    ReservedHeader(HeaderName),
    /// `X-Remote-*` without a client certificate: the backend could not authenticate the sender.
    #[error("`requestHeader` needs an https url and a client certificate")]
    RequestHeaderWithoutCertificate,
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] certificates::Error),
}

/// One service, with its own connections. Cheap to share in an `Arc`; dropping
/// it closes the idle connections.
#[derive(derive_more::Debug)]
#[debug("Backend {{ upstream: {upstream:?}, .. }}")]
pub struct Backend {
    /// The part of the header that all requests to this backend share, for
    /// [`crate::headers::CleanedRequest::seal`].
    pub upstream: Arc<Upstream>,
    pub(super) timeouts: TimeoutSpec,
    clients: Clients,
}

/// What sends the requests.
enum Clients {
    /// One pool, whose bounds are the configured ones.
    One {
        client: Box<HttpClient>,
        /// HTTP/1.1 only, because only there a connection becomes a tunnel.
        upgrades: HttpClient,
    },
    /// As many as long exchanges need.
    Many {
        http2_pool: Http2Pool,
        /// As in [`Clients::One`].
        upgrades: HttpClient,
    },
    Agent(AgentClient),
}

/// What sends one request.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be allocated for each request, and it lives on the stack"
)]
pub(super) enum Sender {
    Client(HttpClient),
    Agent(AgentSender),
}

/// An answer that is awaited.
pub(super) enum Call {
    Client(ResponseFuture),
    Agent(BoxFuture<'static, Result<Response<Incoming>, RequestError>>),
}

/// Why there is no answer.
pub(super) enum CallError {
    Client(legacy::Error),
    Agent(RequestError),
}

impl Sender {
    pub(super) fn send(&self, request: Request<Box<Body>>) -> Call {
        match self {
            Self::Client(client) => Call::Client(client.request(request)),
            Self::Agent(agent) => {
                Call::Agent(agent.send(request.map(|body| body.map_err(BoxError::from).boxed_unsync())))
            }
        }
    }
}

impl Future for Call {
    type Output = Result<Response<Incoming>, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Client(call) => Pin::new(call).poll(cx).map_err(CallError::Client),
            Self::Agent(call) => Pin::new(call).poll(cx).map_err(CallError::Agent),
        }
    }
}

impl Backend {
    /// Checks the configuration and makes an empty pool. Connects nowhere.
    ///
    /// # Errors
    /// [`BuildError`], for the first thing found.
    pub fn build(spec: &ExtensionSpec, service: &ServiceSpec) -> Result<Self, BuildError> {
        let origin = origin(&service.url)?;
        let secure = origin.scheme == Scheme::HTTPS;
        crate::target::check_path(service.url.path()).map_err(BuildError::Path)?;
        if let Some((name, _)) = service.headers.iter().find(|(name, _)| !Upstream::may_configure(name)) {
            return Err(BuildError::ReservedHeader(name.clone()));
        }
        let request_header = match (spec.identity.request_header, secure, &spec.tls.client_certificate_pem) {
            (false, _, _) => RequestHeader::Absent,
            (true, true, Some(_)) => RequestHeader::Sent,
            (true, _, _) => return Err(BuildError::RequestHeaderWithoutCertificate),
        };
        let mut headers = service.headers.clone();
        for (_, value) in &mut headers {
            // Operators put credentials here; they stay out of Debug and HPACK.
            value.set_sensitive(true);
        }
        let upstream = Upstream::new(origin, service.url.path().to_owned(), headers, request_header)
            .map_err(|_| BuildError::Host)?
            .answered_by(Responder::Extension(spec.name.clone()));
        let config = if secure {
            tls::client_config(&spec.tls)?
        } else {
            tls::unused_config()?
        };
        let server_name = tls::server_name(spec.tls.server_name.as_deref())?;
        let tls = TlsIdentity { config, server_name };
        let connection = &spec.connection;
        let connector = |versions| Connector::new(connection, tls.clone(), versions);
        Ok(Self {
            upstream: Arc::new(upstream),
            timeouts: spec.timeouts,
            clients: Clients::One {
                client: Box::new(pool(connection, connector(HttpVersions::Both), Pings::None)),
                upgrades: pool(connection, connector(HttpVersions::Http1), Pings::None),
            },
        })
    }

    /// An empty pool of HTTP/1.1 connections.
    pub(super) fn with_http1(upstream: Upstream, connection: &ConnectionSpec, tls: TlsIdentity) -> Self {
        let client = pool(
            connection,
            Connector::new(connection, tls, HttpVersions::Http1),
            Pings::None,
        );
        Self {
            upstream: Arc::new(upstream),
            timeouts: TimeoutSpec::default(),
            clients: Clients::One {
                client: Box::new(client.clone()),
                upgrades: client,
            },
        }
    }

    /// Empty pools of HTTP/2 connections, also over plain TCP. Nothing is upgraded on them.
    pub(super) fn with_http2(upstream: Upstream, connection: ConnectionSpec, tls: TlsIdentity) -> Self {
        let connector = Connector::new(&connection, tls, HttpVersions::Http2);
        let upgrades = pool(&connection, connector.clone(), Pings::None);
        Self {
            upstream: Arc::new(upstream),
            timeouts: TimeoutSpec::default(),
            clients: Clients::Many {
                http2_pool: Http2Pool::new(move || pool(&connection, connector.clone(), Pings::WhileOpen)),
                upgrades,
            },
        }
    }

    /// Empty pools, for exchanges that can be long and many.
    pub(super) fn with_http2_pool(upstream: Upstream, connection: ConnectionSpec, tls: &TlsIdentity) -> Self {
        let connector = |versions| Connector::new(&connection, tls.clone(), versions);
        let upgrades = pool(&connection, connector(HttpVersions::Http1), Pings::None);
        let both = connector(HttpVersions::Both);
        Self {
            upstream: Arc::new(upstream),
            timeouts: TimeoutSpec::default(),
            clients: Clients::Many {
                http2_pool: Http2Pool::new(move || pool(&connection, both.clone(), Pings::Always)),
                upgrades,
            },
        }
    }

    /// Sends through the agent of a cluster, which knows where its API server is.
    pub(super) fn with_agent(upstream: Upstream, agent: AgentClient) -> Self {
        Self {
            upstream: Arc::new(upstream),
            timeouts: TimeoutSpec::default(),
            clients: Clients::Agent(agent),
        }
    }

    /// What sends one exchange, and the permit that counts the exchange there.
    ///
    /// # Errors
    /// The agent is not connected, or has as many requests open as it may have.
    pub(super) fn sender(&self, upgrade: bool) -> Result<(Sender, Option<HeldValue>), RequestError> {
        Ok(match &self.clients {
            Clients::Agent(agent) => {
                let (sender, permit) = agent.choose()?;
                (Sender::Agent(sender), Some(Box::new(permit)))
            }
            Clients::One { upgrades, .. } | Clients::Many { upgrades, .. } if upgrade => {
                (Sender::Client(upgrades.clone()), None)
            }
            Clients::One { client, .. } => (Sender::Client(HttpClient::clone(client)), None),
            Clients::Many { http2_pool, .. } => {
                let (client, permit) = http2_pool.take();
                (Sender::Client(client), Some(Box::new(permit)))
            }
        })
    }

    #[cfg(test)]
    pub(super) fn http2_pool(&self) -> Option<&Http2Pool> {
        match &self.clients {
            Clients::One { .. } | Clients::Agent(_) => None,
            Clients::Many { http2_pool, .. } => Some(http2_pool),
        }
    }
}

pub(super) fn origin(url: &url::Url) -> Result<Origin, BuildError> {
    let scheme = match url.scheme() {
        "http" => Scheme::HTTP,
        "https" => Scheme::HTTPS,
        other => {
            return Err(BuildError::Scheme(other.to_owned()));
        }
    };
    let named = !url.username().is_empty() || url.password().is_some();
    if named || url.query().is_some() || url.fragment().is_some() {
        return Err(BuildError::Superfluous);
    }
    let host = url.host_str().ok_or(BuildError::Host)?;
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    Ok(Origin {
        scheme,
        authority: Authority::from_maybe_shared(authority).map_err(|_| BuildError::Host)?,
    })
}

/// When HTTP/2 keep-alive pings are sent.
#[derive(Clone, Copy)]
enum Pings {
    None,
    /// While a stream is open. Go's gRPC servers end connections that send pings without one.
    WhileOpen,
    Always,
}

fn pool(spec: &ConnectionSpec, connector: Connector, pings: Pings) -> HttpClient {
    let mut builder = Client::builder(TokioExecutor::new());
    if let Pings::WhileOpen | Pings::Always = pings {
        // Without pings, a server that vanished blocks everything on its connection until TCP gives
        // up a quarter of an hour later, and an idle watch never notices.
        builder
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_WITHIN)
            .http2_keep_alive_while_idle(matches!(pings, Pings::Always));
    }
    // One pool has one host, so "per host" is the total.
    builder
        .pool_idle_timeout(spec.idle_connection_timeout)
        .pool_max_idle_per_host(spec.max_idle_connections)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        // `seal` has written `Host`. For argocd-server it is the one that the client named.
        .set_host(false)
        .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
        .http2_adaptive_window(false)
        .http2_only(matches!(connector.versions, HttpVersions::Http2))
        // Repeats only what was never written to a connection.
        .retry_canceled_requests(true)
        .build(connector)
}

/// How long the other side may acknowledge nothing of what was sent to it, at least.
const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest silence before a keep-alive probe, regardless of the settings.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);
/// Time between probes that are not answered, and how many of them end a connection.
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// When the kernel takes a host for vanished.
///
/// `TCP_USER_TIMEOUT` also replaces the number of keep-alive probes (tcp(7)): silence of that time ends a
/// connection if one probe is unanswered. So it has room for several probes, and one lost packet ends nothing.
#[derive(Clone, Copy, Debug)]
struct Liveness {
    first_probe: Duration,
    probe_every: Duration,
    user_timeout: Duration,
}

impl Liveness {
    fn new(keep_alive: Duration) -> Self {
        let first_probe = keep_alive.min(LONGEST_SILENCE);
        let probe_every = keep_alive.min(PROBE_EVERY);
        Self {
            first_probe,
            probe_every,
            user_timeout: USER_TIMEOUT.max(first_probe + probe_every * PROBES),
        }
    }
}

#[derive(Clone, Copy)]
enum HttpVersions {
    Http1,
    Http2,
    Both,
}

/// Connects within a time that covers TCP and TLS together.
#[derive(Clone)]
pub(super) struct Connector {
    inner: HttpsConnector<HttpConnector<Resolver>>,
    versions: HttpVersions,
    bound: Duration,
}

/// How a backend is recognized over TLS, and how the gateway identifies itself there.
#[derive(Clone)]
pub(super) struct TlsIdentity {
    pub(super) config: ClientConfig,
    /// Expected in the backend's certificate instead of its host.
    pub(super) server_name: Option<rustls::pki_types::ServerName<'static>>,
}

impl Connector {
    fn new(spec: &ConnectionSpec, tls: TlsIdentity, versions: HttpVersions) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(Resolver);
        // TLS is added around it, so it gets `https` URLs too.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let liveness = Liveness::new(spec.keep_alive);
        tcp.set_keepalive(Some(liveness.first_probe));
        tcp.set_keepalive_interval(Some(liveness.probe_every));
        tcp.set_keepalive_retries(Some(PROBES));
        // TCP sends no keep-alive probe while something is unacknowledged: a request that is written to a
        // pooled connection whose host has vanished would wait for a quarter of an hour.
        tcp.set_tcp_user_timeout(Some(liveness.user_timeout));
        // Bounds one address, so that a dead one leaves time for the next.
        tcp.set_connect_timeout(Some(spec.connect_timeout));
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls.config).https_or_http();
        let builder = match tls.server_name {
            Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
            None => builder,
        };
        let inner = match versions {
            HttpVersions::Http1 => builder.enable_http1().wrap_connector(tcp),
            HttpVersions::Http2 => builder.enable_http2().wrap_connector(tcp),
            HttpVersions::Both => builder.enable_http1().enable_http2().wrap_connector(tcp),
        };
        Self {
            inner,
            versions,
            bound: spec.connect_timeout,
        }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = <HttpsConnector<HttpConnector<Resolver>> as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.call(uri);
        let bound = self.bound;
        Box::pin(async move {
            match tokio::time::timeout(bound, connecting).await {
                Ok(connected) => connected,
                Err(elapsed) => Err(elapsed.into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper_rustls::MaybeHttpsStream;
    use rustix::net::sockopt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::forward::tests::test_server::spec;

    /// A host that vanishes while it has a request is noticed by the kernel, because TCP sends no
    /// keep-alive probe then. While it has none, several probes must be lost before a connection ends.
    #[tokio::test]
    async fn connections_end_when_nothing_is_acknowledged_and_not_because_one_probe_is_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let connection = spec("echo", &url).connection;
        for versions in [HttpVersions::Http1, HttpVersions::Http2, HttpVersions::Both] {
            let tls = TlsIdentity {
                config: tls::unused_config().unwrap(),
                server_name: None,
            };
            let mut connector = Connector::new(&connection, tls, versions);
            poll_fn(|cx| connector.poll_ready(cx)).await.unwrap();
            let MaybeHttpsStream::Http(stream) = connector.call(url.parse().unwrap()).await.unwrap() else {
                panic!("no TLS was asked for");
            };
            let milliseconds = sockopt::tcp_user_timeout(stream.inner()).unwrap();
            assert_eq!(u128::from(milliseconds), USER_TIMEOUT.as_millis());
            let silence = sockopt::tcp_keepidle(stream.inner()).unwrap();
            let every = sockopt::tcp_keepintvl(stream.inner()).unwrap();
            assert_eq!(silence, connection.keep_alive);
            assert!(silence + every * PROBES <= USER_TIMEOUT, "{silence:?}, {every:?}");
        }
    }

    #[test]
    fn every_setting_leaves_time_for_several_probes() {
        for seconds in [1, 2, 15, 30, 60, 3_600, 86_400] {
            let keep_alive = Duration::from_secs(seconds);
            let liveness = Liveness::new(keep_alive);
            assert!(liveness.first_probe <= keep_alive);
            assert!(liveness.first_probe + liveness.probe_every * PROBES <= liveness.user_timeout);
            assert!(liveness.user_timeout <= Duration::from_secs(75));
        }
    }
}
