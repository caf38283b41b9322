//! The store of what outlives the process: tokens, browser sessions, revocations and the audit
//! log. Its URL is `sqlite:` or `postgres:`.
//!
//! Reads go to the database at once, from a few connections. Changes go through one writer,
//! which puts those that wait at the same time into one transaction: a thousand at once cost a
//! few waits for the disk, not a thousand.
//!
//! Times are kept to the microsecond; anything finer is truncated.
//!
//! Invariant: an acknowledged change survives a crash of the process, and a change is stored
//! whole or not at all.
//!
//! Security: tokens, cookies and CSRF tokens are stored only as hashes, and credentials of
//! clusters not at all.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use self::change::{Change, ChangeOutcome};
use self::database::Database;
pub use self::model::{
    ActiveSession, ActiveSessionCursor, Actor, AuditEvent, AuditFilter, BrowserSession, CreationCursor,
    CredentialFilter, Page, Revocation, SessionOwner, Token,
};
use self::writer::Writer;
use tollgate_core::agent::AgentId;
use tollgate_core::session::SessionId;

mod active_sessions;
mod audit;
pub mod bounds;
mod change;
mod database;
mod model;
mod read;
mod writer;

/// SHA-256 of a secret. No salt is needed: secrets made here have 256 random bits, and imported
/// ones come from platforms that make them at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    /// Hashes a secret.
    pub fn of(secret: &SecretString) -> Self {
        Self(Sha256::digest(secret.expose_secret().as_bytes()).into())
    }

    /// The bytes, for the store.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash")
    }
}

/// Why an operation of the store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The URL is of an unknown kind, or the database cannot be opened.
    #[error("the store cannot be opened: {detail}")]
    Open {
        /// Without user or password.
        detail: String,
    },
    /// The database failed, or took longer than 10 s. The operation had no effect, unless the
    /// failure came during its commit; then all of it may have taken effect.
    #[error("the store does not answer: {detail}")]
    Failed {
        /// Without values.
        detail: String,
    },
    /// An entry with this id or this secret exists already.
    #[error("the store has a {what} with this id or secret already")]
    Exists {
        /// `token` or `session`.
        what: &'static str,
    },
    /// The person has reached the limit. Nothing was written.
    #[error("the person has {observed} of {allowed} {what}s that were not yet to end")]
    LimitReached {
        /// `token` or `session`.
        what: &'static str,
        /// How many there are, revoked ones included.
        observed: u32,
        /// The most there may be.
        allowed: u32,
    },
    /// A text from outside is too long. Nothing was written.
    #[error("`{field}` is {observed} bytes long, {allowed} are allowed")]
    TooLong {
        /// Name of the field.
        field: &'static str,
        /// Its length in bytes.
        observed: usize,
        /// The most there may be.
        allowed: usize,
    },
    /// A text from outside has a character that cannot be stored: a NUL, which databases treat
    /// differently, or one that no session id has. Nothing was written.
    #[error("`{field}` has a character that cannot be kept")]
    Character {
        /// Name of the field.
        field: &'static str,
    },
}

/// The tokens, sessions, revocations and audit events of one database.
///
/// Every method is one transaction, except [`Self::delete_expired`]; `Ok` means that it is on
/// disk. A change is made even if its caller goes away. Dropping the store closes its connections
/// once all waiting changes are made.
pub struct Store {
    database: Database,
    writer: Writer,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("kind", &self.database.kind()).finish()
    }
}

impl Store {
    /// Opens the database and migrates its tables to this version. A missing SQLite file is
    /// created, accessible only to its owner. Replicas may start at the same time.
    ///
    /// - `url`: `sqlite:PATH` (the rest is the path, whatever is in it) or
    ///   `postgres://…` as libpq has it (`sslmode`, `sslrootcert`).
    ///
    /// Needs a Tokio runtime, which then runs the writer.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub async fn open(url: &SecretString) -> Result<Self, Error> {
        let database = Database::open(url).await?;
        let writer = Writer::start(database.clone());
        Ok(Self { database, writer })
    }

    /// Checks that the PostgreSQL server of a URL accepts the gateway. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub async fn probe(url: &SecretString) -> Result<(), Error> {
        Database::probe(url).await
    }

    /// Adds a token together with the audit event `token.created`. Its owner may then have at
    /// most [`bounds::TOKENS`] tokens that expire after this one was made.
    ///
    /// # Errors
    /// [`Error::LimitReached`], [`Error::Exists`], [`Error::TooLong`], [`Error::Character`], [`Error::Failed`].
    pub async fn create_token(&self, token: &Token, hash: SecretHash, by: &Actor) -> Result<(), Error> {
        self.change(Change::token(token, hash, Some(by))?).await
    }

    /// Adds a token of another platform unchanged, without an audit event and without a limit on
    /// their number.
    ///
    /// # Errors
    /// As [`Self::create_token`], except for [`Error::LimitReached`].
    pub async fn import_token(&self, token: &Token, hash: SecretHash) -> Result<(), Error> {
        self.change(Change::token(token, hash, None)?).await
    }

    /// Returns the token with this secret, even if it has ended.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn find_token(&self, hash: SecretHash) -> Result<Option<Token>, Error> {
        read::find_token(&self.database, hash).await
    }

    /// Returns a page of tokens, newest first, including those that have ended.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn tokens(&self, filter: &CredentialFilter, page: &Page<CreationCursor>) -> Result<Vec<Token>, Error> {
        read::tokens(&self.database, filter, page).await
    }

    /// Returns the token with this id, even if it has ended.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn token(&self, id: Uuid) -> Result<Option<Token>, Error> {
        read::token(&self.database, id).await
    }

    /// Records when a token was used. A time older than the recorded one is ignored.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn record_token_use(&self, id: Uuid, at: Timestamp) -> Result<(), Error> {
        self.change(Change::TokenUsed { id, at }).await
    }

    /// Adds a browser session together with the audit event `session.created`. Its owner may then
    /// have at most [`bounds::BROWSER_SESSIONS`] sessions that expire after this one was made.
    ///
    /// - `hash`: hash of the cookie.
    ///
    /// # Errors
    /// As [`Self::create_token`].
    pub async fn create_session(&self, session: &BrowserSession, hash: SecretHash, by: &Actor) -> Result<(), Error> {
        self.change(Change::session(session, hash, by)?).await
    }

    /// Returns the browser session with this cookie, even if it has ended.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn find_session(&self, hash: SecretHash) -> Result<Option<BrowserSession>, Error> {
        read::find_session(&self.database, hash).await
    }

    /// Returns a page of browser sessions, newest first. They are for all agents, so `filter`
    /// applies by person only.
    ///
    /// - `open_at`: returns only sessions in force at this time; without it, all.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn browser_sessions(
        &self,
        filter: &CredentialFilter,
        open_at: Option<Timestamp>,
        page: &Page<CreationCursor>,
    ) -> Result<Vec<BrowserSession>, Error> {
        read::browser_sessions(&self.database, filter, open_at, page).await
    }

    /// Returns the browser session with this id, even if it has ended.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn browser_session(&self, id: Uuid) -> Result<Option<BrowserSession>, Error> {
        read::browser_session(&self.database, id).await
    }

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
    /// [`Error::TooLong`], [`Error::Character`], [`Error::Failed`].
    pub async fn revoke(
        &self,
        session: &SessionId,
        (until, at): (Timestamp, Timestamp),
        by: &Actor,
        owner: &SessionOwner,
    ) -> Result<Revocation, Error> {
        match self
            .writer
            .change(Change::revocation(session, (until, at), by, owner)?)
            .await?
        {
            ChangeOutcome::Revoked(revocation) => Ok(revocation),
            ChangeOutcome::Done | ChangeOutcome::LimitReached(_) | ChangeOutcome::Rows(_) => Err(Error::Failed {
                detail: "a revocation was not acknowledged as one".to_owned(),
            }),
        }
    }

    /// Returns the revocations after a sequence number, in the order they took effect, at most
    /// 1,000. None ever appears below one that was returned.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn revocations_after(&self, sequence: i64) -> Result<Vec<Revocation>, Error> {
        read::revocations_after(&self.database, sequence).await
    }

    /// Returns the sequence number of the latest revocation; 0 without any.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn latest_revocation(&self) -> Result<i64, Error> {
        read::latest_revocation(&self.database).await
    }

    /// Returns the database's time if it may run on another machine.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn time(&self) -> Result<Option<Timestamp>, Error> {
        read::time_of(&self.database).await
    }

    /// Returns the time that was assumed when rows were last removed. Without one, returns the
    /// time of the latest audit event; `None` without any.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn time_watermark(&self) -> Result<Option<Timestamp>, Error> {
        read::time_watermark(&self.database).await
    }

    /// Stores the time that is assumed when rows are removed.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn advance_time_watermark(&self, time: Timestamp) -> Result<(), Error> {
        self.change(Change::TimeWatermark(time)).await
    }

    /// Adds audit events. For an id that exists already, the latest time and the count are
    /// replaced.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Character`], [`Error::Failed`]; then no event is written.
    pub async fn record(&self, events: &[AuditEvent]) -> Result<(), Error> {
        if events.is_empty() {
            return Ok(());
        }
        let rows = events.iter().map(audit::AuditRow::of).collect::<Result<_, _>>()?;
        self.change(Change::Audit(rows)).await
    }

    /// Returns audit events, newest first.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditEvent>, Error> {
        audit::select(&self.database, filter).await
    }

    /// Stores the sessions that a replica saw active, replacing its earlier row for the same session
    /// and agent. The first time is kept.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Character`], [`Error::Failed`].
    pub async fn upsert_active_sessions(&self, rows: &[ActiveSession]) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        self.change(Change::upsert_active_sessions(rows)?).await
    }

    /// Returns a page of the sessions active since a time, one row for each session and agent. Rows
    /// of several replicas are merged: requests and open streams are added up; replica and client
    /// are those of the latest.
    ///
    /// - `stale_before`: rows last reported before this time count as having no open streams, so that
    ///   those of a replica that died are soon forgotten.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn active_sessions(
        &self,
        (since, stale_before): (Timestamp, Timestamp),
        filter: &CredentialFilter,
        page: &Page<ActiveSessionCursor>,
    ) -> Result<Vec<ActiveSession>, Error> {
        active_sessions::select(&self.database, (since, stale_before), filter, page).await
    }

    /// Returns which of these sessions, at most 1,000 in their text form, were active since a time.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn active_since(&self, since: Timestamp, sessions: &[String]) -> Result<Vec<String>, Error> {
        active_sessions::active_since(&self.database, since, sessions).await
    }

    /// Returns the people and agents a session was active with, as far back as this is kept: one row
    /// for each person, agent and replica, latest first, at most 1,000.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn activity_of(&self, session: &SessionId) -> Result<Vec<ActiveSession>, Error> {
        active_sessions::activity_of(&self.database, session).await
    }

    /// Binds tokens from versions that identified an agent by its number alone to the agent that
    /// has the number now.
    ///
    /// A token whose number no agent has never lets anybody in again, even if an agent gets the
    /// number later. Returns how many tokens there are of either kind.
    ///
    /// - `agents`: all agents by number, as [`tollgate_core::agent::Agent::identity`].
    ///
    /// # Errors
    /// [`Error::Failed`]; the remaining tokens are bound the next time.
    pub async fn bind_tokens(&self, agents: &BTreeMap<AgentId, String>) -> Result<(u64, u64), Error> {
        let (mut bound, mut orphaned) = (0_u64, 0_u64);
        while let Some(agent_id) = read::unbound_agent(&self.database).await? {
            let identity = agents.get(&agent_id);
            let change = Change::Bind {
                agent_id,
                identity: identity.cloned().unwrap_or_default(),
            };
            if let ChangeOutcome::Rows(rows) = self.writer.change(change).await? {
                let count = if identity.is_some() { &mut bound } else { &mut orphaned };
                *count = count.saturating_add(rows);
            }
        }
        Ok((bound, orphaned))
    }

    /// Removes audit events and tokens that ended before `audit`, revocations and browser sessions
    /// that have ended, and rows of sessions last active more than a day ago.
    ///
    /// Uses small transactions, so that other changes need not wait long. What is left after an
    /// error is removed the next time.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn delete_expired(&self, audit: Timestamp, now: Timestamp) -> Result<(), Error> {
        for expired in change::ExpiredRows::all(audit, now) {
            while let ChangeOutcome::Rows(rows) = self.writer.change(Change::DeleteExpired(expired)).await? {
                if rows < change::ROWS_PER_TRANSACTION {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn change(&self, change: Change) -> Result<(), Error> {
        match self.writer.change(change).await? {
            ChangeOutcome::LimitReached(full) => Err(full),
            ChangeOutcome::Done | ChangeOutcome::Revoked(_) | ChangeOutcome::Rows(_) => Ok(()),
        }
    }
}
