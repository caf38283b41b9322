//! Tracks the open connections, and closes idle ones when the limit is reached. Each accepted
//! socket gets an [`AddressPermit`], or none.
//!
//! Invariant: a connection is not closed while a request is answered on it.
//!
//! Security: an unauthenticated connection costs nothing but its permits. So permits are limited
//! for each address, and idle unauthenticated connections are closed first, the longest idle before
//! the others. Connections on which a caller was authenticated are closed last.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::peer::Peer;
use crate::metrics::{ConnectionCounters, Counted};
use tollgate_core::address::client_network;

/// When the limit is reached, this fraction of it is evicted at once, because finding the longest
/// idle connection means scanning all.
const EVICTION_DIVISOR: usize = 64;

#[derive(Debug)]
pub(crate) struct Connections {
    limit: usize,
    limit_per_address: usize,
    closed: ConnectionCounters,
    /// Accepted, and about to be registered.
    arriving: AtomicUsize,
    table: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    next: u64,
    registered: HashMap<u64, RegisteredConnection>,
    /// Numbers of the registered connections of each client.
    registered_by_client: HashMap<IpAddr, HashSet<u64>>,
    by_client: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct RegisteredConnection {
    peer: Arc<Peer>,
    evict: CancellationToken,
}

/// Permit of one connection within the limit of its address, until dropped.
#[derive(derive_more::Debug)]
#[debug("AddressPermit {{ client: {client:?}, .. }}")]
pub(crate) struct AddressPermit {
    connections: Arc<Connections>,
    client: IpAddr,
}

/// A connection that is accepted and not registered yet, until dropped.
#[derive(Debug)]
pub(crate) struct Arrival(Arc<Connections>);

/// What an accepted connection takes from others until it and all its tunnels have ended.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    pub(super) _permit: OwnedSemaphorePermit,
    pub(super) _counted: Counted,
    /// `None` for a trusted proxy.
    pub(super) address_permit: Option<AddressPermit>,
    /// `None` once it is registered.
    pub(crate) arrival: Option<Arrival>,
}

impl ConnectionSlot {
    pub(crate) fn new(
        permit: OwnedSemaphorePermit,
        counted: Counted,
        address_permit: Option<AddressPermit>,
        connections: &Arc<Connections>,
    ) -> Self {
        Self {
            _permit: permit,
            _counted: counted,
            address_permit,
            arrival: Some(connections.arrive()),
        }
    }
}

/// Registration of a connection that may be asked to close, until dropped.
pub(crate) struct Registration<'a> {
    connections: &'a Connections,
    id: u64,
}

impl Connections {
    pub(crate) fn new(limit: usize, limit_per_address: usize, closed: ConnectionCounters) -> Self {
        Self {
            limit,
            limit_per_address,
            closed,
            arriving: AtomicUsize::new(0),
            table: Mutex::default(),
        }
    }

    /// Returns the permit of one more connection of `address`. `None` if the limit of the address
    /// is reached and none of its connections is idle.
    pub(crate) fn try_acquire(self: &Arc<Self>, address: IpAddr) -> Option<AddressPermit> {
        let client = client_network(address);
        let mut table = self.lock();
        let count = table.by_client.get(&client).copied().unwrap_or(0);
        if count >= self.limit_per_address {
            let evicted = table.evict(self.limit_per_address, Candidates::OfClient(client));
            // The new one is closed if no other can be.
            self.closed.of_address.inc_by(to_count(evicted.max(1)));
            if evicted == 0 {
                return None;
            }
        }
        // An evicted connection counts until it has closed, so a client may exceed its limit for a moment.
        table.by_client.insert(client, count + 1);
        drop(table);
        Some(AddressPermit {
            connections: Arc::clone(self),
            client,
        })
    }

    /// Counts a connection that is about to be registered. Connections on which a caller was
    /// authenticated do not give way meanwhile: an unauthenticated one that can is coming.
    pub(crate) fn arrive(self: &Arc<Self>) -> Arrival {
        self.arriving.fetch_add(1, Ordering::SeqCst);
        Arrival(Arc::clone(self))
    }

    pub(crate) fn evict(&self) {
        let all = match self.arriving.load(Ordering::SeqCst) {
            0 => Candidates::All,
            _ => Candidates::Unauthenticated,
        };
        let evicted = self.lock().evict(self.limit, all);
        self.closed.in_total.inc_by(to_count(evicted));
        tracing::debug!(evicted, "idle connections give way to new ones");
    }

    /// Registers a connection. `evict` is cancelled when the connection is idle and has to close.
    pub(crate) fn register(&self, peer: &Arc<Peer>, evict: &CancellationToken) -> Registration<'_> {
        let mut table = self.lock();
        let id = table.next;
        table.next = id.wrapping_add(1);
        let connection = RegisteredConnection {
            peer: Arc::clone(peer),
            evict: evict.clone(),
        };
        table.registered.insert(id, connection);
        let of_client = table.registered_by_client.entry(client_network(peer.address.ip()));
        of_client.or_default().insert(id);
        drop(table);
        Registration { connections: self, id }
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn to_count(connections: usize) -> u64 {
    u64::try_from(connections).unwrap_or(u64::MAX)
}

/// Which connections may be asked to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Candidates {
    All,
    Unauthenticated,
    OfClient(IpAddr),
}

impl ConnectionTable {
    /// Asks a share of `bound` idle connections to close, and returns their number.
    fn evict(&self, bound: usize, candidates: Candidates) -> usize {
        // Finding those of one client must not take longer the more connections others have: a client
        // can cause it with each connection above its limit.
        let of_client = match candidates {
            Candidates::OfClient(client) => self.registered_by_client.get(&client),
            Candidates::All | Candidates::Unauthenticated => None,
        };
        let of_client = of_client.into_iter().flatten().filter_map(|id| self.registered.get(id));
        let of_all = self.registered.values().filter(|connection| match candidates {
            Candidates::All => true,
            Candidates::Unauthenticated => !connection.peer.is_authenticated(),
            Candidates::OfClient(_) => false,
        });
        let is_idle = |connection: &&RegisteredConnection| {
            connection.peer.open_requests() == 0 && !connection.evict.is_cancelled()
        };
        let mut idle: Vec<_> = of_client
            .chain(of_all)
            .filter(is_idle)
            .map(|connection| {
                (
                    connection.peer.is_authenticated(),
                    connection.peer.idle_since(),
                    &connection.evict,
                )
            })
            .collect();
        let share = bound.div_ceil(EVICTION_DIVISOR);
        // Only which ones are the longest idle matters, and not their order.
        if idle.len() > share {
            idle.select_nth_unstable_by_key(share, |(is_authenticated, since, _)| (*is_authenticated, *since));
            idle.truncate(share);
        }
        // Authenticated connections are closed only if there are no others.
        let unauthenticated = idle.iter().filter(|(is_authenticated, _, _)| !is_authenticated).count();
        let evicted = idle
            .iter()
            .filter(|(is_authenticated, _, _)| unauthenticated == 0 || !is_authenticated);
        evicted.map(|(_, _, evict)| evict.cancel()).count()
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.arriving.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut table = self.connections.lock();
        if let Some(count) = table.by_client.get_mut(&self.client) {
            *count = count.saturating_sub(1);
            // Else the map would grow with every address that ever connected.
            if *count == 0 {
                table.by_client.remove(&self.client);
            }
        }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        // Dropped without the lock: dropping a peer may release its address permit, which locks
        // again.
        let mut table = self.connections.lock();
        let connection = table.registered.remove(&self.id);
        if let Some(connection) = &connection {
            let client = client_network(connection.peer.address.ip());
            if let Some(of_client) = table.registered_by_client.get_mut(&client) {
                of_client.remove(&self.id);
                if of_client.is_empty() {
                    table.registered_by_client.remove(&client);
                }
            }
        }
        drop(table);
        drop(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Transport;

    struct Client {
        peer: Arc<Peer>,
        evict: CancellationToken,
    }

    impl Client {
        fn new(address: &str) -> Self {
            let address = format!("{address}:1").parse().unwrap();
            Self {
                peer: Arc::new(Peer::unlimited(address, Transport::Plain)),
                evict: CancellationToken::new(),
            }
        }

        fn register<'a>(&self, connections: &'a Connections) -> Registration<'a> {
            connections.register(&self.peer, &self.evict)
        }
    }

    #[test]
    fn unauthenticated_and_longest_idle_connections_are_evicted_first() {
        let connections = Connections::new(4, 4, ConnectionCounters::default());
        let clients: Vec<Client> = (0..4).map(|_| Client::new("192.0.2.1")).collect();
        let registrations: Vec<_> = clients.iter().map(|client| client.register(&connections)).collect();
        // The oldest is authenticated, the next one has an open request, and the last one had one a
        // moment ago.
        clients[0].peer.mark_authenticated();
        clients[1].peer.request_started();
        for client in [&clients[2], &clients[3]] {
            client.peer.request_started();
            client.peer.request_ended();
        }
        let evicted = || {
            clients
                .iter()
                .map(|client| client.evict.is_cancelled())
                .collect::<Vec<_>>()
        };
        for expected in [
            [false, false, true, false],
            [false, false, true, true],
            [true, false, true, true],
            // A request is never cut off.
            [true, false, true, true],
        ] {
            connections.evict();
            assert_eq!(evicted(), expected);
        }
        drop(registrations);
        let table = connections.lock();
        assert!(table.registered.is_empty() && table.registered_by_client.is_empty());
    }

    #[test]
    fn authenticated_connections_stay_while_others_arrive() {
        let connections = Arc::new(Connections::new(2, 2, ConnectionCounters::default()));
        let (caller, other) = (Client::new("192.0.2.1"), Client::new("192.0.2.2"));
        let _caller = caller.register(&connections);
        caller.peer.mark_authenticated();
        let arrival = connections.arrive();
        connections.evict();
        assert!(!caller.evict.is_cancelled());
        let _other = other.register(&connections);
        drop(arrival);
        connections.evict();
        assert_eq!((caller.evict.is_cancelled(), other.evict.is_cancelled()), (false, true));
        // There is no other any more.
        connections.evict();
        assert!(caller.evict.is_cancelled());
    }

    #[test]
    fn an_address_cannot_exceed_its_share() {
        let connections = Arc::new(Connections::new(100, 2, ConnectionCounters::default()));
        let acquire = |address: &str| connections.try_acquire(address.parse().unwrap());
        let first = acquire("192.0.2.1").unwrap();
        let _second = acquire("::ffff:192.0.2.1").unwrap();
        assert!(acquire("192.0.2.1").is_none());
        // Connections of other addresses and closed connections do not count.
        let _other = acquire("192.0.2.2").unwrap();
        drop(first);
        let _third = acquire("192.0.2.1").unwrap();
        assert!(acquire("192.0.2.1").is_none());
        // A new connection evicts an idle one of the same address, and none of another.
        let (own, other) = (Client::new("192.0.2.1"), Client::new("192.0.2.2"));
        let registrations = [own.register(&connections), other.register(&connections)];
        let _fourth = acquire("192.0.2.1").unwrap();
        assert_eq!((own.evict.is_cancelled(), other.evict.is_cancelled()), (true, false));
        assert!(acquire("192.0.2.1").is_none(), "a connection is evicted once");
        // An eviction looks only at those of the same client, however many others there are.
        let of_client = |address: &str| {
            let table = connections.lock();
            table
                .registered_by_client
                .get(&address.parse().unwrap())
                .map_or(0, HashSet::len)
        };
        assert_eq!((of_client("192.0.2.1"), of_client("192.0.2.2")), (1, 1));
        drop(registrations);
        assert_eq!((of_client("192.0.2.1"), of_client("192.0.2.2")), (0, 0));
        // Two were refused before, one evicted, and one refused after that.
        assert_eq!(
            (connections.closed.of_address.get(), connections.closed.in_total.get()),
            (4, 0)
        );
        // An IPv6 /64 counts as one address.
        let _networks = [acquire("2001:db8::1").unwrap(), acquire("2001:db8::ffff:1").unwrap()];
        assert!(acquire("2001:db8::2:3").is_none());
        assert!(acquire("2001:db8:0:1::1").is_some());
    }
}
