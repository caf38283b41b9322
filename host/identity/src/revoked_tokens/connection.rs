//! One connection to Argo CD's Redis, on which revocations arrive and the list is read.
//!
//! Both go over one connection, in RESP3: Redis delivers what was published before it answers a
//! later command, so an answer proves that no revocation is missing.
//!
//! Security: the certificate is always verified, and no error contains the password.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::{
    AsyncConnectionConfig, FromRedisValue, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, Value,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use tollgate_config::{ArgocdRedis, RedisTls};
use tollgate_core::diagnostic::with_causes;

/// Channel on which argocd-server publishes what identifies a revoked token.
const CHANNEL: &str = "new-revoked-token";
/// Prefix of the keys of revoked tokens. Each key expires with its token.
const KEY_PREFIX: &str = "revoked-token|";
/// Keys that Redis looks at for one answer, as argocd-server asks for.
const KEYS_PER_SCAN: u32 = 10_000;
/// Keys whose time is asked for in one request.
const KEYS_PER_REQUEST: usize = 1_000;
/// Time limit for connecting, signing in and subscribing.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Why Argo CD's Redis cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the settings cannot be used.
    #[error("`{key}`: `{path}`: {reason}")]
    File {
        /// The key below `argocd.redis`.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// `argocd.redis.serverName`, or the host, is no name that a certificate can be for.
    #[error("`{0}` is neither a DNS name nor an address")]
    ServerName(String),
    /// The system has no certificate authorities, and `argocd.redis.ca` names none.
    #[error("the system has no certificate authorities, set `argocd.redis.ca`")]
    NoAuthorities,
    /// TLS cannot be spoken at all.
    #[error("TLS cannot be used")]
    Tls(#[from] rustls::Error),
    /// No connection, or no TLS on it.
    #[error("no connection to `{server}`: {reason}")]
    Unreachable {
        /// `host:port`.
        server: String,
        /// The cause.
        reason: String,
    },
    /// It did not answer in time.
    #[error("`{server}` did not answer within {limit:?}")]
    Timeout {
        /// `host:port`.
        server: String,
        /// The time limit.
        limit: Duration,
    },
    /// It refused a command, such as the one that signs in.
    #[error("`{server}` refused: {reason}")]
    Refused {
        /// `host:port`.
        server: String,
        /// What it said.
        reason: String,
    },
    /// The connection ended.
    #[error("the connection to `{server}` was lost")]
    Lost {
        /// `host:port`.
        server: String,
    },
}

impl Error {
    /// What an operator can do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::File { .. } | Self::ServerName(_) | Self::NoAuthorities | Self::Tls(_) => "correct the setting",
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Lost { .. } => {
                "check that Redis runs, that a network policy lets the gateway in, and `argocd.redis.server`"
            }
            Self::Refused { .. } => {
                "check `argocd.redis.username` and `argocd.redis.passwordFile`; Argo CD's own password is in Secret \
                 `argocd-redis`, key `auth`"
            }
        }
    }
}

/// Connects, and reads the list as the gateway would.
///
/// # Errors
/// [`Error`].
pub async fn probe(settings: &ArgocdRedis) -> Result<(), Error> {
    let mut connection = Connection::open(settings, |_| {}).await?;
    let (_, keys) = connection.scan(0).await?;
    connection.lifetimes(keys.iter().take(1)).await?;
    connection.ping().await
}

/// How long a revocation is kept that Redis no longer has when it is asked for its lifetime: that
/// of a session by default.
const GONE_LIFETIME: Duration = Duration::from_hours(24);

pub(super) struct Connection {
    redis: MultiplexedConnection,
    /// Reads and writes; ends when the connection is lost.
    driver: JoinSet<()>,
    server: String,
}

/// The next position of a scan, 0 at the end, and what identifies the revoked tokens found.
pub(super) type ScanPage = (u64, Vec<Vec<u8>>);

impl Connection {
    /// Connects, signs in and subscribes.
    ///
    /// - `on_revoked`: called with what identifies a token as soon as it is published. It must not
    ///   block.
    pub(super) async fn open(
        settings: &ArgocdRedis,
        on_revoked: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let server = format!("{}:{}", settings.host, settings.port);
        let limit = CONNECT_TIMEOUT;
        let opened = timeout(limit, Self::open_without_limit(settings, server.clone(), on_revoked)).await;
        opened.unwrap_or(Err(Error::Timeout { server, limit }))
    }

    async fn open_without_limit(
        settings: &ArgocdRedis,
        server: String,
        on_revoked: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let user = user(settings)?;
        let tls = settings
            .tls
            .as_ref()
            .map(|tls| connector(tls, &settings.host))
            .transpose()?;
        let unreachable = |error: std::io::Error| Error::Unreachable {
            server: server.clone(),
            reason: with_causes(&error),
        };
        let stream = TcpStream::connect((settings.host.as_str(), settings.port)).await;
        let stream = stream.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let mut connection = match tls {
            None => Self::over(stream, &user, server, on_revoked).await?,
            Some((connector, name)) => {
                let stream = connector.connect(name, stream).await.map_err(unreachable)?;
                Self::over(stream, &user, server, on_revoked).await?
            }
        };
        let subscribed = connection.redis.subscribe(CHANNEL).await;
        subscribed.map_err(|error| failure(&connection.server, &error))?;
        Ok(connection)
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        user: &RedisConnectionInfo,
        server: String,
        on_revoked: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(ANSWER_TIMEOUT))
            .set_push_sender(move |push: PushInfo| {
                if let (PushKind::Message, [_, Value::BulkString(id)]) = (&push.kind, push.data.as_slice()) {
                    on_revoked(id);
                }
                Ok::<_, SendError>(())
            });
        let connected = MultiplexedConnection::new_with_config(user, stream, config).await;
        let (redis, driver) = connected.map_err(|error| failure(&server, &error))?;
        // The set ends the task when the connection is dropped.
        let mut tasks = JoinSet::new();
        tasks.spawn(driver);
        Ok(Self {
            redis,
            driver: tasks,
            server,
        })
    }

    /// Waits until the connection is lost. Cancel safe.
    pub(super) async fn lost(&mut self) -> Error {
        self.driver.join_next().await;
        Error::Lost {
            server: self.server.clone(),
        }
    }

    /// Returns once Redis has delivered everything that was published before the call.
    pub(super) async fn ping(&mut self) -> Result<(), Error> {
        self.query(&redis::cmd("PING")).await
    }

    /// Reads a part of the list, from position 0 on.
    pub(super) async fn scan(&mut self, position: u64) -> Result<ScanPage, Error> {
        let mut command = redis::cmd("SCAN");
        command.arg(position).arg("MATCH").arg(format!("{KEY_PREFIX}*"));
        command.arg("COUNT").arg(KEYS_PER_SCAN);
        let (next, keys): (u64, Vec<Vec<u8>>) = self.query(&command).await?;
        let ids = keys.iter().filter_map(|key| key.strip_prefix(KEY_PREFIX.as_bytes()));
        Ok((next, ids.filter(|id| !id.is_empty()).map(<[u8]>::to_vec).collect()))
    }

    /// Returns how long Redis keeps each of these revocations, in the same order; `None` if it
    /// keeps one forever, or lost it.
    pub(super) async fn lifetimes(
        &mut self,
        ids: impl Iterator<Item = &Vec<u8>>,
    ) -> Result<Vec<Option<Duration>>, Error> {
        let keys: Vec<_> = ids.map(|id| [KEY_PREFIX.as_bytes(), id].concat()).collect();
        let mut lifetimes = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_PER_REQUEST) {
            let mut requests = redis::pipe();
            for key in keys {
                requests.cmd("PTTL").arg(key);
            }
            let answers: Vec<i64> = requests
                .query_async(&mut self.redis)
                .await
                .map_err(|error| failure(&self.server, &error))?;
            let lifetime = |milliseconds| match milliseconds {
                // The token has expired meanwhile, or somebody deleted the key.
                -2 => Some(GONE_LIFETIME),
                // -1 is a key without an end.
                _ => u64::try_from(milliseconds).ok().map(Duration::from_millis),
            };
            lifetimes.extend(answers.into_iter().map(lifetime));
        }
        Ok(lifetimes)
    }

    async fn query<T: FromRedisValue>(&mut self, command: &redis::Cmd) -> Result<T, Error> {
        let answer = command.query_async(&mut self.redis).await;
        answer.map_err(|error| failure(&self.server, &error))
    }
}

/// Whom to sign in as. The password is read for each connection, so that a new one takes effect.
fn user(settings: &ArgocdRedis) -> Result<RedisConnectionInfo, Error> {
    let mut user = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name()
        .set_db(settings.database.into());
    if let Some(name) = &settings.username {
        user = user.set_username(name);
    }
    if let Some(path) = &settings.password_file {
        let text = SecretString::from(read("passwordFile", path)?);
        let password = text.expose_secret().lines().next().unwrap_or_default().trim();
        user = user.set_password(password);
    }
    Ok(user)
}

fn connector(tls: &RedisTls, host: &str) -> Result<(TlsConnector, ServerName<'static>), Error> {
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        None => {
            // A certificate of the system that cannot be parsed does not keep the others out.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(Error::NoAuthorities);
            }
        }
        Some(path) => add_authorities(&mut roots, &read("ca", path)?).map_err(|reason| Error::File {
            key: "ca",
            path: path.clone(),
            reason,
        })?,
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = tls.server_name.as_deref().unwrap_or(host).to_owned();
    let name = ServerName::try_from(name.clone()).map_err(|_| Error::ServerName(name))?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}

fn add_authorities(roots: &mut RootCertStore, pem: &str) -> Result<(), String> {
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("not PEM: {error}"))?;
        roots.add(certificate).map_err(|error| with_causes(&error))?;
    }
    match roots.is_empty() {
        true => Err("no certificate in it".to_owned()),
        false => Ok(()),
    }
}

fn read(key: &'static str, path: &std::path::Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| Error::File {
        key,
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

fn failure(server: &str, error: &RedisError) -> Error {
    let server = server.to_owned();
    if error.is_timeout() {
        return Error::Timeout {
            server,
            limit: ANSWER_TIMEOUT,
        };
    }
    if error.is_io_error() || error.is_connection_dropped() {
        let reason = error.to_string();
        return Error::Unreachable { server, reason };
    }
    // SECURITY: the server's own text is left out, since it may repeat the command, and so the
    // password: old versions do for `HELLO`, which they do not know.
    let reason = match error.code() {
        Some(code) => format!("{}, `{code}`", error.category()),
        None => error.category().to_owned(),
    };
    Error::Refused { server, reason }
}
