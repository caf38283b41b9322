//! Active sessions: rows of each replica, merged into one per session and agent.
//!
//! Invariant: a replica that has fallen silent counts as having no open streams.

use jiff::Timestamp;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use super::database::{Database, DatabaseKind, Purpose};
use super::read::{ROWS, ReadColumn, SelectQuery, agent, page_limit, time, time_opt, user, uuid};
use super::{ActiveSession, ActiveSessionCursor, CredentialFilter, Error, Page};
use tollgate_core::session::SessionId;

const SEEN: &str = "SELECT session, agent_id, replica, user_id, username, client, first_at, last_at, requests, \
                    open_streams, expires_at FROM seen";

pub(super) async fn upsert(connection: &mut AnyConnection, rows: &[ActiveSession]) -> Result<(), sqlx::Error> {
    for row in rows {
        sqlx::query(
            "INSERT INTO seen (session, agent_id, replica, user_id, username, first_at, last_at, client, requests, \
             open_streams, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
             ON CONFLICT (session, agent_id, replica) DO UPDATE SET user_id = excluded.user_id, \
             username = excluded.username, last_at = excluded.last_at, client = excluded.client, \
             requests = excluded.requests, open_streams = excluded.open_streams, expires_at = excluded.expires_at",
        )
        .bind(row.session.as_str())
        .bind(row.agent_id.get())
        .bind(row.replica.as_bytes().as_slice())
        .bind(row.user.id)
        .bind(row.user.username.as_str())
        .bind(row.first_at.as_microsecond())
        .bind(row.last_at.as_microsecond())
        .bind(row.client.as_str())
        .bind(i64::try_from(row.requests).unwrap_or(i64::MAX))
        .bind(i64::from(row.open_streams))
        .bind(row.expires_at.map(Timestamp::as_microsecond))
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

pub(super) async fn select(
    database: &Database,
    (since, stale_before): (Timestamp, Timestamp),
    filter: &CredentialFilter,
    page: &Page<ActiveSessionCursor>,
) -> Result<Vec<ActiveSession>, Error> {
    // Pages are merged with rows in memory of this process, which are in byte order.
    let (behind, order) = match database.kind() {
        DatabaseKind::Sqlite => ("(session, agent_id) >", "session, agent_id"),
        DatabaseKind::Postgres => ("(session COLLATE \"C\", agent_id) >", "session COLLATE \"C\", agent_id"),
    };
    let after = page.after.as_ref();
    let query = SelectQuery::new("")
        .and("last_at >=", Some(since.as_microsecond()))?
        .and("user_id =", filter.user_id)?
        .and("username =", filter.username.clone())?
        .and_one_of("agent_id", filter.agents.as_deref())
        .and_after(behind, after.map(|(session, agent)| (session.clone(), agent.get())))?;
    let stale_before = stale_before.as_microsecond();
    // Merges the rows of all replicas for each session and agent.
    let query = query.wrap(false, |conditions| {
        format!(
            "SELECT * FROM (\
                SELECT session, agent_id, replica, user_id, username, client, last_at, \
                    MIN(first_at) OVER same AS first_at, \
                    CAST(SUM(requests) OVER same AS BIGINT) AS requests, \
                    CAST(SUM(CASE WHEN last_at >= {stale_before} THEN open_streams ELSE 0 END) OVER same AS BIGINT) \
                        AS open_streams, \
                    MAX(expires_at) OVER same AS expires_at, \
                    ROW_NUMBER() OVER (PARTITION BY session, agent_id ORDER BY last_at DESC, replica) AS place \
                FROM seen{conditions} WINDOW same AS (PARTITION BY session, agent_id)\
            ) AS each_row WHERE place = 1"
        )
    });
    let rows = query.fetch((database, Purpose::List), order, page_limit(page)).await?;
    rows.iter().map(session).collect()
}

pub(super) async fn active_since(
    database: &Database,
    since: Timestamp,
    sessions: &[String],
) -> Result<Vec<String>, Error> {
    let query = SelectQuery::new("SELECT DISTINCT session FROM seen")
        .and("last_at >=", Some(since.as_microsecond()))?
        .and_one_of_texts("session", sessions)?;
    let rows = query.fetch((database, Purpose::List), "session", ROWS).await?;
    rows.iter().map(|row| row.read("session")).collect()
}

pub(super) async fn activity_of(database: &Database, id: &SessionId) -> Result<Vec<ActiveSession>, Error> {
    let query = SelectQuery::new(SEEN).and("session =", Some(id.to_string()))?;
    let rows = query
        .fetch((database, Purpose::List), "last_at DESC, agent_id, replica", ROWS)
        .await?;
    rows.iter().map(session).collect()
}

fn session(row: &AnyRow) -> Result<ActiveSession, Error> {
    Ok(ActiveSession {
        session: row.read("session")?,
        replica: uuid(row, "replica")?,
        user: user(row)?,
        agent_id: agent(row)?,
        first_at: time(row, "first_at")?,
        last_at: time(row, "last_at")?,
        client: row.read("client")?,
        requests: u64::try_from(row.read::<i64>("requests")?).unwrap_or_default(),
        open_streams: u32::try_from(row.read::<i64>("open_streams")?).unwrap_or(u32::MAX),
        expires_at: time_opt(row, "expires_at")?,
    })
}
