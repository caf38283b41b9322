//! One database: its connections, tables, transactions and errors.
//!
//! Invariant: a commit is on disk when it is acknowledged.
//!
//! Security: no error contains a URL, a user or a value.
//!
//! Invariant: no read and no change waits longer than 10 s, its time in the queue included. Only migrations do.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::str::FromStr as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use prometheus_client::metrics::gauge::Gauge;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::any::{Any, AnyArguments, AnyConnectOptions, AnyPoolOptions, AnyRow, install_default_drivers};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::{AnyConnection, AnyPool, Connection as _, Executor as _, SqlSafeStr as _, Transaction};
use tokio::runtime::Handle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::Error;
use crate::metrics::Metrics;

/// Time limit of a read or a change, including the waits for its turn and for a connection.
pub(crate) const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(5);
/// How long an idle connection may take to answer a ping. sqlx opens its sockets itself and sets
/// no TCP options, so without this limit a connection to a vanished host would block until TCP
/// stops retransmitting: 15 minutes.
const PING: Duration = Duration::from_secs(1);
/// Time limit for returning a connection to the pool.
const RETURN: Duration = Duration::from_secs(5);
/// Pause between two attempts on a busy database.
const PAUSE: Duration = Duration::from_millis(20);
/// Connections for lookups, per process.
const LOOKUPS: u32 = 4;
/// Connections for lists, per process.
const LISTS: u32 = 4;
/// Connections for the writer: one in use, and one for when the first hangs.
const WRITERS: u32 = 2;

const SQLITE_SETTINGS: &str = "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                               PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;";
/// INVARIANT: a commit is on disk, regardless of the PostgreSQL server's default. Stricter settings
/// of the server are kept.
const SYNCHRONOUS_COMMIT: &str = "SELECT CASE WHEN current_setting('synchronous_commit') = 'off' \
                                  THEN set_config('synchronous_commit', 'on', false) END;";
/// Makes the server abort after [`OPERATION_TIMEOUT`] what its client gave up: a replica that
/// vanished in the middle of a transaction must not keep its locks. Stricter settings of the
/// server are kept.
const SERVER_TIMEOUTS: &str = "SELECT set_config(name, '10000', false) FROM pg_settings \
                               WHERE name IN ('statement_timeout', 'idle_in_transaction_session_timeout') \
                               AND setting::bigint NOT BETWEEN 1 AND 10000;";
/// Returns a row if changes are possible: a standby, or a primary that was made one, returns none.
const IS_WRITABLE: &str = "SELECT 1 WHERE current_setting('transaction_read_only') = 'off'";
/// The name of sqlx's driver.
const POSTGRES: &str = "PostgreSQL";
const READ_ONLY: &str = "the database server only reads, as a standby does: the URL must lead to the primary";
const NO_TIMEOUTS: &str =
    "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;";

/// The bytes of a path to escape in a URL.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseKind {
    Sqlite,
    Postgres,
}

/// What a read is for. Lists of one caller must not keep others from signing in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// One row by its key, or revocations; authentication waits for it.
    Lookup,
    List,
}

/// The connections of one database; clones share them.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) kind: DatabaseKind,
    lookups: AnyPool,
    lists: AnyPool,
    writers: AnyPool,
    /// Counts how long reads and changes take, once it is set.
    pub(crate) metrics: Arc<OnceLock<Arc<Metrics>>>,
}

/// A connection of a pool, for one read or one transaction.
///
/// INVARIANT: it returns its place in the pool within the deadline of its use plus [`RETURN`],
/// regardless of what happens to the server.
pub(crate) struct LeasedConnection {
    /// `None` once it is given up.
    connection: Option<PoolConnection<Any>>,
}

impl Database {
    pub(crate) async fn open(url: &SecretString) -> Result<Self, Error> {
        install_default_drivers();
        let (kind, options) = options(url.expose_secret())?;
        migrate(kind, &options).await?;
        Ok(Self {
            kind,
            lookups: pool(kind, LOOKUPS).connect_lazy_with(options.clone()),
            lists: pool(kind, LISTS).connect_lazy_with(options.clone()),
            writers: pool(kind, WRITERS).connect_lazy_with(options),
            metrics: Arc::default(),
        })
    }

    pub(crate) async fn probe(url: &SecretString) -> Result<(), Error> {
        install_default_drivers();
        let url = url.expose_secret();
        // Not by `options`, which would create the file of a `sqlite:` URL.
        let options = AnyConnectOptions::from_str(url).map_err(|_| open_error("its URL is not valid"))?;
        let connected = timeout(CONNECT, AnyConnection::connect_with(&options)).await;
        let connection = connected
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
            .map_err(|error| open_error(detail(&error)))?;
        // The server notices by itself that this connection is gone.
        drop(timeout(CONNECT, connection.close()).await);
        Ok(())
    }

    pub(crate) async fn rows(
        &self,
        purpose: Purpose,
        query: Query<'_, Any, AnyArguments>,
    ) -> Result<Vec<AnyRow>, sqlx::Error> {
        let pool = match purpose {
            Purpose::Lookup => &self.lookups,
            Purpose::List => &self.lists,
        };
        let begun = Instant::now();
        let deadline = begun + OPERATION_TIMEOUT;
        let rows = async {
            let mut leased = LeasedConnection::acquire(pool, deadline).await?;
            let rows = timeout_at(deadline, query.fetch_all(leased.connection()?)).await;
            leased.finish(rows)
        };
        let rows = rows.await;
        self.observe("read", begun);
        if rows.is_err() {
            self.count_failure("read");
        }
        rows
    }

    pub(crate) fn observe(&self, operation: &'static str, begun: Instant) {
        if let Some(metrics) = self.metrics.get() {
            metrics.observe(operation, begun.elapsed());
        }
    }

    pub(crate) fn count_failure(&self, operation: &'static str) {
        if let Some(metrics) = self.metrics.get() {
            metrics.failed(operation);
        }
    }

    /// Counts a change that waits for the writer, as long as the value lives.
    pub(crate) fn count_waiting(&self) -> Option<WaitingChange> {
        let waiting = self.metrics.get()?.waiting.clone();
        waiting.inc();
        Some(WaitingChange(waiting))
    }

    pub(crate) async fn writer(&self, deadline: Instant) -> Result<LeasedConnection, sqlx::Error> {
        LeasedConnection::acquire(&self.writers, deadline).await
    }
}

/// A change that waits, counted until this is dropped.
pub(crate) struct WaitingChange(Gauge);

impl Drop for WaitingChange {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl LeasedConnection {
    /// Returns a connection that answers. sqlx can test idle connections, too, but waits as long
    /// as TCP for those that do not answer, and closes them gracefully.
    async fn acquire(pool: &AnyPool, deadline: Instant) -> Result<Self, sqlx::Error> {
        let late = |_| sqlx::Error::PoolTimedOut;
        let mut read_only = 0_u32;
        loop {
            let mut connection = timeout_at(deadline, pool.acquire()).await.map_err(late)??;
            match timeout(PING, ask(&mut connection)).await {
                Ok(Ok(State::Writable)) => {
                    let connection = Some(connection);
                    return Ok(Self { connection });
                }
                Ok(Ok(State::ReadOnly)) => {
                    // `close` is graceful and may wait for the server, and a drop would put it back into the pool.
                    drop(connection.detach());
                    // The next one may be to the new primary. After as many as the pool holds, even a new one only
                    // reads.
                    read_only = read_only.saturating_add(1);
                    if read_only > pool.options().get_max_connections() {
                        return Err(sqlx::Error::Protocol(READ_ONLY.to_owned()));
                    }
                }
                Ok(Err(_)) => drop(connection.detach()),
                Err(_) => {
                    if let Some(leased) = Self::answering(pool, connection).await {
                        return Ok(leased);
                    }
                }
            }
        }
    }

    /// Asks an idle connection that did not answer once more, and all others of its pool with it, so
    /// that nobody waits for each of them. Keeps those that answer: a server that was busy for a
    /// moment would be busier if every replica made all its connections anew.
    async fn answering(pool: &AnyPool, late: PoolConnection<Any>) -> Option<Self> {
        let others = std::iter::from_fn(|| pool.try_acquire());
        let asked = std::iter::once(late).chain(others).map(async |mut connection| {
            let answered = timeout(PING, ask(&mut connection)).await;
            if let Ok(Ok(State::Writable)) = answered {
                let connection = Some(connection);
                return Some(Self { connection });
            }
            drop(connection.detach());
            None
        });
        let answered = join_all(asked).await;
        // The others that answered return to the pool as they are dropped.
        answered.into_iter().flatten().next()
    }

    pub(crate) fn connection(&mut self) -> Result<&mut AnyConnection, sqlx::Error> {
        self.connection.as_deref_mut().ok_or(sqlx::Error::PoolClosed)
    }

    pub(crate) async fn begin(&mut self, kind: DatabaseKind) -> Result<Transaction<'_, Any>, sqlx::Error> {
        let connection = self.connection()?;
        match kind {
            // Takes the lock now; a transaction that reads first may not get it later.
            DatabaseKind::Sqlite => connection.begin_with("BEGIN IMMEDIATE").await,
            DatabaseKind::Postgres => connection.begin().await,
        }
    }

    /// Returns the result of the work. A connection that did not answer in time is closed, and so is
    /// one whose server takes no work any more.
    pub(crate) fn finish<T>(mut self, done: Result<Result<T, sqlx::Error>, Elapsed>) -> Result<T, sqlx::Error> {
        let done = done.unwrap_or(Err(sqlx::Error::PoolTimedOut));
        let is_usable = match &done {
            Ok(_) => true,
            Err(sqlx::Error::PoolTimedOut) => false,
            Err(error) => !is_about_connection(error),
        };
        if !is_usable {
            drop(self.connection.take().map(PoolConnection::detach));
        }
        done
    }
}

impl Drop for LeasedConnection {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        // sqlx asks the server without a time limit when it returns a connection to the pool. If
        // the return is given up, the connection is closed.
        let back = connection.return_to_pool();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(timeout(RETURN, back));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Writable,
    ReadOnly,
}

/// Asks the server of a connection, as a ping does, whether it takes changes.
// SECURITY: a former primary that only reads has no revocations of the new one. A connection to it is
// used for nothing.
async fn ask(connection: &mut AnyConnection) -> Result<State, sqlx::Error> {
    if connection.backend_name() != POSTGRES {
        return connection.ping().await.map(|()| State::Writable);
    }
    let writable = connection.fetch_optional(sqlx::raw_sql(IS_WRITABLE)).await?;
    Ok(match writable {
        Some(_) => State::Writable,
        None => State::ReadOnly,
    })
}

/// Whether an error is about the connection or its server, and not about what was asked: the server
/// only reads (class 25), is stopping or was made to close the connection (57), or cannot be
/// reached (08). A statement that took too long (57014) is about what was asked.
fn is_about_connection(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    let code = error.code().unwrap_or_default();
    code.len() == 5 && code != "57014" && ["08", "25", "57"].iter().any(|class| code.starts_with(class))
}

/// Migrates the tables, and retries while another process does so. Only connecting is limited in
/// time, since an index over millions of rows may take long.
async fn migrate(kind: DatabaseKind, options: &AnyConnectOptions) -> Result<(), Error> {
    let late = || match kind {
        DatabaseKind::Sqlite => open_error(detail(&sqlx::Error::PoolTimedOut)),
        DatabaseKind::Postgres => Error::Unreachable(detail(&sqlx::Error::PoolTimedOut)),
    };
    let end = Instant::now() + OPERATION_TIMEOUT;
    loop {
        let opened = timeout_at(end, connect_without_timeouts(kind, options)).await;
        let done = match opened.map_err(|_| late())? {
            Ok(connection) => try_migrate(kind, connection).await,
            Err(error) => Err(error.into()),
        };
        let error = match done {
            Ok(()) => return Ok(()),
            Err(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) => error,
            // The other errors contain only versions of tables.
            Err(other) => return Err(open_error(other.to_string())),
        };
        // PostgreSQL is not busy: sqlx waits there for the lock of another process's migration.
        if !(kind == DatabaseKind::Sqlite && is_busy(&error)) {
            return Err(match kind == DatabaseKind::Postgres && is_transient(&error) {
                true => Error::Unreachable(detail(&error)),
                false => open_error(detail(&error)),
            });
        }
        if Instant::now() >= end {
            return Err(late());
        }
        sleep(PAUSE).await;
    }
}

/// Whether the server was not reached, or says that it takes no connections now. Source: PostgreSQL,
/// appendix A, classes 08 (connection exception), 53 (insufficient resources) and 57 (operator
/// intervention).
fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut => true,
        sqlx::Error::Database(error) => error
            .code()
            .is_some_and(|code| ["08", "53", "57"].iter().any(|class| code.starts_with(class))),
        _ => false,
    }
}

/// Whether SQLite reports that another connection holds the lock. Its `busy_timeout` does not
/// apply to the change to WAL.
fn is_busy(error: &sqlx::Error) -> bool {
    const BUSY: u32 = 5;
    let code = error.as_database_error().and_then(|error| error.code());
    // The low byte of an extended code is the primary code.
    code.and_then(|code| code.parse::<u32>().ok())
        .is_some_and(|code| code & 0xff == BUSY)
}

/// Migrates on a separate connection: sqlx's lock for PostgreSQL ends with it, even after an
/// error.
async fn try_migrate(kind: DatabaseKind, mut connection: AnyConnection) -> Result<(), MigrateError> {
    let migrator = migrator(kind);
    match kind {
        // sqlx takes no lock for SQLite, so all migrations are one transaction.
        DatabaseKind::Sqlite => {
            let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
            migrator.run_direct(None, &mut *transaction, false).await?;
            transaction.commit().await?;
        }
        DatabaseKind::Postgres => migrator.run_direct(None, &mut connection, false).await?,
    }
    connection.close().await?;
    Ok(())
}

pub(crate) fn failed(error: &sqlx::Error) -> Error {
    Error::Failed(detail(error))
}

/// The text of an error without values. The messages of both databases name only tables and columns, except those
/// about authentication and about values.
fn detail(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            // PostgreSQL names the user in class 28, and quotes the value in class 22.
            if code.starts_with("28") {
                return format!("the database refused the login ({code})");
            }
            if code.starts_with("22") {
                return format!("the database refused a value ({code})");
            }
            format!("{} ({code})", error.message())
        }
        sqlx::Error::Io(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) => format!("TLS with the database failed: {error}"),
            None => format!("the connection failed: {}", error.kind()),
        },
        sqlx::Error::Tls(_) => "TLS with the database failed".to_owned(),
        sqlx::Error::PoolTimedOut => "no answer in time".to_owned(),
        sqlx::Error::Protocol(text) if text == READ_ONLY => READ_ONLY.to_owned(),
        sqlx::Error::PoolClosed => "it is closed".to_owned(),
        sqlx::Error::WorkerCrashed => "the database's thread ended".to_owned(),
        sqlx::Error::Configuration(_) => "the URL has a setting that is not valid".to_owned(),
        sqlx::Error::ColumnDecode { index, .. } => format!("column {index} has a value that is not possible there"),
        sqlx::Error::Encode(_) => "a value cannot be bound".to_owned(),
        sqlx::Error::ColumnNotFound(index) => format!("column `{index}` is missing"),
        _ => "the database answered in an unexpected way".to_owned(),
    }
}

fn open_error(detail: impl Into<String>) -> Error {
    Error::Open(detail.into())
}

fn options(url: &str) -> Result<(DatabaseKind, AnyConnectOptions), Error> {
    let (kind, url) = if let Some(path) = url.strip_prefix("sqlite:") {
        (DatabaseKind::Sqlite, sqlite_url(path)?)
    } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        (DatabaseKind::Postgres, url.to_owned())
    } else {
        return Err(open_error("its URL starts with neither `sqlite:` nor `postgres://`"));
    };
    let options = AnyConnectOptions::from_str(&url).map_err(|_| open_error("its URL is not valid"))?;
    Ok((kind, options))
}

/// Creates the file if it is missing, and returns a URL that sqlx reads as exactly this path.
fn sqlite_url(path: &str) -> Result<String, Error> {
    // After `//`, other programs expect a host, or a relative path.
    // `:memory:` would not outlive the process.
    if path.is_empty() || path.starts_with("//") || path.starts_with(":memory:") {
        return Err(open_error(
            "`sqlite:` needs the path of a file, as `sqlite:/var/lib/tollgate.db`",
        ));
    }
    // SECURITY: the file is created here, because SQLite would create it with the umask's
    // permissions. The files beside it (`-wal`, `-shm`) get the mode of this one.
    let unusable = |error: std::io::Error| open_error(format!("`{path}`: {error}"));
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    options.open(path).map_err(unusable)?;
    let path = Path::new(path).canonicalize().map_err(unusable)?;
    let path = path.to_str().ok_or_else(|| open_error("its path is not UTF-8"))?;
    Ok(format!("sqlite:{}", utf8_percent_encode(path, PATH)))
}

fn pool(kind: DatabaseKind, connections: u32) -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECT)
        // `LeasedConnection` tests the connections.
        .test_before_acquire(false)
        .after_connect(move |connection, _| Box::pin(prepare(kind, connection, SERVER_TIMEOUTS)))
}

/// - `timeouts`: the time limits to set on a PostgreSQL server.
async fn prepare(
    kind: DatabaseKind,
    connection: &mut AnyConnection,
    timeouts: &'static str,
) -> Result<(), sqlx::Error> {
    let settings: &[_] = match kind {
        DatabaseKind::Sqlite => &[SQLITE_SETTINGS],
        DatabaseKind::Postgres => &[SYNCHRONOUS_COMMIT, timeouts],
    };
    for settings in settings {
        connection.execute(sqlx::raw_sql(*settings)).await?;
    }
    Ok(())
}

async fn connect_without_timeouts(
    kind: DatabaseKind,
    options: &AnyConnectOptions,
) -> Result<AnyConnection, sqlx::Error> {
    let mut connection = AnyConnection::connect_with(options).await?;
    prepare(kind, &mut connection, NO_TIMEOUTS).await?;
    Ok(connection)
}

fn migrator(kind: DatabaseKind) -> Migrator {
    let migrations = match kind {
        DatabaseKind::Sqlite => [
            ("store", include_str!("migrations/sqlite/0001_store.sql")),
            ("identity", include_str!("migrations/sqlite/0002_identity.sql")),
            ("pages", include_str!("migrations/sqlite/0003_pages.sql")),
            ("agents", include_str!("migrations/sqlite/0004_agents.sql")),
            ("logins", include_str!("migrations/sqlite/0005_logins.sql")),
            ("audit", include_str!("migrations/sqlite/0006_audit.sql")),
            ("requests", include_str!("migrations/sqlite/0007_requests.sql")),
            ("networks", include_str!("migrations/sqlite/0008_networks.sql")),
        ],
        DatabaseKind::Postgres => [
            ("store", include_str!("migrations/postgres/0001_store.sql")),
            ("identity", include_str!("migrations/postgres/0002_identity.sql")),
            ("pages", include_str!("migrations/postgres/0003_pages.sql")),
            ("agents", include_str!("migrations/postgres/0004_agents.sql")),
            ("logins", include_str!("migrations/postgres/0005_logins.sql")),
            ("audit", include_str!("migrations/postgres/0006_audit.sql")),
            ("requests", include_str!("migrations/postgres/0007_requests.sql")),
            ("networks", include_str!("migrations/postgres/0008_networks.sql")),
        ],
    };
    // A version is a place in the list, and databases remember it: a new one goes to the end.
    let migrations = (1..).zip(migrations).map(|(version, (name, text))| {
        Migration::new(version, name.into(), MigrationType::Simple, text.into_sql_str(), false)
    });
    Migrator::with_migrations(migrations.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long lists do not block lookups.
    #[tokio::test]
    async fn lists_take_no_connection_from_lookups() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let database = Database::open(&SecretString::from(url)).await.unwrap();
        let mut lists = Vec::new();
        for _ in 0..LISTS {
            lists.push(
                LeasedConnection::acquire(&database.lists, Instant::now() + OPERATION_TIMEOUT)
                    .await
                    .unwrap(),
            );
        }
        assert!(database.lists.try_acquire().is_none(), "all connections are in use");
        let one = || sqlx::query_with("SELECT 1", AnyArguments::default());
        assert_eq!(database.rows(Purpose::Lookup, one()).await.unwrap().len(), 1);
        drop(lists);
        assert_eq!(database.rows(Purpose::List, one()).await.unwrap().len(), 1);
    }
}
