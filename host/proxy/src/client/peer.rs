//! The other side of one client connection: its address, its transport, its open requests and the
//! time by which they must end.
//!
//! Security: the address is that of the socket, or of the header with which a trusted proxy begins
//! the connection. [`super::Client`] is who sent a request over it. The inside of a tunnel that
//! `CONNECT` opened is a separate connection, from the same address.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use http::uri::Authority;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Client, ConnectionSlot, ConnectionSource};
use tollgate_agent::hello::{ChannelValue, EndsTls};
use tollgate_identity::sessions::{ClosableConnection, PendingClose};

/// A logical clock of what happens to peers. Only the order matters, to know which of two was idle
/// longer.
static LOGICAL_CLOCK: AtomicU64 = AtomicU64::new(0);

/// What is known of a client connection, shared by its requests and tunnels.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The other side's address.
    pub(crate) address: SocketAddr,
    pub(crate) transport: Transport,
    /// Whether what it says of its clients is believed.
    pub(crate) is_trusted_proxy: bool,
    /// Cancelled when everything of this connection must end at once.
    pub(crate) closing: CancellationToken,
    open_requests: AtomicU32,
    requests_started: AtomicU64,
    /// The logical time at which it was accepted or its last request ended. Lower is longer ago.
    idle_since: AtomicU64,
    authenticated: AtomicBool,
    /// Of the connection of TLS, once it is there; `None` in it before TLS 1.3.
    channel_value: OnceLock<Option<ChannelValue>>,
    /// Number of requests before the one whose fields were refused.
    refused_after: AtomicU64,
    /// A response to HTTP/1.0 has started, so the end of the connection may mark its end.
    http10: AtomicBool,
    /// Deadlines of open exchanges, with their number. Used only where the connection itself would
    /// not notice.
    deadlines: OnceLock<Mutex<BTreeMap<Instant, u32>>>,
    /// Given back when the connection and all its tunnels ended. Absent inside a tunnel, which
    /// holds the peer of the connection that carries it.
    _slot: Option<ConnectionSlot>,
    /// Present exactly inside a tunnel. Boxed, because tunnels are rare.
    pub(crate) tunnel: Option<Box<ConnectTunnel>>,
}

/// The `CONNECT` that opened a tunnel.
#[derive(Debug)]
pub(crate) struct ConnectTunnel {
    /// What the tunnel was opened for.
    pub(crate) authority: Authority,
    /// Who opened it.
    pub(crate) client: Arc<Client>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Plain,
    Tls,
}

impl Peer {
    pub(crate) fn new(
        source: ConnectionSource,
        transport: Transport,
        closing: CancellationToken,
        slot: ConnectionSlot,
    ) -> Self {
        let ConnectionSource {
            address,
            is_trusted_proxy,
            permit,
        } = source;
        let slot = ConnectionSlot {
            // The one of `source` is that of the client that the proxy names; there is none from `admit` then.
            address_permit: permit.or(slot.address_permit),
            ..slot
        };
        Self {
            is_trusted_proxy,
            closing,
            _slot: Some(slot),
            ..Self::unlimited(address, transport)
        }
    }

    /// The peer inside a tunnel. What it says of its clients is not believed, because it is not
    /// the proxy that passed on the `CONNECT`.
    pub(crate) fn in_tunnel(tunnel: ConnectTunnel) -> Self {
        let outer = Arc::clone(tunnel.client.peer());
        Self {
            closing: outer.closing.clone(),
            tunnel: Some(Box::new(tunnel)),
            ..Self::unlimited(outer.address, Transport::Tls)
        }
    }

    /// A peer that no connection limit counts.
    pub(crate) fn unlimited(address: SocketAddr, transport: Transport) -> Self {
        Self {
            address,
            transport,
            is_trusted_proxy: false,
            closing: CancellationToken::new(),
            open_requests: AtomicU32::new(0),
            requests_started: AtomicU64::new(0),
            idle_since: AtomicU64::new(tick()),
            authenticated: AtomicBool::new(false),
            channel_value: OnceLock::new(),
            refused_after: AtomicU64::new(u64::MAX),
            http10: AtomicBool::new(false),
            deadlines: OnceLock::new(),
            _slot: None,
            tunnel: None,
        }
    }

    pub(crate) fn gateway() -> Self {
        let address = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
        Self::unlimited(address, Transport::Plain)
    }

    /// Sets the value of the connection of TLS that was made. Only the first call has an effect.
    pub(crate) fn set_channel_value(&self, value: Option<ChannelValue>) {
        let _ = self.channel_value.set(value);
    }

    /// Whether TLS ends here, regardless of what a trusted proxy says of its clients.
    pub(crate) fn ends_tls(&self) -> EndsTls {
        match self.transport {
            Transport::Tls => EndsTls::Yes(self.channel_value.get().copied().flatten()),
            Transport::Plain => EndsTls::No,
        }
    }

    pub(crate) fn open_requests(&self) -> u32 {
        self.open_requests.load(Ordering::Acquire)
    }

    pub(crate) fn requests_started(&self) -> u64 {
        self.requests_started.load(Ordering::Relaxed)
    }

    /// Marks the request after this many as refused: its head is not trusted.
    pub(crate) fn refuse_after(&self, requests: u64) {
        self.refused_after.store(requests, Ordering::Release);
    }

    /// Whether the request that started last is the marked one. Only HTTP/1.1 requests are marked,
    /// and they start one after another.
    pub(crate) fn is_refused(&self) -> bool {
        self.requests_started() > self.refused_after.load(Ordering::Acquire)
    }

    pub(crate) fn request_started(&self) {
        self.requests_started.fetch_add(1, Ordering::Relaxed);
        self.open_requests.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn request_ended(&self) {
        // Before the request is over: an eviction reads the time as soon as none is open.
        self.idle_since.store(tick(), Ordering::Relaxed);
        self.open_requests.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn idle_since(&self) -> u64 {
        self.idle_since.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_authenticated(&self) {
        self.authenticated.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_http10(&self) {
        self.http10.store(true, Ordering::Relaxed);
    }

    /// Whether only the end of the connection may mark the end of a response. Source: RFC 9112,
    /// section 6.3.
    pub(crate) fn is_http10(&self) -> bool {
        self.http10.load(Ordering::Relaxed)
    }

    /// Makes exchanges register their deadlines from now on.
    pub(crate) fn track_deadlines(&self) {
        self.deadlines.get_or_init(Mutex::default);
    }

    /// Registers that an exchange must end by `at`, until the guard is dropped. `None` if deadlines
    /// are not tracked, because the connection notices by itself.
    pub(crate) fn register_deadline(self: &Arc<Self>, at: Instant) -> Option<DeadlineGuard> {
        // Two exchanges may have the same deadline.
        *self.deadlines()?.entry(at).or_default() += 1;
        Some(DeadlineGuard { peer: self.clone(), at })
    }

    /// Whether an exchange should have ended longer than `grace` ago.
    pub(crate) fn is_overdue(&self, grace: Duration) -> bool {
        let deadlines = self.deadlines();
        let first = deadlines.as_ref().and_then(|deadlines| deadlines.first_key_value());
        first.is_some_and(|(at, _)| at.elapsed() > grace)
    }

    /// `None` if deadlines are not tracked.
    fn deadlines(&self) -> Option<MutexGuard<'_, BTreeMap<Instant, u32>>> {
        let deadlines = self.deadlines.get()?;
        Some(deadlines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn tick() -> u64 {
    LOGICAL_CLOCK.fetch_add(1, Ordering::Relaxed)
}

/// Registration of the deadline of one exchange. It is dropped when the exchange has ended.
#[derive(Debug)]
pub(crate) struct DeadlineGuard {
    peer: Arc<Peer>,
    at: Instant,
}

impl ClosableConnection for Peer {
    fn close_after_grace(self: Arc<Self>) -> Option<Box<dyn PendingClose>> {
        let guard = self.register_deadline(Instant::now())?;
        Some(Box::new(guard))
    }
}

impl PendingClose for DeadlineGuard {}

impl Drop for DeadlineGuard {
    fn drop(&mut self) {
        let Some(mut deadlines) = self.peer.deadlines() else {
            return;
        };
        if let Some(count) = deadlines.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                deadlines.remove(&self.at);
            }
        }
    }
}
