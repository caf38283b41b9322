//! The interface between the egress rules and the network: resolving a name, and connecting to an
//! address that passed the check. A replay has recorded answers in place of a network.
//!
//! Security: connecting never resolves a name again.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use tokio::io::{AsyncRead, AsyncWrite};

use super::error::Error;
use tollgate_runtime::name_lookup;

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Name resolution and connections. The caller checks the addresses between the two calls, so an
/// implementation decides nothing.
pub trait Network: fmt::Debug + Send + Sync + 'static {
    /// Every address of `host`, which is an A-label name, never an address.
    ///
    /// # Errors
    /// What the resolver says; an empty list counts as an error too.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;

    /// Connects to exactly this address.
    ///
    /// # Errors
    /// What the system says.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>>;
}

/// The answers of a replay. Every check of a request but that of the certificate comes before them.
pub(crate) trait RecordedAnswers: fmt::Debug + Send + Sync + 'static {
    /// Every address of `host`, as [`Network::resolve`].
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;

    /// Answers a request in the form of HTTP/1.1, or fails as a network would.
    fn answer<'a>(
        &'a self,
        host: &'a str,
        request: http::Request<Full<Bytes>>,
    ) -> BoxFuture<'a, Result<http::Response<Full<Bytes>>, Error>>;
}

/// The machine's own resolver and sockets. No proxy is ever used.
#[derive(Clone, Copy, Debug)]
pub(super) struct SystemNetwork;

impl Network for SystemNetwork {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(name_lookup::lookup(host, port))
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}
