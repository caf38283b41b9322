//! What outlives the process: tokens, browser sessions, revocations, audit.
//!
//! In: a URL, `sqlite:` or `postgres:`. Out: what was acknowledged, whatever
//! happens to the process. Never: a token, a cookie or a CSRF token, only their
//! hashes; a cluster's credential; a change of which only a part is there.
//!
//! Reads go to the database at once, from a few connections. Changes go through
//! one writer, which puts those that wait at the same time into one
//! transaction: a thousand at once cost a few waits for the disk, not a thousand.
//!
//! Times are kept to the microsecond; what is finer is cut off.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use self::change::{Change, Outcome};
use self::database::Database;
pub use self::model::{
    About, Actor, AuditEvent, AuditFilter, BrowserSession, MadeAt, Owned, Page, Revocation, SeenSession, Token, UsedFor,
};
use self::writer::Writer;
use tollgate_core::agent::AgentId;
use tollgate_core::session::SessionId;

mod audit;
pub mod bounds;
mod change;
mod database;
mod model;
mod read;
mod seen;
mod writer;

/// SHA-256 of a secret. Secrets made here have 256 random bits, so no salt is
/// needed; those that are imported come from platforms that make them at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    /// Of a secret.
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

/// Why the store did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The URL is of another kind, or the database cannot be opened.
    #[error("the store cannot be opened: {detail}")]
    Open {
        /// Without user or password.
        detail: String,
    },
    /// The database failed, or took longer than 10 s. Nothing of the operation took
    /// effect, unless it broke off in the very moment of its commit: then all may
    /// have.
    #[error("the store does not answer: {detail}")]
    Failed {
        /// Without values.
        detail: String,
    },
    /// There is one already with this id or this secret.
    #[error("the store has a {what} with this id or secret already")]
    Exists {
        /// `token` or `session`.
        what: &'static str,
    },
    /// The person has as many as one may have. Nothing was written.
    #[error("the person has {observed} of {allowed} {what}s that were not yet to end")]
    Full {
        /// `token` or `session`.
        what: &'static str,
        /// How many there are, revoked ones included.
        observed: u32,
        /// How many there may be.
        allowed: u32,
    },
    /// A text from outside is too long. Nothing was written.
    #[error("`{field}` is {observed} bytes long, {allowed} are allowed")]
    TooLong {
        /// Which.
        field: &'static str,
        /// Its length in bytes.
        observed: usize,
        /// The most there may be.
        allowed: usize,
    },
    /// A text from outside has a character that cannot be kept: a NUL, about which
    /// databases disagree, or what no session's id has. Nothing was written.
    #[error("`{field}` has a character that cannot be kept")]
    Character {
        /// Which.
        field: &'static str,
    },
}

/// Tokens, sessions, revocations and audit of one database.
///
/// Every method is one transaction, except for [`Self::forget_before`]; `Ok`
/// means that it is on disk. A change whose caller goes away is made all the
/// same. Dropping the store ends its connections once the changes that wait are
/// made.
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
    /// Opens the database and brings its tables to this version. A SQLite file
    /// that is absent is made, for its owner alone. Replicas may start at once.
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

    /// Whether the PostgreSQL server of a URL lets the gateway in. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub async fn probe(url: &SecretString) -> Result<(), Error> {
        Database::probe(url).await
    }

    /// Adds a token, and the audit event `token.created` with it, where its owner
    /// then has at most [`bounds::TOKENS`] that end later than this one was made.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Exists`], [`Error::TooLong`], [`Error::Character`], [`Error::Failed`].
    pub async fn create_token(&self, token: &Token, hash: SecretHash, by: &Actor) -> Result<(), Error> {
        self.change(Change::token(token, hash, Some(by))?).await
    }

    /// Adds a token of another platform, as it is, without an audit event, and
    /// however many there are.
    ///
    /// # Errors
    /// As [`Self::create_token`], except for [`Error::Full`].
    pub async fn import_token(&self, token: &Token, hash: SecretHash) -> Result<(), Error> {
        self.change(Change::token(token, hash, None)?).await
    }

    /// The token with this secret, also when it has ended.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn find_token(&self, hash: SecretHash) -> Result<Option<Token>, Error> {
        read::find_token(&self.database, hash).await
    }

    /// A page of tokens, also of those that have ended, newest first.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn tokens(&self, owned: &Owned, page: &Page<MadeAt>) -> Result<Vec<Token>, Error> {
        read::tokens(&self.database, owned, page).await
    }

    /// The token with this number, also when it has ended.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn token(&self, id: Uuid) -> Result<Option<Token>, Error> {
        read::token(&self.database, id).await
    }

    /// Notes that a token was used; an older time than the noted one is nothing.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn used_token(&self, id: Uuid, at: Timestamp) -> Result<(), Error> {
        self.change(Change::TokenUsed { id, at }).await
    }

    /// Adds a browser session, and the audit event `session.created` with it, where
    /// its owner then has at most [`bounds::BROWSER_SESSIONS`] that end later than
    /// this one was made.
    ///
    /// - `hash`: of the cookie.
    ///
    /// # Errors
    /// As [`Self::create_token`].
    pub async fn create_session(&self, session: &BrowserSession, hash: SecretHash, by: &Actor) -> Result<(), Error> {
        self.change(Change::session(session, hash, by)?).await
    }

    /// The browser session with this cookie, also when it has ended.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn find_session(&self, hash: SecretHash) -> Result<Option<BrowserSession>, Error> {
        read::find_session(&self.database, hash).await
    }

    /// A page of browser sessions, newest first. They are for all agents, so only the
    /// person counts.
    ///
    /// - `open_at`: those that let their owner in at this time; without it, all.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn browser_sessions(
        &self,
        owned: &Owned,
        open_at: Option<Timestamp>,
        page: &Page<MadeAt>,
    ) -> Result<Vec<BrowserSession>, Error> {
        read::browser_sessions(&self.database, owned, open_at, page).await
    }

    /// The browser session with this number, also when it has ended.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn browser_session(&self, id: Uuid) -> Result<Option<BrowserSession>, Error> {
        read::browser_session(&self.database, id).await
    }

    /// Ends a session: marks its token or browser session, adds it to the
    /// revocations, and the audit event `token.revoked` or `session.revoked`.
    ///
    /// Again for the same session, it changes nothing and gives what is there;
    /// with a later `until` it counts as a new revocation, so that every replica
    /// hears of the longer time.
    ///
    /// - `until`: when the credential ends by itself. `at`: now.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Character`], [`Error::Failed`].
    pub async fn revoke(
        &self,
        session: &SessionId,
        (until, at): (Timestamp, Timestamp),
        by: &Actor,
        about: &About,
    ) -> Result<Revocation, Error> {
        match self
            .writer
            .change(Change::revocation(session, (until, at), by, about)?)
            .await?
        {
            Outcome::Revoked(revocation) => Ok(revocation),
            Outcome::Done | Outcome::Full(_) | Outcome::Rows(_) => Err(Error::Failed {
                detail: "a revocation was not acknowledged as one".to_owned(),
            }),
        }
    }

    /// Revocations after a number, in the order they took effect, at most 1,000.
    /// None ever appears below one that was given out.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn revocations_after(&self, sequence: i64) -> Result<Vec<Revocation>, Error> {
        read::revocations_after(&self.database, sequence).await
    }

    /// The number of the latest revocation there is; 0 without any.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn latest_revocation(&self) -> Result<i64, Error> {
        read::latest_revocation(&self.database).await
    }

    /// What time the database has it to be, where it runs on another machine.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn time(&self) -> Result<Option<Timestamp>, Error> {
        read::time_of(&self.database).await
    }

    /// Up to when time was believed to be when rows were last removed; without such a
    /// time the latest of the audit events, none without any.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn reached_time(&self) -> Result<Option<Timestamp>, Error> {
        read::reached_time(&self.database).await
    }

    /// Keeps what time it is believed to be.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn reach_time(&self, time: Timestamp) -> Result<(), Error> {
        self.change(Change::Time(time)).await
    }

    /// Adds audit events; of one that is there already, by id, the latest time
    /// and the count are replaced.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Character`], [`Error::Failed`]; none is written then.
    pub async fn record(&self, events: &[AuditEvent]) -> Result<(), Error> {
        if events.is_empty() {
            return Ok(());
        }
        let rows = events.iter().map(audit::Row::of).collect::<Result<_, _>>()?;
        self.change(Change::Audit(rows)).await
    }

    /// Audit events, newest first.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditEvent>, Error> {
        audit::select(&self.database, filter).await
    }

    /// Notes which sessions a replica sees at work, in place of what it last said
    /// of the same session and agent. The first time stays.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Character`], [`Error::Failed`].
    pub async fn seen(&self, rows: &[SeenSession]) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        self.change(Change::seen(rows)?).await
    }

    /// A page of the sessions seen at work since then: one row for each session and
    /// agent, what several replicas saw of it put together (requests and open streams
    /// added up; replica and client of the latest).
    ///
    /// - `silent`: what a replica last said before it has no open streams, so that those
    ///   of one that died are soon forgotten.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn active(
        &self,
        (since, silent): (Timestamp, Timestamp),
        owned: &Owned,
        page: &Page<UsedFor>,
    ) -> Result<Vec<SeenSession>, Error> {
        seen::active(&self.database, (since, silent), owned, page).await
    }

    /// Which of these sessions, in their text form, were seen at work since then. At
    /// most 1,000 are asked for.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn seen_since(&self, since: Timestamp, sessions: &[String]) -> Result<Vec<String>, Error> {
        seen::since(&self.database, since, sessions).await
    }

    /// Whom a session was seen of, and for which agents, since it is known who was
    /// at work: one row for each person, agent and replica, latest first, at most
    /// 1,000.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn seen_of(&self, session: &SessionId) -> Result<Vec<SeenSession>, Error> {
        seen::of(&self.database, session).await
    }

    /// Binds tokens of versions that knew an agent by its number alone to the agent that
    /// has the number now. Those whose number no agent has let nobody in again, whoever
    /// gets it. Gives how many there are of either.
    ///
    /// - `agents`: those there are, by number, as [`tollgate_core::agent::Agent::identity`].
    ///
    /// # Errors
    /// [`Error::Failed`]; what is left then is bound the next time.
    pub async fn bind_tokens(&self, agents: &BTreeMap<AgentId, String>) -> Result<(u64, u64), Error> {
        let (mut bound, mut orphaned) = (0_u64, 0_u64);
        while let Some(agent_id) = read::unbound_agent(&self.database).await? {
            let identity = agents.get(&agent_id);
            let change = Change::Bind {
                agent_id,
                identity: identity.cloned().unwrap_or_default(),
            };
            if let Outcome::Rows(rows) = self.writer.change(change).await? {
                let count = if identity.is_some() { &mut bound } else { &mut orphaned };
                *count = count.saturating_add(rows);
            }
        }
        Ok((bound, orphaned))
    }

    /// Forgets audit events and tokens that ended before `audit`, revocations and
    /// browser sessions that have ended, and who was at work more than a day ago.
    ///
    /// Done in small transactions, so that other changes need not wait long; what
    /// is left after an error is forgotten the next time.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub async fn forget_before(&self, audit: Timestamp, now: Timestamp) -> Result<(), Error> {
        for old in change::Old::all(audit, now) {
            while let Outcome::Rows(rows) = self.writer.change(Change::Forget(old)).await? {
                if rows < change::AT_ONCE {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn change(&self, change: Change) -> Result<(), Error> {
        match self.writer.change(change).await? {
            Outcome::Full(full) => Err(full),
            Outcome::Done | Outcome::Revoked(_) | Outcome::Rows(_) => Ok(()),
        }
    }
}
