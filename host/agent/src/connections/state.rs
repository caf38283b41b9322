//! Which keys are known, and which connections are open. All of it changes under one lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http2::SendRequest;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{ConnectionError, JoinedKeys};
use crate::peers::Peers;
use crate::registry::{AgentIdentity, RegistryError};
use crate::request::RequestBody;
use crate::status::AgentStatus;
use crate::traffic::Traffic;
use tollgate_core::agent::{AgentKey, ClusterAgent};

/// Longer than it takes to read which agents have joined.
const RECENT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct State {
    /// What the Secrets of clusters say, by server.
    clusters: HashMap<Arc<str>, ClusterAgent>,
    pub(super) joined: JoinedKeys,
    /// Keys that joined just now, which a list that was read meanwhile may not have.
    recent: Vec<(AgentKey, Arc<str>, Instant)>,
    /// The server of each key that is known, from both.
    known: HashMap<AgentKey, Arc<str>>,
    /// Connections by the server of their cluster.
    open: HashMap<Arc<str>, Vec<Arc<Connection>>>,
    /// The same, by their id.
    sessions: HashMap<Uuid, Arc<Connection>>,
    pub(super) is_draining: bool,
    pub(super) is_registry_away: bool,
    /// How often [`Self::known`] was derived anew, which takes time for each known key.
    #[cfg(test)]
    refreshes: usize,
}

#[derive(derive_more::Debug)]
pub(super) struct Connection {
    /// Its id, for other replicas.
    pub(super) session: Uuid,
    /// The agent's process.
    pub(super) instance: Uuid,
    identity: Mutex<AgentIdentity>,
    since: Timestamp,
    #[debug(skip)]
    pub(super) sender: SendRequest<RequestBody>,
    pub(super) streams: Arc<AtomicUsize>,
    traffic: Arc<Traffic>,
    /// In microseconds.
    latency: AtomicU64,
    end: CancellationToken,
}

impl State {
    pub(super) fn set_clusters(&mut self, clusters: HashMap<Arc<str>, ClusterAgent>) {
        self.clusters = clusters;
        self.refresh();
    }

    pub(super) fn set_joined(&mut self, joined: JoinedKeys) {
        self.joined = joined;
        self.recent.retain(|(_, _, at)| at.elapsed() < RECENT);
        for (key, server, _) in &self.recent {
            let servers = &mut self.joined.servers;
            servers.entry(*key).or_insert_with(|| Arc::clone(server));
        }
        self.refresh();
    }

    pub(super) fn add_joined(&mut self, key: AgentKey, server: Arc<str>) {
        self.recent.push((key, Arc::clone(&server), Instant::now()));
        let before = self.joined.servers.insert(key, Arc::clone(&server));
        let is_moved = before.is_some_and(|before| before != server);
        match self.clusters.contains_key(&server) && !is_moved && !self.joined.revoked.contains(&key) {
            // The others stay as they are. Thousands may join at once.
            true => {
                self.known.entry(key).or_insert(server);
            }
            false => self.refresh(),
        }
    }

    /// The cluster that an agent which is refused claims to be of: by its key, else by its token.
    pub(super) fn claimed_server(&self, key: &AgentKey, token: Option<&[u8; 32]>) -> Option<Arc<str>> {
        let known = self.known.get(key).map(Arc::clone);
        known.or_else(|| Some(self.find_token(token?)?.0))
    }

    /// Derives the known keys, and ends the connections of all others.
    // SECURITY: a key that two clusters name would let the agent of one answer for the other, so that only the
    // first has it. A revoked key is not known, regardless of which cluster names it.
    fn refresh(&mut self) {
        #[cfg(test)]
        {
            self.refreshes += 1;
        }
        let mut known = HashMap::new();
        let mut servers: Vec<_> = self.clusters.iter().collect();
        // In the order of a map, each replica could find another cluster first.
        servers.sort_by_key(|(server, _)| *server);
        for (server, agent) in servers {
            for key in &agent.keys {
                known.entry(*key).or_insert_with(|| Arc::clone(server));
            }
        }
        for (key, server) in &self.joined.servers {
            // A cluster that has no agent any more has none that joined either.
            if let Some((server, _)) = self.clusters.get_key_value(server) {
                known.entry(*key).or_insert_with(|| Arc::clone(server));
            }
        }
        known.retain(|key, _| !self.joined.revoked.contains(key));
        self.known = known;
        for (server, connections) in &mut self.open {
            connections.retain(|connection| {
                let is_known = self.known.get(&connection.key()) == Some(server);
                if !is_known {
                    tracing::info!(key = %connection.key(), %server, "the key of a connector is not known any more: it is disconnected");
                    connection.end();
                }
                is_known
            });
        }
        self.open.retain(|_, connections| !connections.is_empty());
        let open = self.open.values().flatten();
        self.sessions = open.map(|one| (one.session, Arc::clone(one))).collect();
    }

    pub(super) fn has_clusters(&self) -> bool {
        !self.clusters.is_empty()
    }

    pub(super) fn is_known(&self, key: &AgentKey) -> bool {
        self.known.contains_key(key)
    }

    /// The server of the cluster with this token, and when the token expires.
    pub(super) fn find_token(&self, sha256: &[u8; 32]) -> Option<(Arc<str>, Timestamp)> {
        let mut clusters = self.clusters.iter();
        clusters.find_map(|(server, agent)| {
            let token = agent.join_token.as_ref().filter(|token| token.sha256 == *sha256)?;
            Some((Arc::clone(server), token.expires_at))
        })
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.open.values().flatten()
    }

    /// How many connections there are, by the server of their cluster.
    pub(super) fn counts_by_server(&self) -> HashMap<Arc<str>, usize> {
        let count = |(server, connections): (&Arc<str>, &Vec<_>)| (Arc::clone(server), connections.len());
        self.open.iter().map(count).collect()
    }

    /// The connection with this id.
    pub(super) fn of_session(&self, session: Uuid) -> Option<&Arc<Connection>> {
        self.sessions.get(&session)
    }

    /// The connections of the cluster with this server.
    pub(super) fn of_server(&self, server: &str) -> &[Arc<Connection>] {
        self.open.get(server).map_or(&[], Vec::as_slice)
    }

    /// Adds a connection. It replaces an earlier one of the same process.
    pub(super) fn open(&mut self, connection: Connection, peers: &Peers) -> Result<Arc<Connection>, ConnectionError> {
        let key = connection.key();
        let server = self.known.get(&key).ok_or(ConnectionError::UnknownKey(key))?;
        let is_joined = self.joined.servers.contains_key(&key);
        if is_joined && self.is_registry_away {
            return Err(RegistryError::Unavailable.into());
        }
        let allowed = self.clusters.get(server).map_or(0, |agent| agent.processes);
        let others = self.open.entry(Arc::clone(server)).or_default();
        others.retain(|other| {
            let is_same = other.instance == connection.instance;
            if is_same {
                // The agent came back before the gateway noticed that it was gone.
                other.end();
            }
            let stays = !is_same && !other.sender.is_closed();
            if !stays {
                self.sessions.remove(&other.session);
            }
            stays
        });
        let mut processes: Vec<_> = others
            .iter()
            .map(|other| {
                let AgentIdentity { key, address, .. } = other.identity();
                (other.instance, key, address)
            })
            .collect();
        processes.extend(peers.processes(server));
        processes.sort_unstable_by_key(|(instance, ..)| *instance);
        processes.dedup_by_key(|(instance, ..)| *instance);
        // A process has connections to several replicas, and may have been the one that came back.
        processes.retain(|(instance, ..)| *instance != connection.instance);
        if let Some((_, key, address)) = processes.first().filter(|_| processes.len() >= allowed) {
            let (key, address) = (*key, *address);
            return Err(ConnectionError::Connected { key, address });
        }
        connection.lock().server = Some(Arc::clone(server));
        let connection = Arc::new(connection);
        others.push(Arc::clone(&connection));
        self.sessions.insert(connection.session, Arc::clone(&connection));
        Ok(connection)
    }

    pub(super) fn remove(&mut self, connection: &Arc<Connection>) {
        self.sessions.remove(&connection.session);
        let Some(server) = connection.identity().server else {
            return;
        };
        if let Some(connections) = self.open.get_mut(&server) {
            connections.retain(|other| !Arc::ptr_eq(other, connection));
            if connections.is_empty() {
                self.open.remove(&server);
            }
        }
    }

    /// Knows the agent of a connection by another key.
    pub(super) fn change_key(&mut self, connection: &Connection, new: AgentKey) {
        let server = connection.identity().server;
        connection.lock().key = new;
        if let Some(server) = server {
            self.add_joined(new, server);
        }
    }
}

impl Connection {
    pub(super) fn new(
        identity: AgentIdentity,
        instance: Uuid,
        sender: SendRequest<RequestBody>,
        traffic: Arc<Traffic>,
        end: CancellationToken,
    ) -> Self {
        Self {
            session: Uuid::new_v4(),
            instance,
            identity: Mutex::new(identity),
            since: Timestamp::now(),
            sender,
            streams: Arc::default(),
            traffic,
            latency: AtomicU64::new(0),
            end,
        }
    }

    fn lock(&self) -> MutexGuard<'_, AgentIdentity> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn identity(&self) -> AgentIdentity {
        self.lock().clone()
    }

    pub(super) fn key(&self) -> AgentKey {
        self.lock().key
    }

    pub(super) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.end.cancel();
    }

    pub(super) async fn ended(&self) {
        self.end.cancelled().await;
    }

    pub(super) fn set_latency(&self, latency: Duration) {
        let microseconds = latency.as_micros().try_into().unwrap_or(u64::MAX);
        self.latency.store(microseconds, Ordering::Relaxed);
    }

    pub(super) fn status(&self, replica: Uuid) -> Option<AgentStatus> {
        let identity = self.identity();
        let latency = Duration::from_micros(self.latency.load(Ordering::Relaxed));
        Some(AgentStatus {
            key: identity.key,
            server: identity.server?,
            cluster: identity.cluster,
            version: identity.version,
            address: identity.address,
            replica,
            connected_since: self.since,
            last_seen: Some(self.traffic.last_received()),
            latency_ms: Some(latency.as_secs_f64() * 1_000.0),
            streams: Some(self.streams()),
            received_bytes: Some(self.traffic.received()),
            sent_bytes: Some(self.traffic.sent()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> AgentKey {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        AgentKey::new(bytes)
    }

    fn server(number: u32) -> Arc<str> {
        format!("https://{number}").into()
    }

    #[test]
    fn agents_that_join_do_not_have_all_keys_derived_anew() {
        let mut state = State::default();
        let cluster = || ClusterAgent {
            keys: Vec::new(),
            processes: 1,
            join_token: None,
        };
        state.set_clusters((0..1_000).map(|number| (server(number), cluster())).collect());
        let before = state.refreshes;
        for number in 0..1_000 {
            state.add_joined(key(number), server(number));
        }
        assert_eq!(state.refreshes, before);
        assert_eq!(state.known.len(), 1_000);
        assert_eq!(state.known[&key(7)], server(7));
        // What a whole derivation gives is the same.
        let known = state.known.clone();
        state.refresh();
        assert_eq!(state.known, known);

        // A key that the registry moves is derived anew.
        state.add_joined(key(7), server(8));
        assert_eq!(state.refreshes, before + 2);
        assert_eq!(state.known[&key(7)], server(8));
        // A cluster without an agent has none, and a revoked key is not known.
        state.add_joined(key(2_000), server(2_000));
        assert!(!state.is_known(&key(2_000)));
        state.joined.revoked.insert(key(3_000));
        state.add_joined(key(3_000), server(3));
        assert!(!state.is_known(&key(3_000)));
    }
}
