//! Bounds the connections on which nobody has proved a key yet. Strangers can open as many as they like.
//!
//! Invariant: a new connection never waits. If there is no room, the oldest one of the same client gives way,
//! or the oldest of all. An agent needs one round trip to prove its key, so it is through before its turn to
//! give way comes.
//!
//! Security: strangers take no room from an agent whose key is known. Such an agent signs its first request
//! (`hello::Introduction`), which admits it to a separate table.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use tollgate_core::address::client_network;
use tollgate_core::agent::AgentKey;

/// Connections of strangers, over all clients and of one. In IPv6 a client is a /64.
pub(crate) const STRANGERS: usize = 256;
pub(crate) const STRANGERS_OF_CLIENT: usize = 16;
/// Connections of agents whose key is known, over all and of one key.
const KNOWN: usize = 4_096;
const KNOWN_OF_KEY: usize = 4;

/// Whom a connection counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Client(IpAddr),
    Key(AgentKey),
}

#[derive(Debug)]
pub(crate) struct Unproved {
    strangers: Mutex<Table>,
    known: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    limit: usize,
    limit_of_owner: usize,
    next: u64,
    /// The oldest first.
    open: BTreeMap<u64, (Owner, CancellationToken)>,
    by_owner: HashMap<Owner, usize>,
}

/// Room for one connection, until dropped.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    table: &'a Mutex<Table>,
    number: u64,
    gives_way: CancellationToken,
}

impl Default for Unproved {
    fn default() -> Self {
        Self {
            strangers: Mutex::new(Table::new(STRANGERS, STRANGERS_OF_CLIENT)),
            known: Mutex::new(Table::new(KNOWN, KNOWN_OF_KEY)),
        }
    }
}

impl Unproved {
    /// Lets strangers have at most this many.
    pub(crate) fn limit_strangers(&self, limit: usize) {
        lock(&self.strangers).limit = limit.clamp(1, STRANGERS);
    }

    /// Makes room for a connection.
    ///
    /// - `key`: the key that signed the first request, if it is known.
    pub(crate) fn enter(&self, address: IpAddr, key: Option<AgentKey>) -> Room<'_> {
        let (table, owner) = match key {
            Some(key) => (&self.known, Owner::Key(key)),
            None => (&self.strangers, Owner::Client(client_network(address))),
        };
        let (number, gives_way) = lock(table).add(owner);
        Room {
            table,
            number,
            gives_way,
        }
    }
}

impl Table {
    fn new(limit: usize, limit_of_owner: usize) -> Self {
        Self {
            limit,
            limit_of_owner,
            next: 0,
            open: BTreeMap::new(),
            by_owner: HashMap::new(),
        }
    }

    fn add(&mut self, owner: Owner) -> (u64, CancellationToken) {
        if self
            .by_owner
            .get(&owner)
            .is_some_and(|open| *open >= self.limit_of_owner)
        {
            let oldest = self.open.iter().find(|(_, (other, _))| *other == owner);
            let oldest = oldest.map(|(number, _)| *number);
            self.give_way(oldest);
        }
        // More than one gives way after the limit was lowered.
        while self.open.len() >= self.limit {
            let oldest = self.open.first_key_value().map(|(number, _)| *number);
            self.give_way(oldest);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        let gives_way = CancellationToken::new();
        self.open.insert(number, (owner, gives_way.clone()));
        let open = self.by_owner.entry(owner).or_default();
        *open = open.saturating_add(1);
        (number, gives_way)
    }

    fn give_way(&mut self, number: Option<u64>) {
        if let Some(gives_way) = number.and_then(|number| self.remove(number)) {
            gives_way.cancel();
        }
    }

    fn remove(&mut self, number: u64) -> Option<CancellationToken> {
        let (owner, gives_way) = self.open.remove(&number)?;
        if let Some(open) = self.by_owner.get_mut(&owner) {
            *open = open.saturating_sub(1);
            if *open == 0 {
                self.by_owner.remove(&owner);
            }
        }
        Some(gives_way)
    }
}

impl Room<'_> {
    /// Waits until the connection has to give way to another one.
    pub(crate) async fn gives_way(&self) {
        self.gives_way.cancelled().await;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        lock(self.table).remove(self.number);
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use super::{KNOWN_OF_KEY, STRANGERS, STRANGERS_OF_CLIENT, Unproved, lock};
    use tollgate_core::agent::AgentKey;

    fn address(network: u64, host: u64) -> IpAddr {
        Ipv6Addr::from_bits((u128::from(network) << 64) | u128::from(host)).into()
    }

    #[test]
    fn a_client_displaces_its_own_oldest_connection_and_no_other() {
        let unproved = Unproved::default();
        let other = unproved.enter(address(1, 1), None);
        let rooms: Vec<_> = (0..=STRANGERS_OF_CLIENT)
            .map(|host| unproved.enter(address(2, u64::try_from(host).unwrap()), None))
            .collect();
        assert!(!other.gives_way.is_cancelled());
        let gone: Vec<bool> = rooms.iter().map(|room| room.gives_way.is_cancelled()).collect();
        assert_eq!(gone.iter().filter(|gone| **gone).count(), 1);
        assert!(gone[0]);
        drop((rooms, other));
        assert!(lock(&unproved.strangers).open.is_empty());
        assert!(lock(&unproved.strangers).by_owner.is_empty());
    }

    #[test]
    fn strangers_displace_one_another_and_no_agent_whose_key_is_known() {
        let unproved = Unproved::default();
        let key = AgentKey::new([7; 32]);
        let agent = unproved.enter(address(1, 1), Some(key));
        let rooms: Vec<_> = (0..1_000)
            .map(|network| unproved.enter(address(network, 1), None))
            .collect();
        let open = rooms.iter().filter(|room| !room.gives_way.is_cancelled()).count();
        assert_eq!(open, STRANGERS);
        assert!(!rooms[999].gives_way.is_cancelled());
        assert!(!agent.gives_way.is_cancelled());
        // One key has no more than its own.
        let again: Vec<_> = (0..KNOWN_OF_KEY)
            .map(|_| unproved.enter(address(1, 1), Some(key)))
            .collect();
        assert!(agent.gives_way.is_cancelled());
        assert!(again.iter().all(|room| !room.gives_way.is_cancelled()));
        unproved.limit_strangers(10);
        let _last = unproved.enter(address(5_000, 1), None);
        assert_eq!(lock(&unproved.strangers).open.len(), 10);
    }
}
