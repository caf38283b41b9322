//! The changes the store can make, written within a transaction in SQL that both databases
//! accept.
//!
//! Invariant: nothing here commits.
//!
//! Security: outside text is never part of SQL.

use jiff::Timestamp;
use sqlx::AnyConnection;
use uuid::Uuid;

use super::audit::{self, Batch};
use super::database::DatabaseKind;
use super::{
    ActiveSession, Actor, BrowserSession, Error, Revocation, SecretHash, SessionOwner, Token, active_sessions, bounds,
};
use tollgate_core::agent::AgentId;
use tollgate_core::session::{AccessType, SessionId};

/// Most rows removed or bound in one transaction.
pub(super) const ROWS_PER_TRANSACTION: u64 = 2_000;

/// How long rows of active sessions are kept.
const ACTIVITY_TTL: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);

/// One change, which takes effect as a whole or not at all.
pub(super) enum Change {
    /// A new token with its audit event, if it has one.
    Token {
        token: Token,
        hash: SecretHash,
        event: Option<audit::AuditRow>,
    },
    TokenUsed {
        id: Uuid,
        at: Timestamp,
    },
    /// A new browser session with its audit event.
    Session {
        session: BrowserSession,
        hash: SecretHash,
        event: audit::AuditRow,
    },
    Revocation {
        session: SessionId,
        until: Timestamp,
        at: Timestamp,
        event: audit::AuditRow,
    },
    Audit(Vec<audit::AuditRow>),
    ActiveSessions(Vec<ActiveSession>),
    /// Binds some of the tokens that identify an agent by its number alone.
    Bind {
        agent_id: AgentId,
        identity: String,
    },
    /// The time that is assumed for removals.
    TimeWatermark(Timestamp),
    DeleteExpired(ExpiredRows),
}

/// The result of a change.
pub(super) enum ChangeOutcome {
    Done,
    /// Nothing was written: the person has reached the limit.
    LimitReached(Error),
    Revoked(Revocation),
    /// This many rows were removed or bound.
    Rows(u64),
}

/// A kind of expired rows, with the time before which they are removed.
#[derive(Clone, Copy)]
pub(super) enum ExpiredRows {
    Audit(Timestamp),
    Tokens(Timestamp),
    Sessions(Timestamp),
    Revocations(Timestamp),
    ActiveSessions(Timestamp),
}

impl ExpiredRows {
    pub(super) fn all(audit: Timestamp, now: Timestamp) -> [Self; 5] {
        [
            Self::Audit(audit),
            Self::Tokens(audit),
            Self::Sessions(now),
            Self::Revocations(now),
            Self::ActiveSessions(now.checked_sub(ACTIVITY_TTL).unwrap_or(Timestamp::MIN)),
        ]
    }
}

impl Change {
    /// - `by`: who makes it, for its audit event; `None` writes no event.
    pub(super) fn token(token: &Token, hash: SecretHash, by: Option<&Actor>) -> Result<Self, Error> {
        bounds::check("token name", &token.name, bounds::TOKEN_NAME)?;
        bounds::check("username", &token.user.username, bounds::USERNAME)?;
        bounds::check("scopes", &token.scopes.join(" "), bounds::SCOPES)?;
        bounds::check("agent", token.agent.as_deref().unwrap_or_default(), bounds::AGENT)?;
        Ok(Self::Token {
            token: token.clone(),
            hash,
            event: by.map(|by| audit::token_created(token, by)).transpose()?,
        })
    }

    pub(super) fn session(session: &BrowserSession, hash: SecretHash, by: &Actor) -> Result<Self, Error> {
        bounds::check("username", &session.user.username, bounds::USERNAME)?;
        Ok(Self::Session {
            session: session.clone(),
            hash,
            event: audit::session_created(session, by)?,
        })
    }

    pub(super) fn revocation(
        session: &SessionId,
        (until, at): (Timestamp, Timestamp),
        by: &Actor,
        owner: &SessionOwner,
    ) -> Result<Self, Error> {
        let text = session.to_string();
        bounds::check("session", &text, bounds::SESSION)?;
        // INVARIANT: every replica can parse the id of a revoked session.
        if SessionId::parse(&text).as_ref() != Some(session) {
            return Err(Error::Character { field: "session" });
        }
        bounds::check("username", &owner.user.username, bounds::USERNAME)?;
        Ok(Self::Revocation {
            session: session.clone(),
            until,
            at,
            event: audit::revoked(session, at, by, owner)?,
        })
    }

    pub(super) fn upsert_active_sessions(rows: &[ActiveSession]) -> Result<Self, Error> {
        for row in rows {
            bounds::check("session", &row.session, bounds::SESSION)?;
            bounds::check("username", &row.user.username, bounds::USERNAME)?;
            bounds::check("client", &row.client, bounds::CLIENT)?;
        }
        Ok(Self::ActiveSessions(rows.to_vec()))
    }

    /// The kind of thing that exists already when a unique constraint fails.
    pub(super) fn entity(&self) -> Option<&'static str> {
        match self {
            Self::Token { .. } => Some("token"),
            Self::Session { .. } => Some("session"),
            Self::TokenUsed { .. }
            | Self::Revocation { .. }
            | Self::Audit(_)
            | Self::ActiveSessions(_)
            | Self::Bind { .. }
            | Self::TimeWatermark(_)
            | Self::DeleteExpired(_) => None,
        }
    }

    /// Applies the change in a transaction; its audit events go to `events`, which the caller inserts
    /// before the commit.
    pub(super) async fn apply<'a>(
        &'a self,
        connection: &mut AnyConnection,
        kind: DatabaseKind,
        events: &mut Batch<'a>,
    ) -> Result<ChangeOutcome, sqlx::Error> {
        match self {
            Self::Token { token, hash, event } => {
                // Tokens of another platform were made under its own limits.
                if event.is_some()
                    && let Some(full) = TOKENS
                        .check(connection, kind, (token.user.id, token.created_at))
                        .await?
                {
                    return Ok(ChangeOutcome::LimitReached(full));
                }
                insert_token(connection, token, *hash).await?;
                events.extend(event.iter());
            }
            Self::TokenUsed { id, at } => token_used(connection, *id, *at).await?,
            Self::Session { session, hash, event } => {
                let whose = (session.user.id, session.created_at);
                if let Some(full) = BROWSER_SESSIONS.check(connection, kind, whose).await? {
                    return Ok(ChangeOutcome::LimitReached(full));
                }
                insert_session(connection, session, *hash).await?;
                events.extend([event]);
            }
            Self::Revocation {
                session,
                until,
                at,
                event,
            } => {
                let (revocation, is_new) = revoke(connection, kind, session, *until).await?;
                mark_revoked(connection, session, *at).await?;
                events.extend(is_new.then_some(event));
                return Ok(ChangeOutcome::Revoked(revocation));
            }
            Self::Audit(rows) => events.extend(rows),
            Self::ActiveSessions(rows) => active_sessions::upsert(connection, rows).await?,
            Self::Bind { agent_id, identity } => {
                return bind(connection, *agent_id, identity).await.map(ChangeOutcome::Rows);
            }
            Self::TimeWatermark(time) => advance_time_watermark(connection, *time).await?,
            Self::DeleteExpired(expired) => return delete_expired(connection, *expired).await.map(ChangeOutcome::Rows),
        }
        Ok(ChangeOutcome::Done)
    }
}

/// A limit on what one person may have.
struct PerUserLimit {
    what: &'static str,
    count: &'static str,
    allowed: u32,
}

const TOKENS: PerUserLimit = PerUserLimit {
    what: "token",
    count: "SELECT COUNT(*) FROM tokens WHERE user_id = $1 AND expires_at > $2",
    allowed: bounds::TOKENS,
};

const BROWSER_SESSIONS: PerUserLimit = PerUserLimit {
    what: "session",
    count: "SELECT COUNT(*) FROM browser_sessions WHERE user_id = $1 AND expires_at > $2",
    allowed: bounds::BROWSER_SESSIONS,
};

impl PerUserLimit {
    /// Checks the limit within the transaction that adds one; returns the error if it is reached.
    async fn check(
        &self,
        connection: &mut AnyConnection,
        kind: DatabaseKind,
        (user, now): (i64, Timestamp),
    ) -> Result<Option<Error>, sqlx::Error> {
        if kind == DatabaseKind::Postgres {
            // INVARIANT: two replicas cannot both find the last place free. SQLite has only one
            // writer.
            sqlx::query("SELECT 1 FROM pg_advisory_xact_lock($1)")
                .bind(user)
                .execute(&mut *connection)
                .await?;
        }
        let found: i64 = sqlx::query_scalar(self.count)
            .bind(user)
            .bind(now.as_microsecond())
            .fetch_one(connection)
            .await?;
        let observed = u32::try_from(found).unwrap_or(u32::MAX);
        let is_full = observed >= self.allowed;
        Ok(is_full.then_some(Error::LimitReached {
            what: self.what,
            observed,
            allowed: self.allowed,
        }))
    }
}

async fn insert_token(connection: &mut AnyConnection, token: &Token, hash: SecretHash) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO tokens (id, hash, name, user_id, username, agent_id, scopes, created_at, expires_at, \
         revoked_at, last_used_at, agent) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
    )
    .bind(token.id.as_bytes().as_slice())
    .bind(hash.0.as_slice())
    .bind(token.name.as_str())
    .bind(token.user.id)
    .bind(token.user.username.as_str())
    .bind(token.agent_id.get())
    .bind(token.scopes.join(" "))
    .bind(token.created_at.as_microsecond())
    .bind(token.expires_at.as_microsecond())
    .bind(token.revoked_at.map(Timestamp::as_microsecond))
    .bind(token.last_used_at.map(Timestamp::as_microsecond))
    .bind(token.agent.as_deref())
    .execute(connection)
    .await
    .map(drop)
}

async fn token_used(connection: &mut AnyConnection, id: Uuid, at: Timestamp) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE tokens SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)")
        .bind(id.as_bytes().as_slice())
        .bind(at.as_microsecond())
        .execute(connection)
        .await
        .map(drop)
}

async fn insert_session(
    connection: &mut AnyConnection,
    session: &BrowserSession,
    hash: SecretHash,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO browser_sessions (id, hash, csrf, user_id, username, created_at, expires_at, revoked_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(session.id.as_bytes().as_slice())
    .bind(hash.0.as_slice())
    .bind(session.csrf.0.as_slice())
    .bind(session.user.id)
    .bind(session.user.username.as_str())
    .bind(session.created_at.as_microsecond())
    .bind(session.expires_at.as_microsecond())
    .bind(session.revoked_at.map(Timestamp::as_microsecond))
    .execute(connection)
    .await
    .map(drop)
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
        sqlx::query("LOCK TABLE revocations IN EXCLUSIVE MODE")
            .execute(&mut *connection)
            .await?;
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
        if there.as_microsecond() >= until.as_microsecond() {
            return Ok((revocation(sequence, there), false));
        }
        sqlx::query("DELETE FROM revocations WHERE session = $1")
            .bind(text.as_str())
            .execute(&mut *connection)
            .await?;
    }
    let (sequence,) = sqlx::query_as("INSERT INTO revocations (session, until) VALUES ($1, $2) RETURNING sequence")
        .bind(text)
        .bind(until.as_microsecond())
        .fetch_one(connection)
        .await?;
    Ok((revocation(sequence, until), true))
}

/// Marks the token or browser session; other sessions have no row of their own.
async fn mark_revoked(connection: &mut AnyConnection, session: &SessionId, at: Timestamp) -> Result<(), sqlx::Error> {
    let sql = match session.access_type() {
        AccessType::PersonalAccessToken => "UPDATE tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL",
        AccessType::SessionCookie => "UPDATE browser_sessions SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL",
        AccessType::OidcIdToken | AccessType::CiJobToken => return Ok(()),
    };
    let Ok(id) = Uuid::try_parse(session.id()) else {
        return Ok(());
    };
    sqlx::query(sql)
        .bind(id.as_bytes().as_slice())
        .bind(at.as_microsecond())
        .execute(connection)
        .await
        .map(drop)
}

/// Binds tokens to the agent that has their number. An empty identity, which no agent has, binds
/// them to none.
async fn bind(connection: &mut AnyConnection, agent_id: AgentId, identity: &str) -> Result<u64, sqlx::Error> {
    let done = sqlx::query(
        "UPDATE tokens SET agent = $2 WHERE id IN \
         (SELECT id FROM tokens WHERE agent_id = $1 AND agent IS NULL LIMIT $3)",
    )
    .bind(agent_id.get())
    .bind(identity)
    .bind(i64::try_from(ROWS_PER_TRANSACTION).unwrap_or(i64::MAX))
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

async fn advance_time_watermark(connection: &mut AnyConnection, time: Timestamp) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO clock (id, reached) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET reached = excluded.reached",
    )
    .bind(time.as_microsecond())
    .execute(connection)
    .await
    .map(drop)
}

async fn delete_expired(connection: &mut AnyConnection, expired: ExpiredRows) -> Result<u64, sqlx::Error> {
    let (sql, before) = match expired {
        ExpiredRows::Audit(before) => (
            "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE last_at < $1 LIMIT $2)",
            before,
        ),
        ExpiredRows::Tokens(before) => (
            "DELETE FROM tokens WHERE id IN (SELECT id FROM tokens WHERE expires_at < $1 LIMIT $2)",
            before,
        ),
        ExpiredRows::Sessions(before) => (
            "DELETE FROM browser_sessions WHERE id IN \
             (SELECT id FROM browser_sessions WHERE expires_at < $1 LIMIT $2)",
            before,
        ),
        ExpiredRows::Revocations(before) => (
            "DELETE FROM revocations WHERE sequence IN \
             (SELECT sequence FROM revocations WHERE until < $1 LIMIT $2)",
            before,
        ),
        ExpiredRows::ActiveSessions(before) => (
            "DELETE FROM seen WHERE (session, agent_id, replica) IN \
             (SELECT session, agent_id, replica FROM seen WHERE last_at < $1 LIMIT $2)",
            before,
        ),
    };
    let done = sqlx::query(sql)
        .bind(before.as_microsecond())
        .bind(i64::try_from(ROWS_PER_TRANSACTION).unwrap_or(i64::MAX))
        .execute(connection)
        .await?;
    Ok(done.rows_affected())
}
