//! A fake network: a map of names to addresses, with TLS servers behind them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Method;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use zeroize::Zeroizing;

use super::super::{EgressAllowList, EgressClient, Error, Network, Request, Response, Stream};
use tollgate_config::EgressEntry;

/// The host most tests talk to, and a public address of it.
pub(super) const HOST: &str = "idp.example.com";
pub(super) const PUBLIC: &str = "93.184.216.34";

/// A certificate authority.
pub(super) struct Authority {
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    /// A server with a certificate for `name`, valid until the end of `year`.
    pub(super) fn server(&self, name: &str, year: i32, alpn: &[&[u8]]) -> Arc<rustls::ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

/// How a server answers.
#[derive(Clone)]
pub(super) enum Answer {
    /// With status, fields and body; h1 or h2.
    Http(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// With these bytes after the head of an HTTP/1.1 request, then the end.
    Raw(Vec<u8>),
    /// With these bytes, and then neither more nor the end.
    Stuck(Vec<u8>),
    /// Never.
    Silence,
}

/// What a server saw of one request: `METHOD target version`, fields, body.
pub(super) type ReceivedRequests = Arc<Mutex<Vec<(String, http::HeaderMap, Vec<u8>)>>>;

/// A network with scripted name resolution, and one server behind all addresses.
pub(super) struct FakeNetwork {
    names: Mutex<BTreeMap<String, Vec<Vec<IpAddr>>>>,
    tls: Arc<rustls::ServerConfig>,
    answer: Answer,
    pub(super) seen: ReceivedRequests,
    pub(super) resolved: Mutex<Vec<String>>,
    pub(super) connected: Mutex<Vec<SocketAddr>>,
    /// Addresses that refuse connections, and addresses that never answer.
    pub(super) dead: Vec<IpAddr>,
    pub(super) unresponsive: Vec<IpAddr>,
    /// Held by each stream that is open.
    pub(super) alive: Arc<()>,
}

/// A stream that [`FakeNetwork::alive`] counts.
struct Tracked {
    near: tokio::io::DuplexStream,
    _alive: Arc<()>,
}

impl AsyncRead for Tracked {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.near).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tracked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.near).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.near).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.near).poll_shutdown(cx)
    }
}

impl std::fmt::Debug for FakeNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FakeNetwork")
    }
}

impl FakeNetwork {
    pub(super) fn new(tls: Arc<rustls::ServerConfig>, answer: Answer) -> Self {
        let fake_network = Self {
            names: Mutex::default(),
            tls,
            answer,
            seen: ReceivedRequests::default(),
            resolved: Mutex::default(),
            connected: Mutex::default(),
            dead: Vec::new(),
            unresponsive: Vec::new(),
            alive: Arc::new(()),
        };
        fake_network.name(HOST, &[&[PUBLIC]]);
        fake_network
    }

    /// Sets what `host` resolves to, the first time, the second, and so on.
    pub(super) fn name(&self, host: &str, answers: &[&[&str]]) {
        let answers = answers
            .iter()
            .map(|list| list.iter().map(|text| text.parse().unwrap()).collect());
        self.names.lock().unwrap().insert(host.to_owned(), answers.collect());
    }
}

impl Network for FakeNetwork {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        self.resolved.lock().unwrap().push(host.to_owned());
        let mut names = self.names.lock().unwrap();
        let found = names.get_mut(host).map(|answers| match answers.len() {
            0 | 1 => answers.first().cloned().unwrap_or_default(),
            _ => answers.remove(0),
        });
        let found = found.ok_or_else(|| io::Error::other("no such name"));
        Box::pin(async move { Ok(found?.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()) })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        self.connected.lock().unwrap().push(address);
        Box::pin(async move {
            if self.dead.contains(&address.ip()) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            if self.unresponsive.contains(&address.ip()) {
                std::future::pending::<()>().await;
            }
            let (near, far) = tokio::io::duplex(64 * 1024);
            tokio::spawn(serve(far, self.tls.clone(), self.answer.clone(), self.seen.clone()));
            let alive = self.alive.clone();
            Ok(Box::new(Tracked { near, _alive: alive }) as Box<dyn Stream>)
        })
    }
}

/// Serves one connection.
pub(super) async fn serve(
    stream: impl Stream + 'static,
    tls: Arc<rustls::ServerConfig>,
    answer: Answer,
    seen: ReceivedRequests,
) {
    let Ok(mut stream) = tokio_rustls::TlsAcceptor::from(tls).accept(stream).await else {
        return;
    };
    let (status, fields, body) = match answer {
        Answer::Http(status, fields, body) => (status, fields, body),
        Answer::Silence => return std::future::pending().await,
        Answer::Raw(ref bytes) | Answer::Stuck(ref bytes) => {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            // The client may have closed the connection before the end of a long response.
            drop(stream.write_all(bytes).await);
            drop(stream.flush().await);
            if matches!(answer, Answer::Stuck(_)) {
                std::future::pending::<()>().await;
            }
            return;
        }
    };
    let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| {
        let (seen, fields, body) = (seen.clone(), fields.clone(), body.clone());
        async move {
            let (head, content) = request.into_parts();
            let line = format!("{} {} {:?}", head.method, head.uri, head.version);
            let content = content.collect().await.unwrap().to_bytes().to_vec();
            seen.lock().unwrap().push((line, head.headers, content));
            let mut response = http::Response::builder().status(status);
            for (name, value) in fields {
                response = response.header(name, value);
            }
            Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).unwrap())
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(256 * 1024);
    builder.http2().max_header_list_size(256 * 1024);
    drop(builder.serve_connection(TokioIo::new(stream), service).await);
}

/// An entry for `host` that trusts `authority`.
pub(super) fn entry(host: &str, authority: &Authority) -> EgressEntry {
    EgressEntry {
        host: host.to_owned(),
        ca: Some(authority.pem.clone()),
        ..EgressEntry::default()
    }
}

/// A GET of `url`, if `allow_list` allows it.
pub(super) fn get(allow_list: &EgressAllowList, url: &str) -> Result<Request, Error> {
    Ok(Request {
        method: Method::GET,
        target: allow_list.allow(url)?,
        query: None,
        headers: Vec::new(),
        body: Zeroizing::new(Vec::new()),
        timeout: Duration::from_secs(10),
    })
}

/// Sends one GET of [`HOST`] on a network changed by `edit`, whose server answers `answer`.
pub(super) async fn fetch(
    answer: Answer,
    edit: impl FnOnce(&mut FakeNetwork),
) -> (Result<Response, Error>, Arc<FakeNetwork>) {
    let authority = Authority::new();
    let tls = authority.server(HOST, 2099, &[b"h2", b"http/1.1"]);
    let raw = authority.server(HOST, 2099, &[b"http/1.1"]);
    let tls = if matches!(answer, Answer::Raw(_)) { raw } else { tls };
    let mut fake_network = FakeNetwork::new(tls, answer);
    edit(&mut fake_network);
    let fake_network = Arc::new(fake_network);
    let allow_list = EgressAllowList::new([&entry(HOST, &authority)]).unwrap();
    let client = EgressClient::with_network(fake_network.clone());
    let request = get(&allow_list, &format!("https://{HOST}/token")).unwrap();
    (client.send(request).await, fake_network)
}

/// An ordinary answer.
pub(super) fn ok_answer() -> Answer {
    Answer::Http(200, Vec::new(), b"{}".to_vec())
}
