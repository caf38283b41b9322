//! Agents of clusters that joined, and the replicas of the gateway that they are connected to.
//!
//! Every change of them counts up a version, so that replicas read them again only then.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::any::AnyRow;
use uuid::Uuid;

use crate::audit_row::{AuditRow, agent_event};
use crate::change::{Change, ROWS_PER_TRANSACTION};
use crate::database::{DatabaseKind, Purpose};
use crate::query::{ROWS, SelectQuery, Statement, Value, invalid_column, number, read, time, time_opt, uuid};
use crate::{Actor, Error, Store, bounds};
use tollgate_core::agent::AgentKey;

/// An agent's key that the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAgentKey {
    /// The public half.
    pub key: AgentKey,
    /// The server of the cluster that it is for.
    pub server: String,
    /// When the agent joined with it, or put it in the place of another.
    pub joined_at: Timestamp,
    /// When it ends, because another one took its place.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// How an attempt to join ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinOutcome {
    /// The key is one of the cluster now, or was before by the same token.
    Joined,
    /// Another key joined with the token.
    TokenSpent,
    /// The key was revoked, joined with another token, or is of another cluster.
    KeyUnusable,
}

/// A process of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReplica {
    /// Its id.
    pub id: Uuid,
    /// Where it listens for its peers.
    pub url: String,
    /// SHA-256 of its certificate.
    pub certificate: [u8; 32],
}

/// An agent that is connected to a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredConnection {
    /// Its id.
    pub id: Uuid,
    /// The replica.
    pub replica: Uuid,
    /// The agent's process.
    pub instance: Uuid,
    /// The key that it proved.
    pub key: AgentKey,
    /// The server of its cluster.
    pub server: String,
    /// The cluster's name, as the agent says.
    pub cluster: String,
    /// The agent's version.
    pub version: String,
    /// The address that it came from.
    pub address: IpAddr,
    /// Since when.
    pub connected_at: Timestamp,
}

const CHANGED: &str = "UPDATE agent_changes SET version = version + 1 WHERE id = 1";

fn key_value(key: &AgentKey) -> Value {
    key.as_bytes().to_vec().into()
}

fn changed() -> Statement {
    Statement::new(CHANGED, [])
}

impl Store {
    /// Lets an agent join a cluster: spends the token, and remembers the key. Adds the audit event
    /// `agent.joined`.
    ///
    /// - `server`: of the cluster. `token`: SHA-256 of the token.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Character`].
    pub async fn join_agent(
        &self,
        key: AgentKey,
        server: &str,
        token: [u8; 32],
        at: Timestamp,
        details: serde_json::Value,
    ) -> Result<JoinOutcome, Error> {
        bounds::check("server", server, bounds::SERVER)?;
        // Whichever of two agents with one token comes first, has it.
        let insert = Statement::new(
            "INSERT INTO agent_keys (public_key, server, join_token, joined_at) VALUES ($1, $2, $3, $4) \
             ON CONFLICT DO NOTHING",
            [key_value(&key), server.into(), token.to_vec().into(), at.into()],
        );
        let event = agent_event("agent.joined", at, None, details)?;
        if self.change_agents(insert, vec![], Some(event)).await? {
            return Ok(JoinOutcome::Joined);
        }
        let query = SelectQuery::new("SELECT server, join_token, expires_at, revoked_at FROM agent_keys")
            .and("public_key =", Some(key_value(&key)));
        let rows = query.fetch(&self.database, Purpose::Lookup, "joined_at", 1).await?;
        let Some(row) = rows.first() else {
            return Ok(JoinOutcome::TokenSpent);
        };
        let joined_with: Option<Vec<u8>> = read(row, "join_token")?;
        let is_good = read::<String>(row, "server")? == server
            && time_opt(row, "revoked_at")?.is_none()
            && time_opt(row, "expires_at")?.is_none_or(|end| end > at);
        // The same key with the same token is an agent that asks again, because the answer was lost.
        Ok(match joined_with.as_deref() == Some(&token[..]) {
            true if is_good => JoinOutcome::Joined,
            true | false => JoinOutcome::KeyUnusable,
        })
    }

    /// Puts a key in the place of another one, which stays good until `until`. Adds the audit event
    /// `agent.key_replaced`. Returns whether the old key is good, or the new one took its place before.
    pub async fn replace_agent_key(
        &self,
        old: AgentKey,
        new: AgentKey,
        at: Timestamp,
        until: Timestamp,
        details: serde_json::Value,
    ) -> Result<bool, Error> {
        let insert = Statement::new(
            "INSERT INTO agent_keys (public_key, server, joined_at) SELECT $1, server, $2 FROM agent_keys \
             WHERE public_key = $3 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2) \
             ON CONFLICT DO NOTHING",
            [key_value(&new), at.into(), key_value(&old)],
        );
        let end = Statement::new(
            // Only once: another replacement must not let the old key live longer.
            "UPDATE agent_keys SET expires_at = $1 WHERE public_key = $2 AND expires_at IS NULL",
            [until.into(), key_value(&old)],
        );
        let event = agent_event("agent.key_replaced", at, None, details)?;
        if self.change_agents(insert, vec![end], Some(event)).await? {
            return Ok(true);
        }
        let keys = self.agent_keys().await?;
        let of = |key: AgentKey| keys.iter().find(|stored| stored.key == key);
        Ok(of(old)
            .zip(of(new))
            .is_some_and(|(old, new)| old.server == new.server && new.revoked_at.is_none() && old.revoked_at.is_none()))
    }

    /// Revokes the key of an agent that joined. Adds the audit event `agent.key_revoked`. Returns whether there
    /// was one that was not revoked yet.
    ///
    /// - `server`: of its cluster.
    pub async fn revoke_agent_key(
        &self,
        key: AgentKey,
        server: &str,
        at: Timestamp,
        by: &Actor,
        details: serde_json::Value,
    ) -> Result<bool, Error> {
        let revoke = Statement::new(
            "UPDATE agent_keys SET revoked_at = $1 WHERE public_key = $2 AND server = $3 AND revoked_at IS NULL",
            [at.into(), key_value(&key), server.into()],
        );
        let event = agent_event("agent.key_revoked", at, Some(by), details)?;
        self.change_agents(revoke, vec![], Some(event)).await
    }

    /// Returns all keys of agents that joined.
    pub async fn agent_keys(&self) -> Result<Vec<StoredAgentKey>, Error> {
        let mut keys = Vec::new();
        let mut after: Option<AgentKey> = None;
        loop {
            let query =
                SelectQuery::new("SELECT public_key, server, joined_at, expires_at, revoked_at FROM agent_keys")
                    .and("public_key >", after.map(|key| key_value(&key)));
            let rows = query.fetch(&self.database, Purpose::Lookup, "public_key", ROWS).await?;
            for row in &rows {
                keys.push(StoredAgentKey {
                    key: key_of(row)?,
                    server: read(row, "server")?,
                    joined_at: time(row, "joined_at")?,
                    expires_at: time_opt(row, "expires_at")?,
                    revoked_at: time_opt(row, "revoked_at")?,
                });
            }
            after = keys.last().map(|last| last.key);
            if i64::try_from(rows.len()).is_ok_and(|rows| rows < ROWS) {
                return Ok(keys);
            }
        }
    }

    /// Returns a number that is higher after every change of what is here.
    pub async fn agent_version(&self) -> Result<i64, Error> {
        number(
            &self.database,
            "SELECT version AS number FROM agent_changes WHERE id = 1",
        )
        .await
    }

    /// Says that a replica lives, for as long as the lease lasts by the database's clock, and forgets those whose
    /// leases have ended, with their connections.
    ///
    /// Returns whether the replica was not known before, and so none of its connections.
    pub async fn renew_replica(&self, replica: &StoredReplica, lease: Duration) -> Result<bool, Error> {
        bounds::check("url", &replica.url, bounds::SERVER)?;
        let lease = i64::try_from(lease.as_micros()).unwrap_or(i64::MAX);
        let renew = Statement::new(self.by_kind(RENEW), [replica.id.into(), lease.into()]);
        // This does not count up the version. Otherwise each renewal would have every replica read everything again.
        let is_new = self.writer.change(Change::Statements(vec![renew])).await?.rows == 0;
        if is_new {
            let values = [
                replica.id.into(),
                lease.into(),
                replica.url.as_str().into(),
                replica.certificate.to_vec().into(),
            ];
            let insert = Statement::new(self.by_kind(INSERT), values);
            self.change_agents(insert, vec![], None).await?;
        }
        let ended = Statement::new(self.by_kind(ENDED), []);
        self.change_agents(ended, vec![Statement::new(ORPHANS, [])], None)
            .await?;
        Ok(is_new)
    }

    /// Says that a replica takes no requests for its agents any more.
    pub async fn remove_replica(&self, id: Uuid) -> Result<(), Error> {
        let remove = Statement::new("DELETE FROM replicas WHERE id = $1", [id.into()]);
        self.change_agents(remove, vec![Statement::new(ORPHANS, [])], None)
            .await
            .map(drop)
    }

    /// Returns the replicas that live.
    pub async fn replicas(&self) -> Result<Vec<StoredReplica>, Error> {
        let query = SelectQuery::new(self.by_kind(REPLICAS));
        let rows = query.fetch(&self.database, Purpose::Lookup, "id", ROWS).await?;
        let replica = |row: &AnyRow| {
            let certificate: Vec<u8> = read(row, "certificate")?;
            Ok(StoredReplica {
                id: uuid(row, "id")?,
                url: read(row, "url")?,
                certificate: certificate.try_into().map_err(|_| invalid_column("certificate"))?,
            })
        };
        rows.iter().map(replica).collect()
    }

    /// Says that an agent is connected to a replica.
    pub async fn add_agent_connection(&self, connection: &StoredConnection) -> Result<(), Error> {
        // After an error, a connection is written again, even if the first attempt was stored.
        let insert = Statement::new(
            "INSERT INTO agent_connections (id, replica, instance, public_key, server, cluster, version, address, \
             connected_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             ON CONFLICT (id) DO UPDATE SET public_key = excluded.public_key",
            [
                connection.id.into(),
                connection.replica.into(),
                connection.instance.into(),
                key_value(&connection.key),
                connection.server.as_str().into(),
                connection.cluster.as_str().into(),
                connection.version.as_str().into(),
                connection.address.to_string().as_str().into(),
                connection.connected_at.into(),
            ],
        );
        self.change_agents(insert, vec![], None).await.map(drop)
    }

    /// Says that it is not connected any more.
    pub async fn remove_agent_connection(&self, id: Uuid) -> Result<(), Error> {
        let remove = Statement::new("DELETE FROM agent_connections WHERE id = $1", [id.into()]);
        self.change_agents(remove, vec![], None).await.map(drop)
    }

    /// Returns the agents that are connected to other replicas.
    ///
    /// - `own`: this replica.
    pub async fn remote_agents(&self, own: Uuid) -> Result<Vec<StoredConnection>, Error> {
        let mut connections: Vec<StoredConnection> = Vec::new();
        loop {
            let after = connections.last().map(|last| last.id);
            let query = SelectQuery::new(
                "SELECT id, replica, instance, public_key, server, cluster, version, address, connected_at \
                 FROM agent_connections",
            )
            .and("id >", after)
            .and("replica <>", Some(own));
            let rows = query.fetch(&self.database, Purpose::Lookup, "id", ROWS).await?;
            for row in &rows {
                let address: String = read(row, "address")?;
                connections.push(StoredConnection {
                    id: uuid(row, "id")?,
                    replica: uuid(row, "replica")?,
                    instance: uuid(row, "instance")?,
                    key: key_of(row)?,
                    server: read(row, "server")?,
                    cluster: read(row, "cluster")?,
                    version: read(row, "version")?,
                    address: address.parse().map_err(|_| invalid_column("address"))?,
                    connected_at: time(row, "connected_at")?,
                });
            }
            if i64::try_from(rows.len()).is_ok_and(|rows| rows < ROWS) {
                return Ok(connections);
            }
        }
    }

    /// Adds an audit event about an agent.
    pub async fn record_agent(
        &self,
        action: &'static str,
        at: Timestamp,
        details: serde_json::Value,
    ) -> Result<(), Error> {
        let event = agent_event(action, at, None, details)?;
        self.writer.change(Change::Audit(vec![event])).await.map(drop)
    }

    pub(crate) async fn delete_ended_agent_keys(&self, before: Timestamp) -> Result<(), Error> {
        let sql = "DELETE FROM agent_keys WHERE public_key IN \
                   (SELECT public_key FROM agent_keys WHERE COALESCE(revoked_at, expires_at) < $1 LIMIT $2)";
        let is_full = |rows| rows >= ROWS_PER_TRANSACTION.unsigned_abs();
        while is_full(self.execute(sql, [before.into(), ROWS_PER_TRANSACTION.into()]).await?) {}
        Ok(())
    }

    fn by_kind(&self, sql: SqlByKind) -> &'static str {
        match self.database.kind {
            DatabaseKind::Postgres => sql.postgres,
            DatabaseKind::Sqlite => sql.sqlite,
        }
    }

    /// Makes a change. If its first statement affects no row, nothing else of it is made.
    async fn change_agents(
        &self,
        first: Statement,
        mut then: Vec<Statement>,
        event: Option<AuditRow>,
    ) -> Result<bool, Error> {
        then.push(changed());
        let change = Change::Conditional { first, then, event };
        Ok(self.writer.change(change).await?.rows > 0)
    }
}

fn key_of(row: &AnyRow) -> Result<AgentKey, Error> {
    let key: Vec<u8> = read(row, "public_key")?;
    Ok(AgentKey::new(key.try_into().map_err(|_| invalid_column("public_key"))?))
}

const ORPHANS: &str = "DELETE FROM agent_connections WHERE replica NOT IN (SELECT id FROM replicas)";

#[derive(Clone, Copy)]
struct SqlByKind {
    postgres: &'static str,
    sqlite: &'static str,
}

macro_rules! with_now {
    ($before:literal, $after:literal) => {
        SqlByKind {
            postgres: concat!(
                $before,
                "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)",
                $after
            ),
            sqlite: concat!(
                $before,
                // 2440587.5 is the Julian day on which 1970 begins.
                "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
                $after
            ),
        }
    };
}

/// Statements of PostgreSQL and SQLite that compare with the database's clock.
const RENEW: SqlByKind = with_now!("UPDATE replicas SET lease_until = ", " + $2 WHERE id = $1");
const INSERT: SqlByKind = with_now!(
    "INSERT INTO replicas (id, lease_until, url, certificate) VALUES ($1, ",
    " + $2, $3, $4)"
);
const ENDED: SqlByKind = with_now!("DELETE FROM replicas WHERE lease_until < ", "");
// Nested, because `SelectQuery` appends a `WHERE`.
const REPLICAS: SqlByKind = with_now!(
    "SELECT id, url, certificate FROM (SELECT * FROM replicas WHERE lease_until >= ",
    ") AS living"
);
