//! Serves one client connection from its first byte to its last, and calls the handler for each
//! request.
//!
//! Invariant: no wait for a client exceeds the configured limits.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, request};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::connect::{self, AcceptedConnect};
use super::detection::{ProtocolDetection, handshake, sniff};
use super::socket::{CheckedStream, ReadState, Socket, reset};
use super::{Handler, Limits, RequestReadError};
use crate::client::{Client, ClientReader, ConnectionSlot, Peer, Transport};
use crate::forward::{Body, BodyError};
use crate::tls::{Certificates, HandshakeFailure};

/// Sent when a head took too long, because the parser has no response for that.
const HEAD_TIMEOUT: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The parser's error text for a target that it answers with 414.
const TARGET_TOO_LONG: &str = "URI too long";

/// After the last byte to a client, time and bytes to let it finish sending:
/// closing with unread bytes makes the kernel discard our response.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 * 1024;

/// Smallest buffer of the HTTP/1.1 parser.
const MIN_BUFFER_BYTES: usize = 8192;

/// Bytes of one HTTP/2 stream a client may send before they are forwarded.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// Between two pings of an HTTP/2 client.
const PING: Duration = Duration::from_secs(30);

/// What all connections of a server share.
pub(super) struct ServerContext<H> {
    handler: Arc<H>,
    pub(super) limits: Limits,
    pub(super) tls: Option<Arc<Certificates>>,
    pub(super) clients: ClientReader,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

impl<H: Handler> ServerContext<H> {
    pub(super) fn new(handler: Arc<H>, limits: Limits, tls: Option<Arc<Certificates>>, clients: ClientReader) -> Self {
        let mut http1 = http1::Builder::new();
        // `CheckedStream` measures the times, because it can answer 408.
        http1
            .header_read_timeout(None)
            .max_headers(limits.header_count)
            .max_header_size(limits.header_bytes)
            // Flushes are not gathered over pipelined requests: the parser would
            // then close over a 400 that is still in its buffer.
            .max_buf_size(limits.header_bytes.max(MIN_BUFFER_BYTES));
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(limits.streams)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            // A stream whose upstream does not read holds only its own share of this window.
            .initial_connection_window_size(STREAM_WINDOW_BYTES * 4)
            .keep_alive_interval(PING)
            .keep_alive_timeout(limits.header_timeout);
        Self {
            handler,
            limits,
            tls,
            clients,
            http1,
            http2,
        }
    }
}

#[derive(Debug)]
pub(super) struct ShutdownSignals {
    pub(super) drain: CancellationToken,
    /// After the requests that are open, because new connections need its permits.
    pub(super) evict: CancellationToken,
    pub(super) abort: CancellationToken,
}

impl ShutdownSignals {
    /// Waits until a connection without open requests has to close.
    pub(super) async fn closing(&self) {
        tokio::select! {
            () = self.drain.cancelled() => {}
            () = self.evict.cancelled() => {}
        }
    }
}

pub(super) async fn run<H: Handler>(
    shared: Arc<ServerContext<H>>,
    mut stream: TcpStream,
    address: SocketAddr,
    mut slot: ConnectionSlot,
    signals: ShutdownSignals,
) {
    // It may take long until the header of the PROXY protocol is there.
    let arrival = slot.arrival.take().filter(|_| !shared.clients.awaits_header());
    // If the option cannot be set, the connection is only slower.
    let _ = stream.set_nodelay(true);
    let bound = shared.limits.header_timeout;
    let transport = if shared.tls.is_some() {
        Transport::Tls
    } else {
        Transport::Plain
    };
    let source = tokio::select! {
        biased;
        // It is not registered yet, so nothing evicts it.
        () = signals.drain.cancelled() => return,
        source = timeout(bound, shared.clients.source(&mut stream, address)) => source,
    };
    let source = match source {
        Ok(Ok(source)) => source,
        Ok(Err(error)) => return tracing::debug!(%address, %error, "connection refused"),
        Err(_) => return tracing::debug!(%address, "connection refused: its PROXY protocol header did not end in time"),
    };
    let peer = Arc::new(Peer::new(source, transport, signals.abort.clone(), slot));
    let registration = shared.clients.connections.register(&peer, &signals.evict);
    // Not before: an eviction in between would close a connection on which a caller was authenticated.
    drop(arrival);
    let detect = async {
        match &shared.tls {
            None => sniff(stream, bound).await,
            Some(tls) => handshake(tls, stream, bound, &peer, Either::Left).await,
        }
    };
    let detected = tokio::select! {
        biased;
        () = signals.closing() => return,
        detected = detect => detected,
    };
    let accepted = serve(&shared, detected, peer, &signals).await;
    // A tunnel is registered by its own peer, because its requests count there.
    drop(registration);
    if let Some(accepted) = accepted {
        // Boxed: else each connection reserves memory for a tunnel.
        Box::pin(connect::run(shared, *accepted, signals)).await;
    }
}

/// Serves a connection whose protocol is known, until it ends or becomes the tunnel of the
/// `CONNECT` that is returned.
pub(super) async fn serve<H: Handler>(
    shared: &Arc<ServerContext<H>>,
    detected: io::Result<ProtocolDetection>,
    peer: Arc<Peer>,
    signals: &ShutdownSignals,
) -> Option<Box<AcceptedConnect>> {
    let client = Arc::new(Client::of_connection(Arc::clone(&peer)));
    match detected {
        Ok(ProtocolDetection::Http1(socket, prefix)) => {
            let io = CheckedStream::http1(socket, prefix, peer, &shared.limits);
            return serve_http1(shared, io, client, signals).await;
        }
        Ok(ProtocolDetection::Http2(socket, prefix)) => {
            let io = CheckedStream::http2(socket, prefix, &shared.limits);
            serve_http2(shared, io, client, signals).await;
        }
        Ok(ProtocolDetection::HeadTimeout(socket)) => {
            // The response is dropped: there is no parser to send it, so `linger_close` sends a fixed one.
            let refusal = RequestReadError::HeadTimeout(shared.limits.header_timeout);
            drop(shared.handler.refuse(refusal, None, &client));
            let _ = timeout(LINGER, linger_close(ReadState::HeadTimeout, socket)).await;
        }
        Ok(ProtocolDetection::IncompleteHead) => shared.handler.on_incomplete_head(&client),
        Ok(ProtocolDetection::FailedHandshake(error)) => {
            let failure = HandshakeFailure::of(&error);
            tracing::debug!(address = %peer.address, %error, "there is no TLS with this client");
            shared.handler.on_failed_handshake(failure);
        }
        Err(error) => tracing::debug!(address = %peer.address, %error, "connection ended before a request"),
    }
    None
}

/// Returns the `CONNECT` whose tunnel the connection became, if it did.
async fn serve_http1<H: Handler>(
    shared: &Arc<ServerContext<H>>,
    io: CheckedStream,
    client: Arc<Client>,
    signals: &ShutdownSignals,
) -> Option<Box<AcceptedConnect>> {
    let peer = client.peer();
    let accepted = OnceLock::new();
    // SECURITY: no tunnel is opened in plain text, and none inside another.
    let connects = (shared.tls.is_some() && peer.tunnel.is_none()).then_some(&accepted);
    // Boxed: else each open connection reserves memory for it while the response streams.
    let service = service_fn(|request| Box::pin(answer(shared.clone(), client.clone(), request, connects)));
    let mut connection = shared.http1.serve_connection(TokioIo::new(io), service).with_upgrades();
    let ShutdownSignals { drain, evict, abort } = signals;
    let mut draining = pin!(drain.cancelled());
    let mut evicting = pin!(evict.cancelled());
    let mut aborting = pin!(abort.cancelled());
    let mut shutting_down = false;
    let result = loop {
        tokio::select! {
            biased;
            // First, so that a request that has arrived counts as open before the connection is judged idle.
            result = &mut connection => break result,
            () = evicting.as_mut(), if !shutting_down => {
                // Nothing is in flight, and a graceful end would hold the permit until the client closes.
                if can_evict_now(peer) {
                    return None;
                }
                shutting_down = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            () = draining.as_mut(), if !shutting_down => {
                shutting_down = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            () = aborting.as_mut() => return None,
        }
    };
    // There is nothing to close if the connection became a tunnel.
    let io = connection.into_parts().map(|parts| parts.io.into_inner());
    if let Err(error) = &result {
        tracing::debug!(%error, "connection ended early");
        if let Some(io) = &io {
            report(shared, &client, io, error);
        }
    }
    let Some(io) = io else {
        return accepted.into_inner();
    };
    // hyper calls an error of the response's content, such as an upstream that broke off, one of the user.
    let truncated = result.is_err_and(|error| error.is_user());
    if truncated && peer.is_http10() {
        // A regular end would make a truncated response look complete.
        reset(&io.into_socket());
        return None;
    }
    // The time is bounded, regardless of what the client still does.
    let _ = timeout(LINGER, linger_close(io.state, io.into_socket())).await;
    None
}

/// Whether the connection can be closed immediately: no caller was authenticated and no request is
/// open.
fn can_evict_now(peer: &Peer) -> bool {
    peer.open_requests() == 0 && !peer.is_authenticated()
}

/// Reports to the handler a request that ended before its head was read. Broken content does not
/// count, because its request has a head.
fn report<H: Handler>(shared: &ServerContext<H>, client: &Arc<Client>, io: &CheckedStream, error: &hyper::Error) {
    let allowed = shared.limits.header_timeout;
    let refusal = match io.state {
        ReadState::HeadTimeout => RequestReadError::HeadTimeout(allowed),
        // The parser has no other name for it.
        _ if error.is_parse_too_large() && error.to_string() == TARGET_TOO_LONG => RequestReadError::TargetTooLong,
        _ if error.is_parse_too_large() => RequestReadError::HeadTooLarge,
        // Not malformed by itself: the parser failed on the invalid line that replaces the refused one.
        ReadState::Refused if error.is_parse() => RequestReadError::Ambiguous,
        _ if error.is_parse() => RequestReadError::Malformed,
        ReadState::Readable | ReadState::ClosedByClient if io.is_in_head() => {
            shared.handler.on_incomplete_head(client);
            return;
        }
        ReadState::Readable | ReadState::ClosedByClient | ReadState::Idle | ReadState::Refused => return,
    };
    drop(shared.handler.refuse(refusal, None, client));
}

/// Sends a final response, if one is due, and waits for the client to close.
async fn linger_close(state: ReadState, mut socket: Socket) {
    match state {
        // No response is in flight, or nothing can follow that makes the kernel discard it.
        ReadState::ClosedByClient | ReadState::Idle => return,
        ReadState::HeadTimeout => {
            if socket.write_all(HEAD_TIMEOUT).await.is_err() {
                return;
            }
        }
        ReadState::Readable | ReadState::Refused => {}
    }
    if socket.shutdown().await.is_err() {
        return;
    }
    let mut sink = vec![0; 8192];
    let mut taken = 0;
    while taken < LINGER_BYTES {
        match socket.read(&mut sink).await {
            Ok(0) | Err(_) => return,
            Ok(length) => taken += length,
        }
    }
}

async fn serve_http2<H: Handler>(
    shared: &Arc<ServerContext<H>>,
    io: CheckedStream,
    client: Arc<Client>,
    signals: &ShutdownSignals,
) {
    let peer = client.peer();
    let service = {
        let (shared, client) = (shared.clone(), client.clone());
        // As above, for each stream.
        service_fn(move |request| Box::pin(answer(shared.clone(), client.clone(), request, None)))
    };
    let mut connection = pin!(shared.http2.serve_connection(TokioIo::new(io), service));
    let ShutdownSignals { drain, evict, abort } = signals;
    let mut draining = pin!(drain.cancelled());
    let mut evicting = pin!(evict.cancelled());
    let mut aborting = pin!(abort.cancelled());
    let mut shutting_down = false;
    // A client that opens no flow-control window prevents hyper from polling the response.
    peer.track_deadlines();
    let grace = shared.limits.write_stall;
    let mut overdue = interval(grace);
    let mut idle = interval(shared.limits.keep_alive);
    // The first tick of an interval is immediate. It would close a connection whose first request is on its way.
    idle.reset();
    let mut started_before = 0;
    let result = loop {
        tokio::select! {
            biased;
            result = connection.as_mut() => break result,
            () = evicting.as_mut(), if !shutting_down => {
                if can_evict_now(peer) {
                    return;
                }
                shutting_down = true;
                connection.as_mut().graceful_shutdown();
            }
            () = draining.as_mut(), if !shutting_down => {
                shutting_down = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = idle.tick(), if !shutting_down => {
                // Without the second condition, a client whose short requests fall between two ticks would be idle.
                shutting_down = peer.open_requests() == 0 && peer.requests_started() == started_before;
                started_before = peer.requests_started();
                if shutting_down {
                    connection.as_mut().graceful_shutdown();
                }
            }
            _ = overdue.tick() => if peer.is_overdue(grace) {
                tracing::debug!("an exchange did not end in time, its connection is closed");
                return;
            },
            () = aborting.as_mut() => return,
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended early");
    }
}

/// - `connects`: takes the `CONNECT` that is accepted. `None` where none is.
async fn answer<H: Handler>(
    shared: Arc<ServerContext<H>>,
    connection: Arc<Client>,
    request: Request<Incoming>,
    connects: Option<&OnceLock<Box<AcceptedConnect>>>,
) -> Result<Response<InFlightBody>, Infallible> {
    // Before the first await: a connection is not evicted while a request counts as open.
    let mut open = InFlightRequest::new(connection);
    let (mut head, incoming) = request.into_parts();
    let http1 = head.version < Version::HTTP_2;
    if head.version < Version::HTTP_11 {
        open.peer().mark_http10();
    }
    let switching = http1 && head.headers.contains_key(UPGRADE);
    let limits = &shared.limits;
    // A `CONNECT` that does not pass this filter is refused by `check`, as are those of HTTP/2.
    let connects = connects.filter(|_| {
        head.method == Method::CONNECT && head.version == Version::HTTP_11 && shared.handler.accepts_connect()
    });
    let checked = match open.peer().is_refused() {
        // The head ends before the refused fields, so even those that name the client may be missing.
        true => Err(RequestReadError::Ambiguous),
        false => open
            .identify(&shared.clients, &mut head)
            .and_then(|()| check(&head, &incoming, limits, connects.is_some())),
    };
    let refused = checked.is_err();
    let mut response = match checked {
        Ok(Some(authority)) => {
            let accepted = AcceptedConnect::new(authority, &open.client, &mut head);
            return Ok(accepted
                .respond(connects)
                .map(|body| InFlightBody { body, _open: open }));
        }
        Ok(None) => {
            let body = Body::upload(incoming, limits.body_bytes, limits.body_idle);
            shared
                .handler
                .handle(Request::from_parts(head, body), &open.client)
                .await
        }
        Err(refusal) => {
            let mut response = shared.handler.refuse(refusal, Some(&head), &open.client);
            *response.status_mut() = refusal.status();
            response
        }
    };
    // SECURITY: what follows a request to switch protocols is not checked, so it must not be read
    // as a request.
    let unswitched = switching && response.status() != StatusCode::SWITCHING_PROTOCOLS;
    if http1 && (refused || unswitched) {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    Ok(response.map(|body| InFlightBody { body, _open: open }))
}

/// Checks a head, and returns the target if it is a `CONNECT`.
fn check(
    head: &request::Parts,
    incoming: &Incoming,
    limits: &Limits,
    is_connect: bool,
) -> Result<Option<Authority>, RequestReadError> {
    let connect = if is_connect {
        Some(crate::target::connect_authority(&head.uri, &head.headers)?)
    } else {
        crate::target::authority(&head.method, &head.uri, &head.headers)?;
        None
    };
    let (count, allowed) = (head.headers.len(), limits.header_count);
    if count > allowed {
        return Err(RequestReadError::TooManyFields { count, allowed });
    }
    // Chunked content announces no length. `Body::upload` counts it as it comes.
    let (bytes, allowed) = (incoming.size_hint().lower(), limits.body_bytes);
    if bytes > allowed {
        return Err(RequestReadError::ContentTooLong { bytes, allowed });
    }
    Ok(connect)
}

struct InFlightRequest {
    client: Arc<Client>,
}

impl InFlightRequest {
    /// A request of the client of its connection.
    fn new(client: Arc<Client>) -> Self {
        client.peer().request_started();
        Self { client }
    }

    /// Finds the client that sent the request, which may be behind a proxy.
    fn identify(&mut self, clients: &ClientReader, head: &mut request::Parts) -> Result<(), RequestReadError> {
        Ok(clients.read(&mut self.client, head)?)
    }

    fn peer(&self) -> &Peer {
        self.client.peer()
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.peer().request_ended();
    }
}

/// A response's content. The request counts as open until it ends.
struct InFlightBody {
    body: Body,
    _open: InFlightRequest,
}

impl http_body::Body for InFlightBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
