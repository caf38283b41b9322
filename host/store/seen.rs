//! Who is at work, as each replica sees it.
//!
//! In: rows of one replica. Out: one row for each session and agent. Never: the
//! rows of a replica that has fallen silent.

use jiff::Timestamp;
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use super::database::{Database, Purpose, failed};
use super::read::{Question, ROWS, Read, agent, time, time_opt, user, uuid};
use super::{Error, Owned, SeenSession};
use crate::access::SessionId;

const SEEN: &str = "SELECT session, agent_id, replica, user_id, username, client, first_at, last_at, requests, \
                    open_streams, expires_at FROM seen";

/// Puts the rows of one replica together, for each session and agent.
const ACTIVE: &str = "\
SELECT * FROM (\
    SELECT session, agent_id, replica, user_id, username, client, last_at, \
        MIN(first_at) OVER same AS first_at, \
        CAST(SUM(requests) OVER same AS BIGINT) AS requests, \
        CAST(SUM(open_streams) OVER same AS BIGINT) AS open_streams, \
        MAX(expires_at) OVER same AS expires_at, \
        ROW_NUMBER() OVER (PARTITION BY session, agent_id ORDER BY last_at DESC, replica) AS place \
    FROM seen \
    WHERE last_at >= $1 AND ($2 IS NULL OR user_id = $2) AND ($3 IS NULL OR agent_id = $3) \
    WINDOW same AS (PARTITION BY session, agent_id)\
) AS each_row WHERE place = 1 ORDER BY last_at DESC, session, agent_id LIMIT $4";

pub(super) async fn upsert(connection: &mut AnyConnection, rows: &[SeenSession]) -> Result<(), sqlx::Error> {
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

pub(super) async fn active(database: &Database, since: Timestamp, owned: &Owned) -> Result<Vec<SeenSession>, Error> {
    let rows = sqlx::query(ACTIVE)
        .bind(since.as_microsecond())
        .bind(owned.user_id)
        .bind(owned.agent_id.map(crate::access::AgentId::get))
        .bind(ROWS);
    let rows = database
        .rows(Purpose::List, rows)
        .await
        .map_err(|error| failed(&error))?;
    rows.iter().map(session).collect()
}

pub(super) async fn of(database: &Database, id: &SessionId) -> Result<Vec<SeenSession>, Error> {
    let question = Question::new(SEEN).and("session =", Some(id.to_string()))?;
    let rows = question
        .ask((database, Purpose::List), "last_at DESC, agent_id, replica", ROWS)
        .await?;
    rows.iter().map(session).collect()
}

fn session(row: &AnyRow) -> Result<SeenSession, Error> {
    Ok(SeenSession {
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
