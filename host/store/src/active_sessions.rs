//! Active sessions: rows of each replica, merged into one per session and agent.
//!
//! Invariant: a replica that has fallen silent counts as having no open streams.

use jiff::Timestamp;
use sqlx::any::AnyRow;

use crate::change::Change;
use crate::database::{DatabaseKind, Purpose};
use crate::query::{ROWS, SelectQuery, Statement, agent, page_limit, read, time, time_opt, user, uuid};
use crate::{ActiveSession, ActiveSessionCursor, CredentialFilter, Error, Page, Store, bounds};
use tollgate_core::session::SessionId;

const SEEN: &str = "SELECT session, agent_id, replica, user_id, username, client, first_at, last_at, requests, \
                    open_streams, expires_at FROM seen";

const UPSERT: &str = "INSERT INTO seen (session, agent_id, replica, user_id, username, first_at, last_at, client, \
                      requests, open_streams, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
                      ON CONFLICT (session, agent_id, replica) DO UPDATE SET user_id = excluded.user_id, \
                      username = excluded.username, last_at = excluded.last_at, client = excluded.client, \
                      requests = excluded.requests, open_streams = excluded.open_streams, \
                      expires_at = excluded.expires_at";

impl Store {
    /// Stores the sessions that a replica saw active, replacing its earlier row for the same session
    /// and agent. The first time is kept.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Character`].
    pub async fn upsert_active_sessions(&self, rows: &[ActiveSession]) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let statements = rows.iter().map(upsert).collect::<Result<_, _>>()?;
        self.writer.change(Change::Statements(statements)).await.map(drop)
    }

    /// Returns a page of the sessions active since a time, one row for each session and agent. Rows
    /// of several replicas are merged: requests and open streams are added up; replica and client
    /// are those of the latest.
    ///
    /// - `stale_before`: rows last reported before this time count as having no open streams, so that
    ///   those of a replica that died are soon forgotten.
    pub async fn active_sessions(
        &self,
        since: Timestamp,
        stale_before: Timestamp,
        filter: &CredentialFilter,
        page: &Page<ActiveSessionCursor>,
    ) -> Result<Vec<ActiveSession>, Error> {
        // Pages are merged with rows in memory of this process, which are in byte order.
        let (behind, order) = match self.database.kind {
            DatabaseKind::Sqlite => ("(session, agent_id) >", "session, agent_id"),
            DatabaseKind::Postgres => ("(session COLLATE \"C\", agent_id) >", "session COLLATE \"C\", agent_id"),
        };
        let query = SelectQuery::new("")
            .and("last_at >=", Some(since))
            .and("user_id =", filter.user_id)
            .and("username =", filter.username.as_deref())
            .and_one_of("agent_id", filter.agents.as_deref())
            .and_after(
                behind,
                page.after.as_ref().map(|(session, agent)| (session.as_str(), *agent)),
            );
        let stale_before = stale_before.as_microsecond();
        // Merges the rows of all replicas for each session and agent.
        let query = query.wrap(false, |conditions| {
            format!(
                "SELECT * FROM (\
                    SELECT session, agent_id, replica, user_id, username, client, last_at, \
                        MIN(first_at) OVER same AS first_at, \
                        CAST(SUM(requests) OVER same AS BIGINT) AS requests, \
                        CAST(SUM(CASE WHEN last_at >= {stale_before} THEN open_streams ELSE 0 END) OVER same \
                            AS BIGINT) AS open_streams, \
                        MAX(expires_at) OVER same AS expires_at, \
                        ROW_NUMBER() OVER (PARTITION BY session, agent_id ORDER BY last_at DESC, replica) AS place \
                    FROM seen{conditions} WINDOW same AS (PARTITION BY session, agent_id)\
                ) AS each_row WHERE place = 1"
            )
        });
        let rows = query.fetch(&self.database, Purpose::List, order, page_limit(page));
        rows.await?.iter().map(session).collect()
    }

    /// Returns which of these sessions, at most 1,000 in their text form, were active since a time.
    pub async fn active_since(&self, since: Timestamp, sessions: &[String]) -> Result<Vec<String>, Error> {
        let query = SelectQuery::new("SELECT DISTINCT session FROM seen")
            .and("last_at >=", Some(since))
            .and_one_of_texts("session", sessions);
        let rows = query.fetch(&self.database, Purpose::List, "session", ROWS).await?;
        rows.iter().map(|row| read(row, "session")).collect()
    }

    /// Returns the people and agents a session was active with, as far back as this is kept: one row
    /// for each person, agent and replica, latest first, at most 1,000.
    pub async fn activity_of(&self, id: &SessionId) -> Result<Vec<ActiveSession>, Error> {
        let query = SelectQuery::new(SEEN).and("session =", Some(id.to_string().as_str()));
        let rows = query.fetch(&self.database, Purpose::List, "last_at DESC, agent_id, replica", ROWS);
        rows.await?.iter().map(session).collect()
    }
}

fn upsert(row: &ActiveSession) -> Result<Statement, Error> {
    bounds::check("session", &row.session, bounds::SESSION)?;
    bounds::check("username", &row.user.username, bounds::USERNAME)?;
    bounds::check("client", &row.client, bounds::CLIENT)?;
    let values = [
        row.session.as_str().into(),
        row.agent_id.into(),
        row.replica.into(),
        row.user.id.into(),
        row.user.username.as_str().into(),
        row.first_at.into(),
        row.last_at.into(),
        row.client.as_str().into(),
        i64::try_from(row.requests).unwrap_or(i64::MAX).into(),
        i64::from(row.open_streams).into(),
        row.expires_at.into(),
    ];
    Ok(Statement::new(UPSERT, values))
}

fn session(row: &AnyRow) -> Result<ActiveSession, Error> {
    Ok(ActiveSession {
        session: read(row, "session")?,
        replica: uuid(row, "replica")?,
        user: user(row)?,
        agent_id: agent(row)?,
        first_at: time(row, "first_at")?,
        last_at: time(row, "last_at")?,
        client: read(row, "client")?,
        requests: u64::try_from(read::<i64>(row, "requests")?).unwrap_or_default(),
        open_streams: u32::try_from(read::<i64>(row, "open_streams")?).unwrap_or(u32::MAX),
        expires_at: time_opt(row, "expires_at")?,
    })
}
