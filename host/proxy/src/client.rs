//! Who sent a request: the address, scheme and host of the client, also of one behind a proxy.
//!
//! Security: they are those of the connection, unless it is a trusted proxy's, and then those that
//! the proxy names at the start of the connection or in each request. Inside a tunnel they are
//! those of the `CONNECT` that opened it, and header fields are never believed. Only this file
//! makes a [`Client`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderValue, Uri, request};
use tokio::net::TcpStream;

use crate::target;
use tollgate_config::{ProxyProtocol, TrustedProxies};

mod connections;
mod forwarded;
mod peer;
mod proxy_protocol;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz {
    pub(crate) use super::forwarded::fuzz::TARGETS as FORWARDED;
    pub(crate) use super::proxy_protocol::fuzz::TARGETS as PROXY_PROTOCOL;
}

pub(crate) use connections::{AddressPermit, ConnectionSlot, Connections};
pub use forwarded::Error as ForwardedError;
use forwarded::ForwardedClient;
pub(crate) use peer::{ConnectTunnel, Peer, Transport};
use proxy_protocol::Source;

/// The client that sent a request, and the connection it came over.
#[derive(Debug)]
pub struct Client {
    peer: Arc<Peer>,
    address: IpAddr,
    transport: Transport,
    /// The address as a header value, made once.
    forwarded_for: HeaderValue,
    /// Of a client behind a proxy, whose connections are not counted.
    _permit: Option<AddressPermit>,
}

/// What tells clients behind proxies apart.
#[derive(Debug)]
pub(crate) struct ClientReader {
    trusted: TrustedProxies,
    protocol: ProxyProtocol,
    pub(crate) connections: Arc<Connections>,
}

/// The other side of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionSource {
    pub(crate) address: SocketAddr,
    /// Whether its `Forwarded` and `X-Forwarded-*` are believed.
    pub(crate) is_trusted_proxy: bool,
    /// Its place within the limit of the address, if it got none when it was accepted.
    pub(crate) permit: Option<AddressPermit>,
}

/// Why a connection is closed before anything is served on it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("the address has too many connections")]
    TooMany,
    #[error("only trusted proxies may connect, because the PROXY protocol is required")]
    NotAProxy,
    #[error(transparent)]
    ProxyProtocol(#[from] proxy_protocol::Error),
}

/// Why the client of a request is not known, or not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The proxy contradicts itself.
    #[error(transparent)]
    Forwarded(#[from] ForwardedError),
    /// The authority that the proxy used is refused.
    #[error(transparent)]
    Target(#[from] target::Error),
    #[error("too many requests of this address are open")]
    TooManyOfAddress,
}

impl ClientReader {
    pub(crate) fn new(trusted: TrustedProxies, protocol: ProxyProtocol, connections: Arc<Connections>) -> Self {
        Self {
            trusted,
            protocol,
            connections,
        }
    }

    /// Whether each connection begins with a header.
    pub(crate) fn awaits_header(&self) -> bool {
        self.protocol == ProxyProtocol::Required
    }

    /// Whether an accepted socket may stay. `None` instead of a permit for a trusted proxy, whose
    /// connections are those of many clients.
    pub(crate) fn admit(&self, socket: IpAddr) -> Result<Option<AddressPermit>, ConnectionError> {
        match (self.trusted.contains(socket), self.protocol) {
            (true, _) => Ok(None),
            (false, ProxyProtocol::Absent) => self.acquire(socket).map(Some),
            (false, ProxyProtocol::Required) => Err(ConnectionError::NotAProxy),
        }
    }

    fn acquire(&self, address: IpAddr) -> Result<AddressPermit, ConnectionError> {
        self.connections.try_acquire(address).ok_or(ConnectionError::TooMany)
    }

    /// Finds the other side of a connection, of which nothing was read. Not cancel safe.
    // SECURITY: where a proxy does not know its client, what it passes on may be that client's.
    pub(crate) async fn source(
        &self,
        stream: &mut TcpStream,
        socket: SocketAddr,
    ) -> Result<ConnectionSource, ConnectionError> {
        let source = match self.protocol {
            ProxyProtocol::Absent => {
                return Ok(ConnectionSource {
                    address: socket,
                    is_trusted_proxy: self.trusted.contains(socket.ip()),
                    permit: None,
                });
            }
            ProxyProtocol::Required => proxy_protocol::read(stream).await?,
        };
        let (address, is_trusted_proxy) = match source {
            Source::Unspecified => (socket, false),
            Source::Client(address) => (address, self.trusted.contains(address.ip())),
        };
        // `admit` counted nothing, because the socket is the proxy's. The client is known only here.
        let is_counted = source != Source::Unspecified && !is_trusted_proxy;
        Ok(ConnectionSource {
            address,
            is_trusted_proxy,
            permit: is_counted.then(|| self.acquire(address.ip())).transpose()?,
        })
    }

    /// Finds the client of one request. If a trusted proxy names the host that its client asked for,
    /// that becomes the authority of the request.
    ///
    /// - `client`: that of the connection. Becomes that of the request as soon as it is known.
    pub(crate) fn read(&self, client: &mut Arc<Client>, head: &mut request::Parts) -> Result<(), Error> {
        if !client.peer.is_trusted_proxy {
            return Ok(());
        }
        let ForwardedClient {
            address,
            transport,
            host,
        } = forwarded::read(&head.headers, &self.trusted)?;
        if let Some(host) = host {
            // The replaced authority must be valid as well: later checks see only the new one.
            target::authority(&head.method, &head.uri, &head.headers)?;
            replace_authority(head, host)?;
        }
        if address.is_none() && transport.is_none() {
            return Ok(());
        }
        let address = address.unwrap_or(client.address);
        // A chain of trusted proxies only is the request of a proxy, whose connections do not count either.
        let is_counted = !self.trusted.contains(address);
        let permit = is_counted.then(|| self.connections.try_acquire(address)).flatten();
        let is_one_too_many = is_counted && permit.is_none();
        let transport = transport.unwrap_or(client.transport);
        // Also of a request that is refused, so that its record names the client and not the proxy.
        *client = Arc::new(Client::new(Arc::clone(&client.peer), address, transport, permit));
        match is_one_too_many {
            true => Err(Error::TooManyOfAddress),
            false => Ok(()),
        }
    }
}

impl Client {
    /// The client of a connection that is no trusted proxy's, and of one on which no request was
    /// read.
    pub(crate) fn of_connection(peer: Arc<Peer>) -> Self {
        let address = match &peer.tunnel {
            Some(tunnel) => tunnel.client.address,
            // A dual-stack socket has IPv4 clients as `::ffff:192.0.2.1`. They must be one client everywhere.
            None => peer.address.ip().to_canonical(),
        };
        let transport = peer.transport;
        Self::new(peer, address, transport, None)
    }

    /// The gateway itself, for requests that it makes on its own.
    pub fn gateway() -> Self {
        Self::of_connection(Arc::new(Peer::gateway()))
    }

    fn new(peer: Arc<Peer>, address: IpAddr, transport: Transport, permit: Option<AddressPermit>) -> Self {
        // An address is always a header value; an empty one says nothing.
        let forwarded_for = HeaderValue::try_from(address.to_string());
        Self {
            peer,
            address,
            transport,
            forwarded_for: forwarded_for.unwrap_or_else(|_| HeaderValue::from_static("")),
            _permit: permit,
        }
    }

    #[cfg(test)]
    pub(crate) fn for_test(address: SocketAddr, transport: Transport) -> Self {
        Self::of_connection(Arc::new(Peer::unlimited(address, transport)))
    }

    /// The client's address: the other side of the connection, or what a trusted proxy says.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The other side of the connection, which may be a proxy.
    pub fn peer_address(&self) -> SocketAddr {
        self.peer.address
    }

    /// What the tunnel that carries the request was opened for: the target of its `CONNECT`, with
    /// the host in lower case, and always with a port. `None` exactly for a request that came
    /// outside of tunnels. Source: RFC 9110, section 9.3.6.
    ///
    /// It is the client's choice and proves nothing about it.
    pub fn connect_authority(&self) -> Option<&Authority> {
        self.peer.tunnel.as_deref().map(|tunnel| &tunnel.authority)
    }

    /// Whether the client itself uses TLS, with the gateway or with a trusted proxy.
    pub fn uses_tls(&self) -> bool {
        self.transport == Transport::Tls
    }

    /// Records that a caller was authenticated on the connection.
    pub fn mark_authenticated(&self) {
        self.peer.mark_authenticated();
    }

    pub(crate) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Value of `X-Forwarded-For`.
    pub(crate) fn forwarded_for(&self) -> &HeaderValue {
        &self.forwarded_for
    }

    /// Value of `X-Forwarded-Proto`.
    pub(crate) fn scheme(&self) -> &'static str {
        match self.transport {
            Transport::Plain => "http",
            Transport::Tls => "https",
        }
    }
}

/// Makes `host` the only authority of the request.
fn replace_authority(head: &mut request::Parts, host: HeaderValue) -> Result<(), target::Error> {
    head.headers.insert(HOST, host);
    if head.uri.authority().is_some() {
        // An absolute URI would keep the former authority, and take precedence over `Host` at the next reader.
        let path = head.uri.path_and_query().cloned().ok_or(target::Error::Target)?;
        head.uri = Uri::from(path);
    }
    Ok(())
}
