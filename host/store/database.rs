//! One database: its connections, its tables, and how its errors are told.
//!
//! In: a URL. Out: transactions, rows. Never: a URL, a user or a value in an
//! error; a commit that is only in memory.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::str::FromStr as _;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::any::{Any, AnyConnectOptions, AnyPoolOptions, install_default_drivers};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AnyConnection, AnyPool, Connection as _, Executor as _, SqlSafeStr as _, Transaction};
use tokio::time::{sleep, timeout};

use super::Error;

/// How long a read or a transaction may take, waiting for a connection included.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// Between two tries of a database that is busy.
const PAUSE: Duration = Duration::from_millis(20);
/// Connections for reads, for each process.
const READERS: u32 = 8;
/// One is at work; the other is for when that one hangs.
const WRITERS: u32 = 2;

/// Bytes of a path that stand for themselves in a URL.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');

/// The kinds of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sqlite,
    Postgres,
}

/// Connections of one database; clones share them.
#[derive(Clone)]
pub(super) struct Database {
    kind: Kind,
    readers: AnyPool,
    writers: AnyPool,
}

impl Database {
    /// Opens it and brings its tables to this version.
    pub(super) async fn open(url: &SecretString) -> Result<Self, Error> {
        install_default_drivers();
        let (kind, options) = options(url.expose_secret())?;
        timeout(LIMIT, migrate(kind, &options))
            .await
            .map_err(|_| open_error(detail(&sqlx::Error::PoolTimedOut)))??;
        Ok(Self {
            kind,
            readers: pool(kind, READERS).connect_lazy_with(options.clone()),
            writers: pool(kind, WRITERS).connect_lazy_with(options),
        })
    }

    /// Connects to a PostgreSQL server and changes nothing.
    pub(super) async fn probe(url: &SecretString) -> Result<(), Error> {
        install_default_drivers();
        let url = url.expose_secret();
        let options = AnyConnectOptions::from_str(url).map_err(|_| open_error("its URL is not valid"))?;
        let connected = timeout(CONNECT, AnyConnection::connect_with(&options)).await;
        let connection = connected
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
            .map_err(|error| open_error(detail(&error)))?;
        // The server notices by itself when this one goes away.
        drop(timeout(CONNECT, connection.close()).await);
        Ok(())
    }

    /// Which kind it is.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Connections for reads.
    pub(super) fn readers(&self) -> &AnyPool {
        &self.readers
    }

    /// Starts a transaction that will write.
    pub(super) async fn begin(&self) -> Result<Transaction<'static, Any>, sqlx::Error> {
        match self.kind {
            // Takes the lock now: one that reads first may not get it later.
            Kind::Sqlite => self.writers.begin_with("BEGIN IMMEDIATE").await,
            Kind::Postgres => self.writers.begin().await,
        }
    }
}

/// Makes the tables, again and again while another process is at it.
async fn migrate(kind: Kind, options: &AnyConnectOptions) -> Result<(), Error> {
    loop {
        let error = match try_migrate(kind, options).await {
            Ok(()) => return Ok(()),
            Err(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) => error,
            // The others name versions of tables only.
            Err(other) => return Err(open_error(other.to_string())),
        };
        if !(kind == Kind::Sqlite && is_busy(&error)) {
            return Err(open_error(detail(&error)));
        }
        sleep(PAUSE).await;
    }
}

/// Whether SQLite says that another connection is at work. Its `busy_timeout` does
/// not count for the change to WAL, which waits for nobody.
fn is_busy(error: &sqlx::Error) -> bool {
    const BUSY: u32 = 5;
    let code = error.as_database_error().and_then(|error| error.code());
    // The low byte of an extended code is the plain one.
    code.and_then(|code| code.parse::<u32>().ok())
        .is_some_and(|code| code & 0xff == BUSY)
}

/// On a connection of its own: sqlx's lock for PostgreSQL ends with it, also after
/// an error.
async fn try_migrate(kind: Kind, options: &AnyConnectOptions) -> Result<(), MigrateError> {
    let migrator = migrator(kind);
    let mut connection = AnyConnection::connect_with(options).await?;
    prepare(kind, &mut connection).await?;
    match kind {
        // sqlx locks nothing here, so the whole of it is one transaction.
        Kind::Sqlite => {
            let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
            migrator.run_direct(None, &mut *transaction, false).await?;
            transaction.commit().await?;
        }
        Kind::Postgres => migrator.run_direct(None, &mut connection, false).await?,
    }
    connection.close().await?;
    Ok(())
}

/// Runs a read or a transaction, within its time.
pub(super) async fn timed<T>(work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    timeout(LIMIT, work).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// What failed, as the other rooms are told.
pub(super) fn failed(error: &sqlx::Error) -> Error {
    Error::Failed { detail: detail(error) }
}

/// An error without values. The messages of both databases name tables and
/// columns only, except for those about who may come in.
fn detail(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
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
        sqlx::Error::PoolClosed => "it is closed".to_owned(),
        sqlx::Error::WorkerCrashed => "the database's thread ended".to_owned(),
        sqlx::Error::Configuration(_) => "the URL has a setting that is not valid".to_owned(),
        sqlx::Error::ColumnDecode { index, .. } => format!("column {index} has what cannot be there"),
        sqlx::Error::ColumnNotFound(index) => format!("column `{index}` is missing"),
        _ => "the database spoke in an unexpected way".to_owned(),
    }
}

fn open_error(detail: impl Into<String>) -> Error {
    Error::Open { detail: detail.into() }
}

fn options(url: &str) -> Result<(Kind, AnyConnectOptions), Error> {
    let (kind, url) = if let Some(path) = url.strip_prefix("sqlite:") {
        (Kind::Sqlite, sqlite_url(path)?)
    } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        (Kind::Postgres, url.to_owned())
    } else {
        return Err(open_error("its URL starts with neither `sqlite:` nor `postgres://`"));
    };
    let options = AnyConnectOptions::from_str(&url).map_err(|_| open_error("its URL is not valid"))?;
    Ok((kind, options))
}

/// Makes the file where it is absent, and gives a URL that sqlx reads as exactly
/// this path.
fn sqlite_url(path: &str) -> Result<String, Error> {
    // `//` is where others write a host, or nothing before a relative path.
    if path.is_empty() || path.starts_with("//") || path.starts_with(":memory:") {
        return Err(open_error(
            "`sqlite:` needs the path of a file, as `sqlite:/var/lib/tollgate.db`",
        ));
    }
    // SECURITY: made here, because SQLite would make it as the umask allows. The
    // files beside it (`-wal`, `-shm`) get the mode of this one.
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| open_error(format!("`{path}`: {error}")))?;
    let path = Path::new(path)
        .canonicalize()
        .map_err(|error| open_error(format!("`{path}`: {error}")))?;
    let path = path.to_str().ok_or_else(|| open_error("its path is not UTF-8"))?;
    Ok(format!("sqlite:{}", utf8_percent_encode(path, PATH)))
}

fn pool(kind: Kind, connections: u32) -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECT)
        .after_connect(move |connection, _| Box::pin(prepare(kind, connection)))
}

/// Settings of one connection.
async fn prepare(kind: Kind, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let settings = match kind {
        Kind::Sqlite => {
            "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
             PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;"
        }
        // INVARIANT: a commit is on disk, whatever the server's default. Stricter
        // settings of the server stay.
        Kind::Postgres => {
            "SELECT CASE WHEN current_setting('synchronous_commit') = 'off' \
             THEN set_config('synchronous_commit', 'on', false) END;"
        }
    };
    connection.execute(sqlx::raw_sql(settings)).await.map(drop)
}

fn migrator(kind: Kind) -> Migrator {
    let tables = match kind {
        Kind::Sqlite => include_str!("migrations/sqlite/0001_store.sql"),
        Kind::Postgres => include_str!("migrations/postgres/0001_store.sql"),
    };
    Migrator::with_migrations(vec![Migration::new(
        1,
        "store".into(),
        MigrationType::Simple,
        tables.into_sql_str(),
        false,
    )])
}
