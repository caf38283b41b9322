//! How the agent reaches the gateway: TCP, perhaps through an HTTP proxy, TLS, and the WebSocket's handshake.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::SEC_WEBSOCKET_PROTOCOL;
use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tower::ServiceExt as _;
use url::Url;

use crate::hello::{Channel, Introduction, channel_value};
use crate::settings::Settings;
use crate::{CONNECT_PATH, SUBPROTOCOL, api_server, websocket};

/// Longest wait for a connection on which the gateway takes requests.
const CONNECT_WITHIN: Duration = Duration::from_secs(15);

/// Most of a refusal that is shown, in bytes.
const REFUSAL_BYTES: usize = 512;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Connect(#[source] BoxError),
    #[error("through the proxy {proxy}: {error}")]
    Proxy { proxy: Url, error: BoxError },
    #[error("the gateway answers {status}: {text}")]
    Refused { status: http::StatusCode, text: String },
    #[error("the WebSocket is refused: {0}")]
    WebSocket(#[source] Box<tungstenite::Error>),
    #[error("there is no answer within {CONNECT_WITHIN:?}")]
    Timeout,
    #[error("the URL has no host")]
    Host,
    #[error("`certificateAuthority`: {0}")]
    Authorities(#[source] api_server::Error),
}

#[derive(derive_more::Debug, derive_more::Display)]
#[debug("Gateway({url})")]
#[display("{url}")]
pub(crate) struct Gateway {
    url: Url,
    proxy: Option<Url>,
    /// PEM of the authorities; the system's when absent. Read for each connection, because the gateway's
    /// certificate may have a new authority by then.
    authorities: Option<PathBuf>,
}

impl Gateway {
    pub(crate) fn new(settings: &Settings) -> Result<Self, api_server::Error> {
        // Only to report a mistake at the start: each connection reads the file again.
        api_server::client_config(settings.certificate_authority.as_deref())?;
        Ok(Self {
            url: settings.gateway.clone(),
            proxy: settings.proxy.clone(),
            authorities: settings.certificate_authority.clone(),
        })
    }

    /// Connects. Cancel safe.
    pub(crate) async fn connect(
        &self,
        introduction: Option<Introduction>,
    ) -> Result<(impl AsyncRead + AsyncWrite + Unpin + Send + use<>, Channel), Error> {
        let connecting = timeout(CONNECT_WITHIN, self.connect_patiently(introduction));
        connecting.await.map_err(|_| Error::Timeout)?
    }

    async fn connect_patiently(
        &self,
        introduction: Option<Introduction>,
    ) -> Result<(impl AsyncRead + AsyncWrite + Unpin + Send + use<>, Channel), Error> {
        let host = self.url.host_str().ok_or(Error::Host)?;
        // A literal IPv6 address has brackets in URLs.
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let tcp = self.reach().await?;
        let name = ServerName::try_from(bare.to_owned()).map_err(|_| Error::Host)?;
        // Without ALPN, which means HTTP/1.1.
        let config = api_server::client_config(self.authorities.as_deref()).map_err(Error::Authorities)?;
        let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
        let channel = Channel {
            host: host.to_ascii_lowercase(),
            value: channel_value(tls.get_ref().1),
        };
        let path = format!("{}{CONNECT_PATH}", self.url.path().trim_end_matches('/'));
        let mut url = self.url.clone();
        url.set_path(&path);
        let failed = |error| match error {
            tungstenite::Error::Http(response) => refused(&response),
            error => Error::WebSocket(Box::new(error)),
        };
        let address = url.as_str().replacen("https://", "wss://", 1);
        let mut request = address.into_client_request().map_err(failed)?;
        let protocol = HeaderValue::from_static(SUBPROTOCOL);
        request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        if let Some(value) = introduction.and_then(|introduction| introduction.to_value()) {
            request.headers_mut().insert(Introduction::FIELD, value);
        }
        let (socket, _) = client_async_with_config(request, tls, Some(websocket::config()))
            .await
            .map_err(failed)?;
        Ok((websocket::bytes(socket), channel))
    }

    /// A connection of TCP to the gateway.
    async fn reach(&self) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + use<>, Error> {
        let Some(proxy) = &self.proxy else {
            return connect_tcp(&self.url).await.map_err(Error::Connect);
        };
        let destination = self.url.as_str().parse::<Uri>().map_err(|_| Error::Host)?;
        let failed = |error: BoxError| Error::Proxy {
            proxy: proxy.clone(),
            error,
        };
        let proxy = proxy.as_str().parse::<Uri>().map_err(|error| failed(error.into()))?;
        let connected = Tunnel::new(proxy, connector()).oneshot(destination).await;
        connected.map(TokioIo::into_inner).map_err(|error| failed(error.into()))
    }
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector
}

/// A connection of TCP to the host and port of a URL.
pub(crate) async fn connect_tcp(url: &Url) -> Result<TcpStream, BoxError> {
    let connected = connector().oneshot(url.as_str().parse::<Uri>()?).await?;
    Ok(connected.into_inner())
}

/// What the gateway, or what is in front of it, says instead of switching protocols.
fn refused(response: &http::Response<Option<Vec<u8>>>) -> Error {
    let content = response.body().as_deref().unwrap_or_default();
    let text = String::from_utf8_lossy(content.get(..REFUSAL_BYTES).unwrap_or(content));
    Error::Refused {
        status: response.status(),
        // Any server may have written it, and it goes to the log.
        text: text.chars().filter(|c| !c.is_control()).collect(),
    }
}

#[cfg(test)]
mod tests;
