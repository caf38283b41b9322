//! The other side of one client connection.
//!
//! In: a socket's facts. Out: address, transport, and whether requests are open.
//! Never: an address a header claims.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use http::HeaderValue;
use tokio_util::sync::CancellationToken;

use super::Slot;

/// What is known of a client connection, shared by its requests and tunnels.
#[derive(Debug)]
pub struct Peer {
    address: SocketAddr,
    transport: Transport,
    /// The address as a header value, made once.
    forwarded_for: HeaderValue,
    closing: CancellationToken,
    open: AtomicU32,
    begun: AtomicU64,
    /// Given back when the connection and all its tunnels ended.
    _slot: Option<Slot>,
}

/// How a client's bytes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Plain,
    Tls,
}

impl Peer {
    pub(super) fn new(address: SocketAddr, transport: Transport, closing: CancellationToken, slot: Slot) -> Self {
        Self {
            closing,
            _slot: Some(slot),
            ..Self::unlimited(address, transport)
        }
    }

    /// A peer outside a server's count.
    fn unlimited(address: SocketAddr, transport: Transport) -> Self {
        // An address is always a header value; an empty one says nothing.
        let text = address.ip().to_canonical().to_string();
        let forwarded_for = HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""));
        Self {
            address,
            transport,
            forwarded_for,
            closing: CancellationToken::new(),
            open: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            _slot: None,
        }
    }

    /// A peer without a connection, for tests of later stages.
    #[cfg(test)]
    pub(crate) fn for_test(address: SocketAddr, transport: Transport) -> Self {
        Self::unlimited(address, transport)
    }

    /// The client's address, as the kernel sees it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Value of `X-Forwarded-For`.
    pub(crate) fn forwarded_for(&self) -> &HeaderValue {
        &self.forwarded_for
    }

    /// Value of `X-Forwarded-Proto`.
    pub fn scheme(&self) -> &'static str {
        match self.transport {
            Transport::Plain => "http",
            Transport::Tls => "https",
        }
    }

    /// Cancelled when everything of this connection must end at once.
    pub fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Requests being answered now.
    pub(super) fn open(&self) -> u32 {
        self.open.load(Ordering::Acquire)
    }

    /// Requests begun so far.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn end(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }
}
