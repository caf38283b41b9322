//! Connectors of clusters: the store has those that joined, and replicas tell one another which of them are
//! connected. Connects and disconnects are audited.
//!
//! Invariant: open connections survive a store outage. Joined connectors cannot reconnect until the store is back,
//! because their keys may have been revoked.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, try_join_all};
use http::{Response, Uri, request};
use jiff::SignedDuration;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use url::Url;
use uuid::Uuid;

use tollgate_front::{Front, RequestContext, Services};

use tollgate_agent::connections::JoinedKeys;
use tollgate_agent::peers::{CertificateHash, RemoteAgent, Replica, ReplicaKey};
use tollgate_agent::registry::{AgentEvent, AgentIdentity, Expected, JoinRequest, Registry, RegistryError};
use tollgate_agent::status::AgentStatus;
use tollgate_agent::{Connections, peer_listener};
use tollgate_config::{Config, PeerSettings};
use tollgate_core::agent::AgentKey;
use tollgate_front::Denial;
use tollgate_front::path::{Captures, Methods, Path};
use tollgate_identity::clock::Clock;
use tollgate_proxy::agents::accept;
use tollgate_proxy::forward::Body;
use tollgate_proxy::metrics::Metrics;
use tollgate_proxy::target;
use tollgate_store::{self as store, JoinOutcome, Store, StoredConnection, StoredReplica};

/// How often the store is asked whether anything changed.
const POLL: Duration = Duration::from_millis(500);

/// How often everything is read again anyway, since keys expire.
const REREAD: Duration = Duration::from_secs(60);

/// How often a replica says that it lives, and for how long that counts.
const RENEW: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(15);

/// How long a key stays good when another one has taken its place.
const OVERLAP: SignedDuration = SignedDuration::from_hours(24);

/// Most writes to the store at a time; it commits those together.
const WRITES: usize = 64;

/// Connections on which nobody has proved a key are at most this fraction of `limits.connections`.
const UNPROVED_DIVISOR: usize = 4;

/// Rows in the audit log in a minute about one agent, about the strangers who have a token of one cluster, and
/// about all others.
const ROWS_PER_KEY: u32 = 20;
const ROWS_OF_STRANGERS: u32 = 60;
const ROWS_PERIOD: Duration = Duration::from_secs(60);

/// Where connectors of clusters connect.
#[derive(Debug)]
pub struct AgentsFront(Arc<Connections>);

impl Front for AgentsFront {
    const NAME: &'static str = "agents";
    const PATHS: &'static [Path<()>] = &[Path::new(Methods::Get, &[tollgate_agent::CONNECT_PATH], &[], ())];

    type Endpoint = ();
    type Target = ();

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(Some(Self(Arc::clone(&services.agents))))
    }

    fn target((): (), _: &Captures<'_>, _: &Uri) -> Result<Option<()>, target::Error> {
        Ok(Some(()))
    }

    /// A connector proves who it is within the connection.
    async fn serve(
        self: &Arc<Self>,
        (): (),
        context: RequestContext<'_>,
        (mut head, _): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        let Self(connections) = &**self;
        // Without a cluster that has an agent, strangers would be the only ones who connect.
        if !connections.expects_agents() {
            return Err(Denial::not_found());
        }
        Ok(accept(&mut head, context.client, connections)?)
    }
}

/// Remembers agents, and records what they do.
#[derive(Debug)]
pub(crate) struct AgentRegistry {
    /// `None` without the section `connectors`.
    store: Option<Arc<Store>>,
    clock: Clock,
    metrics: Arc<Metrics>,
    changed: Arc<Notify>,
    rows: Mutex<RowLimit>,
}

/// Counts rows, so that nobody fills the disk.
#[derive(Debug)]
struct RowLimit {
    since: Instant,
    rows: HashMap<RowOwner, u32>,
}

/// Whom rows are counted for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RowOwner {
    /// An agent that is known.
    Agent(AgentKey),
    /// Those who were refused with a key or a token of the cluster with this server.
    RefusedFor(Arc<str>),
    /// Everybody else.
    Strangers,
}

impl RowLimit {
    fn try_take(&mut self, owner: RowOwner) -> bool {
        if self.since.elapsed() > ROWS_PERIOD {
            self.since = Instant::now();
            self.rows.clear();
        }
        let most = match owner {
            RowOwner::Agent(_) => ROWS_PER_KEY,
            // Clusters are as many as the operator has.
            RowOwner::RefusedFor(_) | RowOwner::Strangers => ROWS_OF_STRANGERS,
        };
        let rows = self.rows.entry(owner).or_default();
        *rows = rows.saturating_add(1);
        *rows <= most
    }
}

/// What an event says about an agent.
///
/// - `more`: a detail of the event, if it has one.
fn details(agent: &AgentIdentity, more: Option<(&str, String)>) -> serde_json::Value {
    let mut details = json!({
        "key": agent.key.to_string(),
        "server": agent.server,
        "claimed_cluster": agent.cluster,
        "version": agent.version,
        "client": agent.address,
    });
    if let (Some(members), Some((name, value))) = (details.as_object_mut(), more) {
        members.insert(name.to_owned(), value.into());
    }
    details
}

fn unavailable(error: &store::Error) -> RegistryError {
    tracing::error!(%error, "a connector cannot be remembered");
    RegistryError::Unavailable
}

impl Registry for AgentRegistry {
    fn join(&self, request: JoinRequest) -> BoxFuture<'_, Result<(), RegistryError>> {
        Box::pin(async move {
            let store = self.store.as_ref().ok_or(RegistryError::Closed)?;
            let JoinRequest { agent, server, token } = request;
            let agent = AgentIdentity {
                server: Some(Arc::clone(&server)),
                ..agent
            };
            let joined = store
                .join_agent(agent.key, &server, token, self.clock.now(), details(&agent, None))
                .await;
            // Even after an error: the store may have the change although its answer was lost.
            self.changed.notify_one();
            match joined.map_err(|error| unavailable(&error))? {
                JoinOutcome::Joined => Ok(()),
                JoinOutcome::TokenSpent => Err(RegistryError::TokenSpent),
                JoinOutcome::KeyUnusable => Err(RegistryError::Key),
            }
        })
    }

    fn replace(&self, agent: AgentIdentity, new: AgentKey) -> BoxFuture<'_, Result<(), RegistryError>> {
        Box::pin(async move {
            let store = self.store.as_ref().ok_or(RegistryError::Closed)?;
            let now = self.clock.now();
            let until = now.checked_add(OVERLAP).unwrap_or(now);
            let details = details(&agent, Some(("new_key", new.to_string())));
            let replaced = store
                .replace_agent_key(agent.key, new, now, until, details)
                .await
                .map_err(|error| unavailable(&error))?;
            self.changed.notify_one();
            match replaced {
                true => Ok(()),
                false => Err(RegistryError::Key),
            }
        })
    }

    fn count_refusal(&self, expected: Expected, reason: &'static str) {
        let event = match expected {
            Expected::Agent => "agent.refused",
            Expected::Replica => "replica.refused",
        };
        self.metrics.count_connector_event(event, reason);
    }

    fn record(&self, event: AgentEvent, agent: AgentIdentity) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (action, reason) = match event {
                AgentEvent::Connected => ("agent.connected", None),
                AgentEvent::Disconnected { reason } => ("agent.disconnected", Some(reason)),
                AgentEvent::Refused { reason } => ("agent.refused", Some(reason)),
            };
            self.metrics.count_connector_event(action, reason.unwrap_or("ok"));
            self.changed.notify_one();
            let Some(store) = &self.store else { return };
            let owner = match (event, &agent.server) {
                // Not by key: a stranger can make a new one for each attempt.
                (AgentEvent::Refused { .. }, Some(server)) => RowOwner::RefusedFor(Arc::clone(server)),
                (_, Some(_)) => RowOwner::Agent(agent.key),
                (_, None) => RowOwner::Strangers,
            };
            let has_row = self.rows.lock().unwrap_or_else(PoisonError::into_inner).try_take(owner);
            if !has_row {
                return;
            }
            let details = details(&agent, reason.map(|reason| ("reason", reason.to_owned())));
            if let Err(error) = store.record_agent(action, self.clock.now(), details).await {
                tracing::error!(%error, action, key = %agent.key, "an event about a connector could not be recorded");
            }
        })
    }
}

/// How this process takes part among its peers.
struct Membership {
    replica: StoredReplica,
    renewed_at: Option<Instant>,
    /// Connections that the store has.
    written: HashSet<Uuid>,
}

struct Follower {
    store: Arc<Store>,
    clock: Clock,
    connections: Weak<Connections>,
    changed: Arc<Notify>,
    grace: Duration,
    membership: Option<Membership>,
    /// What was read last, and when.
    read: Option<(i64, Instant)>,
    answered_at: Instant,
    is_away: bool,
}

/// Remembers agents in the store, if there is one, and finds the other replicas, if the settings say how.
///
/// - `is_awaited`: reports an error of the store, and returns whether the start waits for it to pass.
///
/// # Errors
/// The listener of peers cannot be opened, or the store fails for good.
pub async fn start(
    config: &Config,
    store: Option<&Arc<Store>>,
    connections: &Arc<Connections>,
    metrics: &Arc<Metrics>,
    clock: &Clock,
    is_awaited: &(dyn Fn(&store::Error) -> bool + Sync),
    helpers: &mut JoinSet<()>,
) -> anyhow::Result<Option<SocketAddr>> {
    // Strangers never hold more than a share of the connections.
    connections.limit_unproved(config.limits.connections / UNPROVED_DIVISOR);
    let store = store.filter(|_| config.connectors.is_some());
    let changed = Arc::<Notify>::default();
    connections.set_registry(Arc::new(AgentRegistry {
        store: store.cloned(),
        clock: clock.clone(),
        metrics: Arc::clone(metrics),
        changed: Arc::clone(&changed),
        rows: Mutex::new(RowLimit {
            since: Instant::now(),
            rows: HashMap::new(),
        }),
    }));
    let (Some(settings), Some(store)) = (&config.connectors, store) else {
        return Ok(None);
    };
    let mut address = None;
    let membership = match &settings.peers {
        Some(peers) => {
            let (member, listening) = listen(peers, connections, config.drain, helpers).await?;
            address = Some(listening);
            Some(member)
        }
        None => None,
    };
    let mut follower = Follower {
        store: Arc::clone(store),
        clock: clock.clone(),
        // Weak, so that this task keeps no connection open.
        connections: Arc::downgrade(connections),
        changed,
        grace: config.store.grace_period,
        membership,
        read: None,
        answered_at: Instant::now(),
        is_away: false,
    };
    // Before the first agent comes, those that joined are known.
    while let Err(error) = follower.step(connections).await {
        anyhow::ensure!(is_awaited(&error), error);
        tokio::time::sleep(POLL).await;
    }
    helpers.spawn(follower.run());
    Ok(address)
}

async fn listen(
    settings: &PeerSettings,
    connections: &Arc<Connections>,
    drain: Duration,
    helpers: &mut JoinSet<()>,
) -> anyhow::Result<(Membership, SocketAddr)> {
    let failed = |error| {
        anyhow::anyhow!(
            "`connectors.peers.listen` {} cannot be listened on: {error}",
            settings.listen
        )
    };
    let listener = TcpListener::bind(settings.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let url = match &settings.url {
        Some(url) => url.clone(),
        // `0.0.0.0` is where to listen, and no address that a peer could dial.
        None if address.ip().is_unspecified() => anyhow::bail!(
            "`connectors.peers.listen` is {address}, and nothing says how other replicas reach it: set \
             `connectors.peers.url`, `--peer-url` or `TOLLGATE_PEER_URL`"
        ),
        None => Url::parse(&format!("https://{address}"))?,
    };
    let own_key = Arc::new(ReplicaKey::generate()?);
    connections.peers.set_key(Arc::clone(&own_key));
    let replica = StoredReplica {
        id: connections.replica,
        url: url.to_string(),
        certificate: own_key.certificate().0,
    };
    tracing::info!(listen = %address, %url, replica = %replica.id, "listening for other replicas");
    let serving = peer_listener::serve(listener, own_key, Arc::clone(connections), drain);
    helpers.spawn(async move {
        let Err(error) = serving.await;
        tracing::error!(%error, "other replicas cannot be served");
    });
    let membership = Membership {
        replica,
        renewed_at: None,
        written: HashSet::new(),
    };
    Ok((membership, address))
}

/// Tells the other replicas that this one takes no requests for its agents any more.
pub async fn leave(store: &Store, connections: &Connections) {
    if let Err(error) = store.remove_replica(connections.replica).await {
        tracing::warn!(%error, "other replicas learn only from the end of the lease that this one stops");
    }
}

impl Follower {
    async fn run(mut self) {
        loop {
            // A change of this replica is written at once. Those of others show by asking.
            let _ = timeout(POLL, self.changed.notified()).await;
            let Some(connections) = self.connections.upgrade() else {
                return;
            };
            match self.step(&connections).await {
                Ok(()) => {
                    if std::mem::take(&mut self.is_away) {
                        tracing::info!("the store answers again");
                    }
                    self.answered_at = Instant::now();
                    connections.set_registry_available(true);
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.is_away, true) {
                        tracing::error!(%error, "the store cannot be read: connectors that are connected are served, those that joined are not let in anew");
                    }
                    if self.answered_at.elapsed() >= self.grace {
                        connections.set_registry_available(false);
                    }
                    // Otherwise every event of an agent would ask a store that does not answer.
                    tokio::time::sleep(POLL).await;
                }
            }
        }
    }

    async fn step(&mut self, connections: &Connections) -> Result<(), store::Error> {
        // The lease first, because connections of a replica without one are deleted.
        if let Some(membership) = &mut self.membership {
            membership.renew(&self.store).await?;
            membership.write(&self.store, connections).await?;
        }
        // Before the reads: a change between them is then read once more, rather than missed.
        let version = self.store.agent_version().await?;
        let is_current = |(read, at): (i64, Instant)| read == version && at.elapsed() < REREAD;
        if !self.read.is_some_and(is_current) {
            self.read_keys(connections).await?;
            self.read_peers(connections).await?;
            self.read = Some((version, Instant::now()));
        }
        Ok(())
    }

    async fn read_keys(&self, connections: &Connections) -> Result<(), store::Error> {
        let now = self.clock.now();
        let mut joined = JoinedKeys::default();
        for stored in self.store.agent_keys().await? {
            if stored.revoked_at.is_some() {
                joined.revoked.insert(stored.key);
            } else if stored.expires_at.is_none_or(|end| end > now) {
                joined.servers.insert(stored.key, Arc::from(stored.server));
            }
        }
        connections.set_joined(joined);
        Ok(())
    }

    async fn read_peers(&self, connections: &Connections) -> Result<(), store::Error> {
        let Some(membership) = &self.membership else {
            return Ok(());
        };
        let own = membership.replica.id;
        let replicas = self.store.replicas().await?.into_iter();
        let replicas: Vec<Replica> = replicas
            .filter(|one| one.id != own)
            .filter_map(|stored| peer(&stored))
            .collect();
        let agents = self
            .store
            .remote_agents(own)
            .await?
            .into_iter()
            .map(remote_agent)
            .collect();
        let before = connections.peers.replicas();
        connections.peers.set(replicas, agents);
        if connections.peers.replicas() != before {
            connections.inform();
        }
        Ok(())
    }
}

impl Membership {
    async fn renew(&mut self, store: &Store) -> Result<(), store::Error> {
        if self.renewed_at.is_some_and(|at| at.elapsed() < RENEW) {
            return Ok(());
        }
        // From before the call, because the lease may run from any time within it.
        let begun = Instant::now();
        if store.renew_replica(&self.replica, LEASE).await? {
            // Others have forgotten its connections with it.
            self.written.clear();
        }
        self.renewed_at = Some(begun);
        Ok(())
    }

    /// Writes which connections are new, and which have ended.
    async fn write(&mut self, store: &Store, connections: &Connections) -> Result<(), store::Error> {
        let (new, ended) = connections.changes_since(&self.written);
        let new: Vec<StoredConnection> = new.into_iter().map(stored).collect();
        for chunk in new.chunks(WRITES) {
            try_join_all(chunk.iter().map(|connection| store.add_agent_connection(connection))).await?;
            // After each chunk. One that failed is written again, which the store accepts.
            self.written.extend(chunk.iter().map(|connection| connection.id));
        }
        for chunk in ended.chunks(WRITES) {
            try_join_all(chunk.iter().map(|id| store.remove_agent_connection(*id))).await?;
            chunk.iter().for_each(|id| {
                self.written.remove(id);
            });
        }
        Ok(())
    }
}

fn peer(stored: &StoredReplica) -> Option<Replica> {
    Some(Replica {
        id: stored.id,
        // Another replica wrote it. One that cannot be reached must not hide the others.
        url: Url::parse(&stored.url).ok()?,
        certificate: CertificateHash(stored.certificate),
    })
}

fn stored(agent: RemoteAgent) -> StoredConnection {
    let RemoteAgent {
        session,
        instance,
        status,
    } = agent;
    StoredConnection {
        id: session,
        replica: status.replica,
        instance,
        key: status.key,
        server: status.server.to_string(),
        cluster: status.cluster,
        version: status.version,
        address: status.address,
        connected_at: status.connected_since,
    }
}

fn remote_agent(stored: StoredConnection) -> RemoteAgent {
    RemoteAgent {
        session: stored.id,
        instance: stored.instance,
        status: AgentStatus {
            key: stored.key,
            server: Arc::from(stored.server),
            cluster: stored.cluster,
            version: stored.version,
            address: stored.address,
            replica: stored.replica,
            connected_since: stored.connected_at,
            // Only the replica that holds the connection knows these.
            last_seen: None,
            latency_ms: None,
            streams: None,
            received_bytes: None,
            sent_bytes: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::{ROWS_OF_STRANGERS, RowLimit, RowOwner};
    use tollgate_core::agent::AgentKey;

    #[test]
    fn strangers_displace_no_row_about_a_known_token_or_agent() {
        let mut limit = RowLimit {
            since: Instant::now(),
            rows: HashMap::new(),
        };
        let taken = (0..1_000).filter(|_| limit.try_take(RowOwner::Strangers)).count();
        assert_eq!(u32::try_from(taken), Ok(ROWS_OF_STRANGERS));
        let cluster = |name: &str| RowOwner::RefusedFor(Arc::from(name));
        assert!(limit.try_take(cluster("https://prod")));
        // A caller who has the token of one cluster displaces that cluster's rows alone.
        let taken = (0..1_000).filter(|_| limit.try_take(cluster("https://prod"))).count();
        assert_eq!(u32::try_from(taken), Ok(ROWS_OF_STRANGERS - 1));
        assert!(limit.try_take(cluster("https://other")));
        assert!(limit.try_take(RowOwner::Agent(AgentKey::new([1; 32]))));
    }
}
