//! Tracks the open connections, and closes idle ones when there is no room. Each accepted socket
//! gets a [`AddressPermit`], or none.
//!
//! Invariant: a connection is not closed while a request is answered on it.
//!
//! Security: an unauthenticated connection occupies nothing but its place. So places are limited
//! for each address, and idle unauthenticated connections are closed first, the longest idle before
//! the others. Connections on which somebody was authenticated are closed last.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::peer::Peer;

/// When there is no room, one in this many places of the limit is freed at once, because finding
/// the longest idle connection means scanning all.
const EVICTION_DIVISOR: usize = 64;

/// All connections of a listener.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    most_per_address: usize,
    open: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    next: u64,
    listed: HashMap<u64, RegisteredConnection>,
    by_client: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct RegisteredConnection {
    peer: Arc<Peer>,
    evict: CancellationToken,
}

/// A connection's place within the limit of its address, until dropped.
pub(super) struct AddressPermit {
    connections: Arc<Connections>,
    client: IpAddr,
}

impl fmt::Debug for AddressPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressPermit")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// Registration of a connection that may be asked to close, until dropped.
pub(super) struct Registration<'a> {
    connections: &'a Connections,
    id: u64,
}

impl Connections {
    pub(super) fn new(most: usize, most_per_address: usize) -> Self {
        Self {
            most,
            most_per_address,
            open: Mutex::default(),
        }
    }

    /// A place for one more connection of `address`. `None` if its limit is reached and none of its
    /// connections is idle.
    pub(super) fn try_acquire(self: &Arc<Self>, address: IpAddr) -> Option<AddressPermit> {
        let client = client(address);
        let mut open = self.lock();
        let count = open.by_client.get(&client).copied().unwrap_or(0);
        if count >= self.most_per_address && open.evict(self.most_per_address, Some(client)) == 0 {
            return None;
        }
        open.by_client.insert(client, count + 1);
        drop(open);
        Some(AddressPermit {
            connections: Arc::clone(self),
            client,
        })
    }

    /// Asks some idle connections to close.
    pub(super) fn evict(&self) {
        let evicted = self.lock().evict(self.most, None);
        tracing::debug!(evicted, "idle connections give way to new ones");
    }

    /// Registers a connection. `evict` is cancelled when the connection is idle and has to close.
    pub(super) fn register(&self, peer: &Arc<Peer>, evict: &CancellationToken) -> Registration<'_> {
        let mut open = self.lock();
        let id = open.next;
        open.next = id.wrapping_add(1);
        let listed = RegisteredConnection {
            peer: Arc::clone(peer),
            evict: evict.clone(),
        };
        open.listed.insert(id, listed);
        drop(open);
        Registration { connections: self, id }
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionTable {
    /// Asks a share of `bound` idle connections to close, and returns their number.
    fn evict(&self, bound: usize, of: Option<IpAddr>) -> usize {
        let idle = self.listed.values().filter(|listed| {
            let is_meant = of.is_none_or(|client_meant| client(listed.peer.address().ip()) == client_meant);
            is_meant && listed.peer.open() == 0 && !listed.evict.is_cancelled()
        });
        let mut idle: Vec<_> = idle
            .map(|listed| (listed.peer.is_authenticated(), listed.peer.idle_since(), &listed.evict))
            .collect();
        let share = bound.div_ceil(EVICTION_DIVISOR);
        if idle.len() > share {
            idle.select_nth_unstable_by_key(share, |(is_known, since, _)| (*is_known, *since));
            idle.truncate(share);
        }
        // Authenticated connections are closed only if there are no others.
        let strangers = idle.iter().filter(|(is_known, _, _)| !is_known).count();
        let evicted = idle.iter().filter(|(is_known, _, _)| strangers == 0 || !is_known);
        evicted.map(|(_, _, evict)| evict.cancel()).count()
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        if let Some(count) = open.by_client.get_mut(&self.client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.by_client.remove(&self.client);
            }
        }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        // Dropped without the lock: with a peer its place may go.
        let listed = self.connections.lock().listed.remove(&self.id);
        drop(listed);
    }
}

/// The client that an address counts for. In IPv6 it is a /64 network, because one machine may have
/// all of it.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::peer::Transport;

    struct Client {
        peer: Arc<Peer>,
        evict: CancellationToken,
    }

    impl Client {
        fn new(address: &str) -> Self {
            let address = format!("{address}:1").parse().unwrap();
            Self {
                peer: Arc::new(Peer::for_test(address, Transport::Plain)),
                evict: CancellationToken::new(),
            }
        }

        fn register<'a>(&self, connections: &'a Connections) -> Registration<'a> {
            connections.register(&self.peer, &self.evict)
        }
    }

    #[test]
    fn strangers_give_way_first_and_the_longest_idle_of_them() {
        let connections = Connections::new(4, 4);
        let clients: Vec<Client> = (0..4).map(|_| Client::new("192.0.2.1")).collect();
        let listings: Vec<_> = clients.iter().map(|client| client.register(&connections)).collect();
        // The oldest is known, the next one is asking, and the last one was a moment ago.
        clients[0].peer.mark_authenticated();
        clients[1].peer.begin();
        for client in [&clients[2], &clients[3]] {
            client.peer.begin();
            client.peer.end();
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
        drop(listings);
        assert!(connections.lock().listed.is_empty());
    }

    #[test]
    fn an_address_has_its_share_and_no_more() {
        let connections = Arc::new(Connections::new(100, 2));
        let enter = |address: &str| connections.try_acquire(address.parse().unwrap());
        let first = enter("192.0.2.1").unwrap();
        let _second = enter("::ffff:192.0.2.1").unwrap();
        assert!(enter("192.0.2.1").is_none());
        // Another one, and one that left, make no difference to it.
        let _other = enter("192.0.2.2").unwrap();
        drop(first);
        let _third = enter("192.0.2.1").unwrap();
        assert!(enter("192.0.2.1").is_none());
        // An idle connection of its own gives way to a new one, another's does not.
        let (own, other) = (Client::new("192.0.2.1"), Client::new("192.0.2.2"));
        let listings = [own.register(&connections), other.register(&connections)];
        let _fourth = enter("192.0.2.1").unwrap();
        assert_eq!((own.evict.is_cancelled(), other.evict.is_cancelled()), (true, false));
        assert!(enter("192.0.2.1").is_none(), "it gives way once");
        drop(listings);
        // One network of IPv6 is one client.
        let _networks = [enter("2001:db8::1").unwrap(), enter("2001:db8::ffff:1").unwrap()];
        assert!(enter("2001:db8::2:3").is_none());
        assert!(enter("2001:db8:0:1::1").is_some());
    }
}
