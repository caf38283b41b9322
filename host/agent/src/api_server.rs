//! The agent's own API server: its connections and the token of the agent's account.
//!
//! Each request has a connection of HTTP/1.1 to itself while it lasts. That serves upgrades as well, and an
//! API server allows 100 streams on a connection of HTTP/2, while watches are open for hours.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, HOST};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::body::Content;
use crate::file::ReadError;
use crate::settings::ApiServerSettings;
use tollgate_runtime::certificates::{self, roots_from_pem, system_roots};

/// How long a token that was read is used. The kubelet renews it long before it expires, and client-go reads
/// it as often.
const TOKEN_AGE: Duration = Duration::from_secs(60);

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long an API server may be silent before it is asked whether it is there, how often it is asked, and how
/// many questions without an answer end a connection.
const SILENCE: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// Connections that wait for another request.
const IDLE_CONNECTIONS: usize = 32;
const IDLE_FOR: Duration = Duration::from_secs(60);

/// Why the API server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The authorities of a file cannot be used.
    #[error("`{path}`: {source}", path = .path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        source: certificates::Error,
    },
    /// The system's authorities cannot be used.
    #[error(transparent)]
    SystemAuthorities(certificates::Error),
    /// rustls cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The token cannot be sent.
    #[error("`{path}` has no token", path = .0.display())]
    NoToken(PathBuf),
    /// The URL has no host.
    #[error("the URL of the API server cannot be used")]
    Url,
    /// It does not answer.
    #[error("the API server does not answer: {0}")]
    Answer(#[from] hyper_util::client::legacy::Error),
}

type ApiClient = Client<HttpsConnector<HttpConnector>, Content>;

/// A client that trusts the authorities that were read last.
struct TrustedClient {
    client: ApiClient,
    pem: String,
    read_at: Instant,
}

#[derive(derive_more::Debug)]
#[debug("ApiServer({authority})")]
pub(crate) struct ApiServer {
    authority: Authority,
    host: HeaderValue,
    authorities: PathBuf,
    #[debug(skip)]
    tls: Mutex<TrustedClient>,
    token: PathBuf,
    read: Mutex<Option<(Instant, HeaderValue)>>,
}

impl ApiServer {
    pub(crate) fn new(settings: &ApiServerSettings) -> Result<Self, Error> {
        let authorities = settings.certificate_authority.clone();
        let pem = std::fs::read_to_string(&authorities).map_err(ReadError::of(&authorities))?;
        let client = client(config_of(&pem, &authorities)?);
        let authority: Authority = settings.url.authority().parse().map_err(|_| Error::Url)?;
        Ok(Self {
            host: HeaderValue::from_str(authority.as_str()).map_err(|_| Error::Url)?,
            authority,
            authorities,
            tls: Mutex::new(TrustedClient {
                client,
                pem,
                read_at: Instant::now(),
            }),
            token: settings.token.clone(),
            read: Mutex::default(),
        })
    }

    /// Sends a request with the agent's credential. What else it says stays as it is.
    pub(crate) async fn send(&self, mut request: Request<Content>) -> Result<Response<Incoming>, Error> {
        let token = self.token().await?;
        let path = request.uri().path_and_query().cloned();
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTPS);
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = path;
        *request.uri_mut() = Uri::from_parts(parts).map_err(|_| Error::Url)?;
        *request.version_mut() = Version::HTTP_11;
        request.headers_mut().insert(HOST, self.host.clone());
        request.headers_mut().insert(AUTHORIZATION, token);
        let client = self.client().await;
        Ok(client.request(request).await?)
    }

    /// The client by the authorities of the file. They are read again as often as the token, because the
    /// cluster's authority may be renewed. A file that cannot be used changes nothing.
    async fn client(&self) -> ApiClient {
        let known = || self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let known = known();
            if known.read_at.elapsed() < TOKEN_AGE {
                return known.client.clone();
            }
        }
        // Without the lock: all requests take it.
        let read = tokio::fs::read_to_string(&self.authorities).await;
        let read = read.map_err(|error| Error::from(ReadError::of(&self.authorities)(error)));
        let mut known = known();
        // Also after a failure, so that an unusable file is not read for every request.
        known.read_at = Instant::now();
        let changed = match read {
            Ok(pem) if pem == known.pem => return known.client.clone(),
            Ok(pem) => config_of(&pem, &self.authorities).map(|config| (config, pem)),
            Err(error) => Err(error),
        };
        match changed {
            Ok((config, pem)) => {
                tracing::info!(path = %self.authorities.display(), "the API server's authorities have changed");
                known.client = client(config);
                known.pem = pem;
            }
            Err(error) => tracing::warn!(%error, "the API server's authorities stay as they were read last"),
        }
        known.client.clone()
    }

    async fn token(&self) -> Result<HeaderValue, Error> {
        let is_fresh = |(at, _): &&(Instant, HeaderValue)| at.elapsed() < TOKEN_AGE;
        let read = || self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, token)) = read().as_ref().filter(is_fresh) {
            return Ok(token.clone());
        }
        let text = tokio::fs::read_to_string(&self.token).await;
        let text = Zeroizing::new(text.map_err(ReadError::of(&self.token))?);
        let value = Zeroizing::new(format!("Bearer {}", text.trim()));
        let no_token = || Error::NoToken(self.token.clone());
        if text.trim().is_empty() {
            return Err(no_token());
        }
        let mut token = HeaderValue::from_str(&value).map_err(|_| no_token())?;
        token.set_sensitive(true);
        *read() = Some((Instant::now(), token.clone()));
        Ok(token)
    }
}

fn client(tls: ClientConfig) -> ApiClient {
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .wrap_connector(connector());
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_FOR)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        // `send` sets it.
        .set_host(false)
        .build(connector)
}

/// Connections that notice when the API server's machine is gone. Without a word from it, a watch would stay
/// open for ever.
fn connector() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_WITHIN));
    tcp.set_keepalive(Some(SILENCE));
    tcp.set_keepalive_interval(Some(PROBE_EVERY));
    tcp.set_keepalive_retries(Some(PROBES));
    // What was sent is answered for within this time, too. It decides about unanswered probes as well (tcp(7)),
    // so it has room for all of them.
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(SILENCE.saturating_add(PROBE_EVERY.saturating_mul(PROBES))));
    tcp
}

/// A TLS client without a client certificate.
///
/// - `authorities`: PEM of the only ones trusted; the system's when absent.
pub(crate) fn client_config(authorities: Option<&Path>) -> Result<ClientConfig, Error> {
    let roots = match authorities {
        None => system_roots().map_err(Error::SystemAuthorities)?,
        Some(path) => {
            let pem = std::fs::read_to_string(path).map_err(ReadError::of(path))?;
            return config_of(&pem, path);
        }
    };
    trusting(roots)
}

/// - `pem`: the content of the file at `path`.
fn config_of(pem: &str, path: &Path) -> Result<ClientConfig, Error> {
    let roots = roots_from_pem(pem).map_err(|source| Error::Authorities {
        path: path.to_owned(),
        source,
    })?;
    trusting(roots)
}

fn trusting(roots: Arc<RootCertStore>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use tokio::net::TcpListener;
    use tower::ServiceExt as _;

    /// The kernel's timer of a connection by its local port; 2 means that it probes an idle one.
    fn timer(port: u16) -> Option<String> {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut rows = rows.filter(|row| row[1].ends_with(&format!(":{port:04X}")) && row[3] == "01");
        rows.next().map(|row| row[5].split_once(':').unwrap().0.to_owned())
    }

    #[tokio::test]
    async fn a_silent_api_server_is_asked_whether_it_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let connected = super::connector().oneshot(url.parse::<Uri>().unwrap()).await.unwrap();
        let (_other, _) = listener.accept().await.unwrap();
        let tcp = connected.into_inner();
        assert_eq!(timer(tcp.local_addr().unwrap().port()).as_deref(), Some("02"));
        let plain = tokio::net::TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        assert_eq!(timer(plain.local_addr().unwrap().port()).as_deref(), Some("00"));
    }
}
