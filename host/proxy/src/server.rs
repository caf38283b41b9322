//! Accepts the connections of clients and reads requests with bounded heads and content, each with
//! the [`Client`] that sent it. It answers 400, 408, 413, 414, 429 and 431 itself.
//!
//! Security: one client's slow, broken or idle connections do not block another client, and a
//! request that two parsers could read differently is not passed on.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, request};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::{self, ClientReader, ConnectionSlot, Connections};
use crate::forward::Body;
use crate::metrics::{ConnectionCounters, Counted};
use tollgate_config::{ProxyProtocol, TrustedProxies};

mod connect;
mod connection;
mod detection;
mod framing;
mod socket;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz {
    pub(crate) use super::framing::fuzz::TARGETS as FRAMING;
}

pub use crate::client::{Client, ForwardedError};
pub use crate::tls::{Certificates, Error as TlsError, HandshakeFailure};

/// Pause after the system refused to accept, for example without descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Pause before idle connections are looked for again.
const EVICTION_INTERVAL: Duration = Duration::from_millis(100);

/// Time connections have to end after the drain timed out.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections of the admin listener at once: probes, scrapers, a few operators.
pub const ADMIN_CONNECTIONS: usize = 64;

/// Bounds on clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request head; at least 8192 are used. (431)
    pub header_bytes: usize,
    /// Fields of a request head. (431)
    pub header_count: usize,
    /// From the first byte of a head to its last; also TLS handshakes. (408)
    pub header_timeout: Duration,
    /// Bytes of content. (413)
    pub body_bytes: u64,
    /// Between two pieces of content. (408)
    pub body_idle: Duration,
    /// Between two requests of a connection.
    pub keep_alive: Duration,
    /// A client that reads no bytes for this long is disconnected.
    pub write_stall: Duration,
    /// Requests of one HTTP/2 connection at once.
    pub streams: u32,
    /// Open connections. At the limit, idle ones are closed for new ones; if none is idle, new ones
    /// wait in the kernel's queue.
    pub connections: usize,
    /// Of them, those of one client address. Connections of trusted proxies do not count; each open
    /// request of a client behind one does. (429)
    pub connections_per_address: usize,
    /// Time open requests and tunnels have to end after a stop.
    pub drain: Duration,
}

impl Limits {
    /// The configured bounds, and fixed ones for what is not configured.
    pub fn new(limits: &tollgate_config::RequestLimits, drain: Duration) -> Self {
        Self {
            header_bytes: limits.header_bytes,
            header_count: limits.header_count,
            header_timeout: limits.header_timeout,
            body_bytes: limits.body_bytes,
            body_idle: Duration::from_secs(60),
            keep_alive: Duration::from_secs(75),
            write_stall: Duration::from_secs(60),
            streams: 200,
            connections: limits.connections,
            connections_per_address: limits.connections_per_address,
            drain,
        }
    }

    /// Limits for the admin listener, whose callers only read. A stop does not wait for them.
    pub fn admin(limits: &tollgate_config::RequestLimits) -> Self {
        Self {
            body_bytes: 0,
            streams: 16,
            connections: ADMIN_CONNECTIONS,
            connections_per_address: ADMIN_CONNECTIONS,
            ..Self::new(limits, Duration::ZERO)
        }
    }
}

/// Why the server itself answers a request, without the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestReadError {
    /// The target or `Host` is refused. (400)
    #[error(transparent)]
    Target(#[from] crate::target::Error),
    /// More fields than allowed. (431)
    #[error("{count} header fields, at most {allowed} are allowed")]
    TooManyFields {
        /// Fields sent.
        count: usize,
        /// Fields allowed.
        allowed: usize,
    },
    /// Content announced as longer than allowed. (413)
    #[error("content of {bytes} bytes, at most {allowed} are allowed")]
    ContentTooLong {
        /// Bytes announced.
        bytes: u64,
        /// Bytes allowed.
        allowed: u64,
    },
    /// Bytes that are no HTTP/1.1 head. (400)
    #[error("the request head is malformed")]
    Malformed,
    /// A head two parsers could read differently. (400)
    #[error("the lines or the framing of the request head are ambiguous")]
    Ambiguous,
    /// A target longer than the parser takes. (414)
    #[error("the request target is too long")]
    TargetTooLong,
    /// More bytes or fields of an HTTP/1.1 head than allowed. (431)
    #[error("the request head is larger than allowed")]
    HeadTooLarge,
    /// A head that began and did not end in time. (408)
    #[error("the request head did not end within {0:?}")]
    HeadTimeout(Duration),
    /// A trusted proxy does not say clearly who its client is. (400)
    #[error(transparent)]
    Forwarded(#[from] ForwardedError),
    /// The client, which is behind a trusted proxy, has as many requests open as one address may
    /// have connections. (429)
    #[error("too many requests of this address are open")]
    TooManyOfAddress,
}

impl From<client::Error> for RequestReadError {
    fn from(error: client::Error) -> Self {
        match error {
            client::Error::Forwarded(error) => Self::Forwarded(error),
            client::Error::Target(error) => Self::Target(error),
            client::Error::TooManyOfAddress => Self::TooManyOfAddress,
        }
    }
}

impl RequestReadError {
    /// The status the client gets.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Target(_) | Self::Malformed | Self::Ambiguous | Self::Forwarded(_) => StatusCode::BAD_REQUEST,
            Self::TooManyOfAddress => StatusCode::TOO_MANY_REQUESTS,
            Self::TooManyFields { .. } | Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::ContentTooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadTimeout { .. } => StatusCode::REQUEST_TIMEOUT,
        }
    }
}

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. Dropped when the client goes away.
    fn handle(&self, request: Request<Body>, client: &Arc<Client>) -> impl Future<Output = Response<Body>> + Send;

    /// Makes the response to a request that the server refuses. Its status is replaced by
    /// [`RequestReadError::status`].
    ///
    /// - `head`: absent if the request ended before its head was read. The parser has answered the
    ///   client then, and this response is dropped. If the head has ambiguous fields, the part
    ///   before them.
    fn refuse(&self, refusal: RequestReadError, head: Option<&request::Parts>, client: &Arc<Client>) -> Response<Body> {
        let _ = (head, client);
        Response::new(Body::from(format!("{refusal}\n")))
    }

    /// Whether HTTP/1.1 `CONNECT` opens a tunnel on a listener with TLS. The tunnel ends in this
    /// server, which never connects to its target: inside, the client starts TLS again and sends
    /// requests, whose [`Client::connect_authority`] is that target. Asked for each `CONNECT`;
    /// every other one is refused with [`RequestReadError::Target`].
    ///
    /// An accepted `CONNECT` is not handed to the handler. The caller is not authenticated then.
    fn accepts_connect(&self) -> bool {
        false
    }

    /// Called when a client and the server did not agree on TLS.
    fn on_failed_handshake(&self, failure: HandshakeFailure) {
        let _ = failure;
    }

    /// Called when a client disconnected in the middle of a head.
    fn on_incomplete_head(&self, client: &Arc<Client>) {
        let _ = client;
    }
}

/// A listener and its bounds.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    tls: Option<Arc<Certificates>>,
    limits: Limits,
    trusted: TrustedProxies,
    protocol: ProxyProtocol,
    counters: ConnectionCounters,
}

impl Server {
    /// Serves on `listener`: HTTP/1.1 and HTTP/2, in plain text or with
    /// `tls` only over TLS.
    pub fn new(listener: TcpListener, tls: Option<Arc<Certificates>>, limits: Limits) -> Self {
        Self {
            listener,
            tls,
            limits,
            trusted: TrustedProxies::default(),
            protocol: ProxyProtocol::Absent,
            counters: ConnectionCounters::default(),
        }
    }

    /// Counts connections, and those that the bounds close.
    #[must_use]
    pub fn counted_by(self, counters: ConnectionCounters) -> Self {
        Self { counters, ..self }
    }

    /// Believes these proxies what they say of their clients: in header fields, and at the start of
    /// each connection if `protocol` is required. Then nobody else can connect.
    #[must_use]
    pub fn behind(self, trusted: TrustedProxies, protocol: ProxyProtocol) -> Self {
        Self {
            trusted,
            protocol,
            ..self
        }
    }

    /// Serves until `stop`, then lets open requests end for at most
    /// [`Limits::drain`]. When this returns, no connection is open.
    pub async fn serve<H: Handler>(self, handler: Arc<H>, stop: CancellationToken) {
        let Self {
            listener,
            tls,
            limits,
            trusted,
            protocol,
            counters,
        } = self;
        // `drain` acquires all permits at once, of which tokio takes no more than fit into a `u32`.
        let capacity = u32::try_from(limits.connections).unwrap_or(u32::MAX).max(1);
        let slots = Arc::new(Semaphore::new(usize::try_from(capacity).unwrap_or(usize::MAX)));
        counters.limit.set(i64::from(capacity));
        let abort = CancellationToken::new();
        let connections = Arc::new(Connections::new(
            limits.connections,
            limits.connections_per_address,
            counters.clone(),
        ));
        let clients = ClientReader::new(trusted, protocol, Arc::clone(&connections));
        let shared = connection::ServerContext::new(handler, limits, tls.clone(), clients);
        let shared = Arc::new(shared);
        loop {
            tokio::select! {
                // Under load there is always a connection to accept, and `stop` might never be seen.
                biased;
                () = stop.cancelled() => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        // Before a slot is awaited, so that one address cannot make all others wait.
                        let address_permit = match shared.clients.admit(address.ip()) {
                            Ok(permit) => permit,
                            Err(error) => {
                                // At `debug`, because anybody can cause any number of these.
                                tracing::debug!(%address, %error, "connection refused");
                                continue;
                            }
                        };
                        // While this waits, further connections wait in the queue of the kernel.
                        let permit = tokio::select! {
                            biased;
                            () = stop.cancelled() => break,
                            permit = acquire_permit(&slots, &connections) => permit,
                        };
                        let counted = Counted::in_gauge(&counters.open);
                        let slot = ConnectionSlot::new(permit, counted, address_permit, &connections);
                        let signals = connection::ShutdownSignals {
                            drain: stop.child_token(),
                            evict: CancellationToken::new(),
                            abort: abort.child_token(),
                        };
                        tokio::spawn(connection::run(shared.clone(), stream, address, slot, signals));
                    }
                    Err(error) => {
                        counters.not_accepted.inc();
                        tracing::warn!(%error, "cannot accept a connection");
                        // Mostly there are no more file descriptors, and trying again at once only takes the processor.
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        // Closed before the drain, so that clients which connect now try another replica.
        drop(listener);
        drain(&slots, capacity, limits.drain, &abort).await;
    }
}

/// Waits until all connections and tunnels have ended. Each holds a permit of `slots`, so
/// all of them are free then.
async fn drain(slots: &Arc<Semaphore>, capacity: u32, bound: Duration, abort: &CancellationToken) {
    if timeout(bound, slots.acquire_many(capacity)).await.is_ok() {
        return;
    }
    tracing::warn!(
        open = capacity as usize - slots.available_permits().min(capacity as usize),
        "cutting open connections"
    );
    abort.cancel();
    if timeout(ABORT_TIMEOUT, slots.acquire_many(capacity)).await.is_err() {
        tracing::error!("connections are still open after the cut");
    }
}

/// Waits for the permit of one more connection, and asks idle connections to close. Cancel safe.
async fn acquire_permit(slots: &Arc<Semaphore>, connections: &Connections) -> OwnedSemaphorePermit {
    loop {
        if let Ok(permit) = slots.clone().try_acquire_owned() {
            return permit;
        }
        // Only if none is free, because an eviction looks at all connections while others wait for its lock.
        connections.evict();
        // There may be no idle connection yet, so it asks again after a while.
        if let Ok(Ok(permit)) = timeout(EVICTION_INTERVAL, slots.clone().acquire_owned()).await {
            return permit;
        }
    }
}

#[cfg(test)]
mod tests;
