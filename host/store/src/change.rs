//! The changes the store can make, written within a transaction in SQL that both databases
//! accept.
//!
//! Invariant: nothing here commits.

use jiff::Timestamp;
use sqlx::AnyConnection;
use uuid::Uuid;

use crate::audit_row::{AuditRow, Batch};
use crate::database::DatabaseKind;
use crate::export_queue;
use crate::query::Statement;
use crate::{Error, Revocation};
use tollgate_core::session::{AccessType, SessionId};

pub(crate) const ROWS_PER_TRANSACTION: i64 = 2_000;

/// One change, which takes effect as a whole or not at all.
pub(crate) enum Change {
    Creation {
        /// What is created, for errors.
        what: &'static str,
        /// Deletes some that have expired.
        expired: Option<Statement>,
        insert: Statement,
        limits: Vec<Limit>,
        event: Option<AuditRow>,
    },
    Revocation {
        session: SessionId,
        until: Timestamp,
        at: Timestamp,
        event: AuditRow,
    },
    Audit(Vec<AuditRow>),
    /// Audit events that were exported, with the counts they then had.
    Exported(Vec<(Uuid, i64)>),
    /// Unless the first statement affects a row, nothing else is done.
    Conditional {
        first: Statement,
        then: Vec<Statement>,
        event: Option<AuditRow>,
    },
    Statements(Vec<Statement>),
}

#[derive(Default)]
pub(crate) struct ChangeOutcome {
    /// How many rows the statements affected.
    pub(crate) rows: u64,
    /// The revocation in force, after [`Change::Revocation`].
    pub(crate) revocation: Option<Revocation>,
}

impl Change {
    /// Applies the change in a transaction; its audit events go to `events`, which the caller inserts
    /// before the commit. The inner error is for a change that wrote nothing.
    pub(crate) async fn apply<'a>(
        &'a self,
        connection: &mut AnyConnection,
        kind: DatabaseKind,
        events: &mut Batch<'a>,
    ) -> Result<Result<ChangeOutcome, Error>, sqlx::Error> {
        let mut outcome = ChangeOutcome::default();
        match self {
            Self::Creation {
                what,
                expired,
                insert,
                limits,
                event,
            } => {
                for limit in limits {
                    let (observed, allowed) = (limit.count(connection, kind).await?, limit.allowed);
                    if observed >= allowed {
                        return Ok(Err(Error::LimitReached {
                            what,
                            observed,
                            allowed,
                        }));
                    }
                }
                // After the limits, because a change that they refuse must have written nothing.
                if let Some(expired) = expired {
                    expired.execute(connection).await?;
                }
                outcome.rows = insert.execute(connection).await?;
                // An insert that yields to what is there already is no event.
                events.extend(event.as_ref().filter(|_| outcome.rows > 0));
            }
            Self::Revocation {
                session,
                until,
                at,
                event,
            } => {
                // People sign out twice, and issuers repeat their logout tokens: that is one event.
                let (revocation, is_new) = revoke(connection, kind, session, *until).await?;
                mark_revoked(connection, session, *at).await?;
                events.extend(is_new.then_some(event));
                outcome.revocation = Some(revocation);
            }
            Self::Audit(rows) => events.extend(rows),
            Self::Exported(events) => export_queue::dequeue(connection, events).await?,
            Self::Conditional { first, then, event } => {
                outcome.rows = first.execute(connection).await?;
                // Without a row, another replica was first, and has written the rest and the event as well.
                if outcome.rows > 0 {
                    for statement in then {
                        statement.execute(connection).await?;
                    }
                    events.extend(event);
                }
            }
            Self::Statements(statements) => {
                for statement in statements {
                    outcome.rows = outcome.rows.saturating_add(statement.execute(connection).await?);
                }
            }
        }
        Ok(Ok(outcome))
    }
}

/// How many there may be of what a change creates.
pub(crate) struct Limit {
    pub(crate) count: Statement,
    /// Whose limit it is. Replicas that create something for the same one wait for each other.
    pub(crate) owner: String,
    pub(crate) allowed: u32,
}

impl Limit {
    /// Counts within the transaction that adds one.
    async fn count(&self, connection: &mut AnyConnection, kind: DatabaseKind) -> Result<u32, sqlx::Error> {
        if kind == DatabaseKind::Postgres {
            // INVARIANT: two replicas cannot both find the last place free. SQLite has only one
            // writer.
            // Two owners whose hashes are equal merely wait for each other.
            let lock = "SELECT 1 FROM pg_advisory_xact_lock(hashtextextended($1, 0))";
            let lock = Statement::new(lock, [self.owner.as_str().into()]);
            lock.execute(connection).await?;
        }
        Ok(u32::try_from(self.count.number(connection).await?).unwrap_or(u32::MAX))
    }
}

/// Adds a revocation unless there is one for at least as long; returns whether it did.
async fn revoke(
    connection: &mut AnyConnection,
    kind: DatabaseKind,
    session: &SessionId,
    until: Timestamp,
) -> Result<(Revocation, bool), sqlx::Error> {
    if kind == DatabaseKind::Postgres {
        // INVARIANT: numbers become visible in order, so that a reader who asks for those after a
        // number misses none. SQLite has only one writer.
        let lock = Statement::new("LOCK TABLE revocations IN EXCLUSIVE MODE", []);
        lock.execute(connection).await?;
    }
    let text = session.to_string();
    let found: Option<(i64, i64)> = sqlx::query_as("SELECT sequence, until FROM revocations WHERE session = $1")
        .bind(text.as_str())
        .fetch_optional(&mut *connection)
        .await?;
    let revocation = |sequence, until| Revocation {
        sequence,
        session: session.clone(),
        until,
    };
    if let Some((sequence, there)) = found {
        let there = Timestamp::from_microsecond(there).unwrap_or(Timestamp::MAX);
        // The store truncates to microseconds: compared more finely, the same time would count as later again.
        if there.as_microsecond() >= until.as_microsecond() {
            return Ok((revocation(sequence, there), false));
        }
        // It gets a new number, so that replicas that have read the old one learn of the longer time.
        let delete = Statement::new("DELETE FROM revocations WHERE session = $1", [text.as_str().into()]);
        delete.execute(connection).await?;
    }
    let insert = "INSERT INTO revocations (session, until) VALUES ($1, $2) RETURNING sequence";
    let insert = Statement::new(insert, [text.as_str().into(), until.into()]);
    Ok((revocation(insert.number(connection).await?, until), true))
}

/// Marks the token, browser session or login; other sessions have no such row.
async fn mark_revoked(connection: &mut AnyConnection, session: &SessionId, at: Timestamp) -> Result<(), sqlx::Error> {
    let sql = match session.access_type() {
        AccessType::PersonalAccessToken => "UPDATE tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL",
        AccessType::SessionCookie => "UPDATE browser_sessions SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL",
        AccessType::Login => "UPDATE logins SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL",
        AccessType::OidcIdToken | AccessType::CiJobToken => return Ok(()),
    };
    // No row has another kind of id. The revocation itself counts without one.
    let Ok(id) = Uuid::try_parse(session.id()) else {
        return Ok(());
    };
    let mark = Statement::new(sql, [id.into(), at.into()]);
    mark.execute(connection).await.map(drop)
}
