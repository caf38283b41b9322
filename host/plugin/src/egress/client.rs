//! Sends one [`Request`], whose target is allowed, and reads its [`Response`].
//!
//! Security: connects only to a checked address, resolves the name only once, follows no redirect
//! and uses each connection once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use url::Host;

use super::address::{self, address_of};
use super::body::{self, Response};
use super::error::{Denied, EgressStage, Error};
use super::network::{Network, RecordedAnswers, Stream, SystemNetwork};
use super::rate_limit::RateLimit;
use super::request::{CheckedRequest, Request};
use super::target::Target;
use super::tls;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Addresses tried before a host counts as down.
const MAX_ADDRESSES: usize = 4;
/// Bytes of a response's head, and fields of it.
const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_HEAD_BYTES_H2: u32 = 64 * 1024;
const MAX_HEAD_FIELDS: usize = 128;

/// The HTTP client of all plugins. It holds the rate limits, but no connections.
#[derive(Clone, Debug)]
pub struct EgressClient {
    transport: Transport,
    rate_limit: Arc<RateLimit>,
}

/// What answers a request that passed the checks.
#[derive(Clone, Debug)]
enum Transport {
    Network(Arc<dyn Network>),
    Recorded(Arc<dyn RecordedAnswers>),
}

impl Default for EgressClient {
    /// A client on the machine's own network.
    fn default() -> Self {
        Self::with_network(Arc::new(SystemNetwork))
    }
}

/// Spawns the tasks of one connection. Cancelling the token ends them and the connection, even if
/// the server has stopped reading.
#[derive(Clone)]
struct ConnectionTasks(CancellationToken);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for ConnectionTasks {
    fn execute(&self, task: F) {
        tokio::spawn(self.0.clone().run_until_cancelled_owned(task));
    }
}

#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    allowed: Duration,
}

impl Deadline {
    async fn limit<T>(self, stage: EgressStage, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let done = tokio::time::timeout_at(self.at, work).await;
        done.unwrap_or_else(|_| Err(self.timeout_error(stage)))
    }

    fn timeout_error(self, stage: EgressStage) -> Error {
        Error::Timeout {
            stage,
            allowed: self.allowed,
        }
    }
}

impl EgressClient {
    /// A client on another network, for tests.
    pub fn with_network(network: Arc<dyn Network>) -> Self {
        Self::with_transport(Transport::Network(network))
    }

    /// A client without a network, for replays.
    pub(crate) fn with_recorded(answers: Arc<dyn RecordedAnswers>) -> Self {
        Self::with_transport(Transport::Recorded(answers))
    }

    fn with_transport(transport: Transport) -> Self {
        Self {
            transport,
            rate_limit: Arc::new(RateLimit::new()),
        }
    }

    /// Sends a request and reads the response to its end. The wait for the rate limit of the host
    /// counts against the request's timeout. No status counts as an error, not even 4xx or 5xx.
    ///
    /// Cancel safe: dropping the future closes the connection.
    pub(crate) async fn send(&self, request: Request) -> Result<Response, Error> {
        let allowed = request.timeout;
        let now = Instant::now();
        let at = now.checked_add(allowed).unwrap_or(now);
        let deadline = Deadline { at, allowed };
        let checked = request.check()?;
        let host = checked.target.host.to_string();
        // After the check, so that a refused request takes no turn from others.
        if !self.rate_limit.acquire(&host, at).await {
            return Err(deadline.timeout_error(EgressStage::RateLimit));
        }
        let addresses = deadline
            .limit(EgressStage::Resolve, self.resolve(&checked.target))
            .await?;
        let name = server_name(&checked.target)?;
        let (head, body, peer) = match &self.transport {
            Transport::Network(network) => {
                let connecting = connect(network.as_ref(), &host, &addresses);
                let (stream, peer) = deadline.limit(EgressStage::Connect, connecting).await?;
                let handshake = tls_handshake(&checked.target, name, stream);
                let stream = deadline.limit(EgressStage::Tls, handshake).await?;
                let tasks = ConnectionTasks(CancellationToken::new());
                let _ends_at_return = tasks.0.clone().drop_guard();
                let exchange = exchange(checked, stream, &tasks);
                let (head, incoming) = deadline.limit(EgressStage::Head, exchange).await?.into_parts();
                let reading = body::read(incoming, |error| exchange_error(&host, &error));
                (head, deadline.limit(EgressStage::Body, reading).await?, peer)
            }
            Transport::Recorded(answers) => {
                let peer = addresses.first().copied().ok_or_else(|| no_address(&host))?;
                let answer = answers.answer(&host, checked.into_http1()?);
                let (head, body) = deadline.limit(EgressStage::Head, answer).await?.into_parts();
                (head, body::read(body, |never| match never {}).await?, peer)
            }
        };
        Ok(Response {
            status: head.status,
            headers: head.headers,
            body,
            version: head.version,
            peer,
        })
    }

    /// The addresses of a target, at least one, each of them tested.
    async fn resolve(&self, target: &Target) -> Result<Vec<SocketAddr>, Error> {
        let addresses = match &target.host {
            Host::Domain(name) => {
                let found = match &self.transport {
                    Transport::Network(network) => network.resolve(name, target.port).await,
                    Transport::Recorded(answers) => answers.resolve(name, target.port),
                };
                found.map_err(|error| Error::Dns {
                    host: name.clone(),
                    reason: error.to_string(),
                })?
            }
            Host::Ipv4(address) => vec![SocketAddr::from((*address, target.port))],
            Host::Ipv6(address) => vec![SocketAddr::from((*address, target.port))],
        };
        let host = target.host.to_string();
        if addresses.is_empty() {
            return Err(no_address(&host));
        }
        // SECURITY: checks every address, because one forbidden address puts the whole DNS response
        // in doubt.
        for address in &addresses {
            address::check(address.ip(), target.entry.address_scope)
                .map_err(|code| Denied::address(code, &host, address.ip()))?;
        }
        Ok(addresses)
    }
}

fn no_address(host: &str) -> Error {
    Error::Dns {
        host: host.to_owned(),
        reason: "it has no address".to_owned(),
    }
}

async fn connect(
    network: &dyn Network,
    host: &str,
    addresses: &[SocketAddr],
) -> Result<(Box<dyn Stream>, SocketAddr), Error> {
    let mut reason = String::new();
    for address in addresses.iter().take(MAX_ADDRESSES) {
        reason = match tokio::time::timeout(CONNECT_TIMEOUT, network.connect(*address)).await {
            Ok(Ok(stream)) => return Ok((stream, *address)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("`{address}` did not accept within {} s", CONNECT_TIMEOUT.as_secs()),
        };
    }
    Err(Error::Connect {
        host: host.to_owned(),
        reason,
    })
}

fn tls_error(target: &Target, reason: String) -> Error {
    Error::Tls {
        host: target.host.to_string(),
        reason,
    }
}

/// The name that the certificate must have.
fn server_name(target: &Target) -> Result<ServerName<'static>, Error> {
    match address_of(&target.host) {
        Some(address) => Ok(ServerName::IpAddress(address.into())),
        None => ServerName::try_from(target.host.to_string())
            .map_err(|_| tls_error(target, "the host is no name of a certificate".to_owned())),
    }
}

async fn tls_handshake(
    target: &Target,
    name: ServerName<'static>,
    stream: Box<dyn Stream>,
) -> Result<TlsStream<Box<dyn Stream>>, Error> {
    let config = match &target.entry.tls {
        Some(config) => config.clone(),
        None => tls::with_system_authorities().map_err(|error| tls_error(target, error.to_string()))?,
    };
    TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(|error| match tls_cause(&error) {
            Some(cause) => tls_error(target, cause.to_string()),
            None => Error::Connect {
                host: target.host.to_string(),
                reason: format!("the connection ended during the TLS handshake: {error}"),
            },
        })
}

async fn exchange(
    checked: CheckedRequest,
    stream: TlsStream<Box<dyn Stream>>,
    tasks: &ConnectionTasks,
) -> Result<http::Response<Incoming>, Error> {
    let host = checked.target.host.to_string();
    let failed = |error: hyper::Error| exchange_error(&host, &error);
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(stream);
    if is_http2 {
        let (mut client, connection) = hyper::client::conn::http2::Builder::new(tasks.clone())
            .max_header_list_size(MAX_HEAD_BYTES_H2)
            .handshake::<_, Full<Bytes>>(io)
            .await
            .map_err(failed)?;
        // The error that ends the connection is also returned by `send_request`.
        tasks.execute(connection);
        client.send_request(checked.message).await.map_err(failed)
    } else {
        let message = checked.into_http1()?;
        let (mut client, connection) = hyper::client::conn::http1::Builder::new()
            .max_header_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEAD_FIELDS)
            .handshake::<_, Full<Bytes>>(io)
            .await
            .map_err(failed)?;
        tasks.execute(connection);
        client.send_request(message).await.map_err(failed)
    }
}

/// Converts an error of hyper. The text of hyper's errors contains no message content.
fn exchange_error(host: &str, error: &hyper::Error) -> Error {
    let host = host.to_owned();
    // In TLS 1.3, a server may refuse the client after the client has finished the handshake.
    if let Some(cause) = tls_cause(error) {
        let reason = cause.to_string();
        return Error::Tls { host, reason };
    }
    if error.is_parse_too_large() {
        return Error::TooLarge {
            what: "head",
            allowed: MAX_HEAD_BYTES,
        };
    }
    if error.is_parse() {
        let reason = format!("the answer is not HTTP: {error}");
        return Error::Connect { host, reason };
    }
    Error::Truncated { host }
}

/// The TLS library's own error, when that is what an error comes from.
fn tls_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(current) = next {
        if let Some(found) = current.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        let inner = current
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        if let Some(found) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Some(found);
        }
        next = current.source();
    }
    None
}
