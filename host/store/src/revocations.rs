//! Revocations of sessions, and what follows from time: rows that are no longer needed.

use jiff::{SignedDuration, Timestamp};
use sqlx::any::AnyRow;

use crate::audit_row::revoked;
use crate::change::{Change, ROWS_PER_TRANSACTION};
use crate::database::{DatabaseKind, Purpose};
use crate::query::{ROWS, SelectQuery, invalid_column, number, read, time, time_of};
use crate::{Actor, Error, Revocation, SessionOwner, Store, bounds};
use tollgate_core::session::SessionId;

const ACTIVITY_TTL: SignedDuration = SignedDuration::from_hours(24);

impl Store {
    /// Revokes a session: marks its token or browser session, adds a revocation, and adds the
    /// audit event `token.revoked` or `session.revoked`.
    ///
    /// Revoking the same session again changes nothing and returns the existing revocation. With
    /// a later `until` it counts as a new revocation, so that every replica learns of the longer
    /// time.
    ///
    /// - `until`: when the credential expires. `at`: now.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Character`].
    pub async fn revoke(
        &self,
        session: &SessionId,
        until: Timestamp,
        at: Timestamp,
        by: &Actor,
        owner: &SessionOwner,
    ) -> Result<Revocation, Error> {
        let text = session.to_string();
        bounds::check("session", &text, bounds::SESSION)?;
        // INVARIANT: every replica can parse the id of a revoked session.
        if SessionId::parse(&text).as_ref() != Some(session) {
            return Err(Error::Character("session"));
        }
        bounds::check("username", &owner.user.username, bounds::USERNAME)?;
        let revocation = Change::Revocation {
            session: session.clone(),
            until,
            at,
            event: revoked(session, at, by, owner)?,
        };
        let made = self.writer.change(revocation).await?.revocation;
        made.ok_or_else(|| Error::Failed("a revocation was not acknowledged as one".to_owned()))
    }

    /// Returns the revocations after a sequence number, in the order they took effect, at most
    /// 1,000. None ever appears below one that was returned.
    pub async fn revocations_after(&self, sequence: i64) -> Result<Vec<Revocation>, Error> {
        let query =
            SelectQuery::new("SELECT sequence, session, until FROM revocations").and("sequence >", Some(sequence));
        let rows = query.fetch(&self.database, Purpose::Lookup, "sequence", ROWS).await?;
        let revocation = |row: &AnyRow| {
            let session: String = read(row, "session")?;
            Ok(Revocation {
                sequence: read(row, "sequence")?,
                session: SessionId::parse(&session).ok_or_else(|| invalid_column("session"))?,
                until: time(row, "until")?,
            })
        };
        rows.iter().map(revocation).collect()
    }

    /// Returns the sequence number of the latest revocation; 0 without any.
    pub async fn latest_revocation(&self) -> Result<i64, Error> {
        let latest = "SELECT COALESCE(MAX(sequence), 0) AS number FROM revocations";
        number(&self.database, latest).await
    }

    /// Returns the database's time if it may run on another machine.
    pub async fn time(&self) -> Result<Option<Timestamp>, Error> {
        let now = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) AS number";
        match self.database.kind {
            DatabaseKind::Sqlite => Ok(None),
            DatabaseKind::Postgres => time_of(number(&self.database, now).await?, "now").map(Some),
        }
    }

    /// Returns the time that was assumed when rows were last removed. Without one, returns the
    /// time of the latest audit event; `None` without any.
    pub async fn time_watermark(&self) -> Result<Option<Timestamp>, Error> {
        let reached =
            "SELECT COALESCE((SELECT MAX(reached) FROM clock), (SELECT MAX(last_at) FROM audit), 0) AS number";
        match number(&self.database, reached).await? {
            0 => Ok(None),
            reached => time_of(reached, "reached").map(Some),
        }
    }

    /// Stores the time that is assumed when rows are removed.
    pub async fn advance_time_watermark(&self, time: Timestamp) -> Result<(), Error> {
        let sql =
            "INSERT INTO clock (id, reached) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET reached = excluded.reached";
        self.execute(sql, [time.into()]).await.map(drop)
    }

    /// Removes audit events and tokens that ended before `audit`, revocations, browser sessions and
    /// logins that have ended, and rows of sessions last active more than a day ago.
    ///
    /// Uses small transactions, so that other changes need not wait long. Each kind of row is removed
    /// whether or not others can be; what is left after an error is removed the next time.
    ///
    /// # Errors
    /// The first one.
    pub async fn delete_expired(&self, audit: Timestamp, now: Timestamp) -> Result<(), Error> {
        let inactive = now.checked_sub(ACTIVITY_TTL).unwrap_or(Timestamp::MIN);
        let expired = [
            (
                // INVARIANT: an event that waits to be exported is kept until then.
                "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE last_at < $1 \
                 AND NOT EXISTS (SELECT 1 FROM audit_unexported AS waits WHERE waits.id = audit.id) LIMIT $2)",
                audit,
            ),
            (
                "DELETE FROM tokens WHERE id IN (SELECT id FROM tokens WHERE expires_at < $1 LIMIT $2)",
                audit,
            ),
            (
                "DELETE FROM browser_sessions WHERE id IN \
                 (SELECT id FROM browser_sessions WHERE expires_at < $1 LIMIT $2)",
                now,
            ),
            (
                "DELETE FROM revocations WHERE sequence IN \
                 (SELECT sequence FROM revocations WHERE until < $1 LIMIT $2)",
                now,
            ),
            (
                "DELETE FROM logins WHERE id IN (SELECT id FROM logins WHERE expires_at < $1 LIMIT $2)",
                now,
            ),
            (
                "DELETE FROM login_tokens WHERE hash IN \
                 (SELECT hash FROM login_tokens WHERE expires_at < $1 LIMIT $2)",
                now,
            ),
            (
                "DELETE FROM login_requests WHERE id IN \
                 (SELECT id FROM login_requests WHERE expires_at < $1 LIMIT $2)",
                now,
            ),
            (
                "DELETE FROM logout_tokens WHERE id IN (SELECT id FROM logout_tokens WHERE until < $1 LIMIT $2)",
                now,
            ),
            (
                "DELETE FROM seen WHERE (session, agent_id, replica) IN \
                 (SELECT session, agent_id, replica FROM seen WHERE last_at < $1 LIMIT $2)",
                inactive,
            ),
        ];
        // `and` keeps the first error. Its argument is awaited in any case.
        let mut outcome = self.delete_ended_agent_keys(audit).await.map(drop);
        // Before the audit events, which are kept while they wait for an export.
        outcome = outcome.and(self.forget_unexported(audit).await.map(drop));
        for (sql, before) in expired {
            outcome = outcome.and(self.delete_all(sql, before).await);
        }
        outcome
    }

    async fn delete_all(&self, sql: &'static str, before: Timestamp) -> Result<(), Error> {
        let is_full = |rows| rows >= ROWS_PER_TRANSACTION.unsigned_abs();
        while is_full(self.execute(sql, [before.into(), ROWS_PER_TRANSACTION.into()]).await?) {}
        Ok(())
    }
}
