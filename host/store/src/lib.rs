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

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::metrics::Metrics;
use tollgate_runtime::tasks::Tasks;

pub use agents::{JoinOutcome, StoredAgentKey, StoredConnection, StoredReplica};
use change::Change;
use database::Database;
pub use locks::PersonLock;
pub use login_requests::{LoginRequest, LoginRequestState};
pub use logins::{Login, LoginKind, LoginToken};
pub use model::{
    ActiveSession, ActiveSessionCursor, Actor, AuditEvent, AuditFilter, BrowserSession, CreationCursor,
    CredentialFilter, Page, Revocation, SessionOwner, Token,
};
use query::{Statement, Value};
use writer::Writer;

mod active_sessions;
mod agents;
mod audit;
mod audit_row;
pub mod bounds;
mod change;
mod credentials;
mod database;
mod export;
mod export_queue;
mod locks;
mod login_requests;
mod logins;
pub mod metrics;
mod model;
mod query;
mod revocations;
mod writer;

/// SHA-256 of a secret. No salt is needed: secrets made here have 256 random bits, and imported
/// ones come from platforms that make them at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Debug)]
#[debug("SecretHash")]
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

/// Why an operation of the store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The URL is of an unknown kind, or the database cannot be opened. The text has neither user
    /// nor password.
    #[error("the store cannot be opened: {0}")]
    Open(String),
    /// The server of the database cannot be reached, or does not accept connections yet. It may later. The
    /// text has neither user nor password.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The database failed, or took longer than 10 s. The operation had no effect, unless the
    /// failure came during its commit; then all of it may have taken effect. The text has no values.
    #[error("the store does not answer: {0}")]
    Failed(String),
    /// An entry with this id or this secret exists already.
    ///
    /// It is a `token`, a `session`, a `login` or a `login request`.
    #[error("the store has a {0} with this id or secret already")]
    Exists(&'static str),
    /// A limit is reached. Nothing was written.
    #[error("there are {observed} {what}s, {allowed} are allowed")]
    LimitReached {
        /// `token`, `session` or `login`, of one person; `login request`, of one network or of all;
        /// `person lock`.
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
    #[error("`{0}` has a character that cannot be stored")]
    Character(&'static str),
}

/// The tokens, sessions, revocations and audit events of one database.
///
/// Every method is one transaction, except [`Self::delete_expired`]; `Ok` means that it is on
/// disk. A change is made even if its caller goes away. Dropping the store closes its connections
/// once all waiting changes are made.
///
/// Every method on an open store may fail with [`Error::Failed`]; its documentation names only
/// further errors.
#[derive(derive_more::Debug)]
#[debug("Store {{ kind: {:?} }}", self.database.kind)]
pub struct Store {
    database: Database,
    writer: Writer,
    /// Whether audit events of this process wait to be exported.
    exports: Arc<AtomicBool>,
    /// The task that writes.
    pub tasks: Tasks,
}

impl Store {
    /// Counts from now on how long reads and changes take. Only the first call counts.
    pub fn measure_with(&self, metrics: Arc<Metrics>) {
        let _is_first = self.database.metrics.set(metrics);
    }

    /// Opens the database and migrates its tables to this version. A missing SQLite file is
    /// created, accessible only to its owner. Replicas may start at the same time.
    ///
    /// - `url`: `sqlite:PATH` (the rest is the path, regardless of its characters) or
    ///   `postgres://…` as libpq has it (`sslmode`, `sslrootcert`).
    ///
    /// Needs a Tokio runtime, which then runs the writer.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub async fn open(url: &SecretString) -> Result<Self, Error> {
        let database = Database::open(url).await?;
        let exports = Arc::new(AtomicBool::new(false));
        let tasks = Tasks::default();
        let writer = Writer::start(database.clone(), Arc::clone(&exports), &tasks);
        Ok(Self {
            database,
            writer,
            exports,
            tasks,
        })
    }

    /// Checks that the PostgreSQL server of a URL accepts the gateway. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub async fn probe(url: &SecretString) -> Result<(), Error> {
        Database::probe(url).await
    }

    /// Makes a change of one statement; returns how many rows it affected.
    async fn execute<const N: usize>(&self, sql: &'static str, values: [Value; N]) -> Result<u64, Error> {
        let change = Change::Statements(vec![Statement::new(sql, values)]);
        Ok(self.writer.change(change).await?.rows)
    }
}
