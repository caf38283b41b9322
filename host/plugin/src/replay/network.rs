//! An in-memory network: TLS servers behind public addresses that give a case's canned responses in
//! order and record the requests. It opens no socket.
//!
//! The servers speak real TLS, with certificates of an authority made for the replay. So the client
//! above is the gateway's own, with every check it has, and bypasses none of them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::DuplexStream;
use tokio_rustls::TlsAcceptor;

use super::case::{CannedResponse, TransportFailure};
use crate::egress::{Network, Stream};

/// The address of every name. It is public, because private ones need a setting in the grant.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 216, 34));
/// Bytes on their way.
const PIPE_BYTES: usize = 64 * 1024;

/// A request that left the provider.
#[derive(Clone)]
pub(super) struct Attempt {
    /// Host, without port.
    pub(super) host: String,
    /// The request as it arrived. `None` if it failed before.
    pub(super) seen: Option<ReceivedRequest>,
}

/// A request that arrived.
#[derive(Clone)]
pub(super) struct ReceivedRequest {
    pub(super) method: String,
    /// `https://host[:port]/path?query`.
    pub(super) url: String,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Vec<u8>,
}

#[derive(Default)]
struct Script {
    answers: VecDeque<Option<CannedResponse>>,
    attempts: Vec<Attempt>,
    /// The name that was looked up last.
    name: Option<String>,
}

/// The network of a replay.
pub(super) struct ReplayNetwork {
    script: Arc<Mutex<Script>>,
    trusted_authority: Arc<Authority>,
    untrusted_authority: Arc<Authority>,
}

impl std::fmt::Debug for ReplayNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl ReplayNetwork {
    pub(super) fn new() -> Result<Self, rcgen::Error> {
        Ok(Self {
            script: Arc::default(),
            trusted_authority: Arc::new(Authority::new("Tollgate replay")?),
            untrusted_authority: Arc::new(Authority::new("A stranger")?),
        })
    }

    /// Replaces the canned responses by those of another case.
    pub(super) fn set_responses(&self, answers: impl Iterator<Item = Option<CannedResponse>>) {
        *lock(&self.script) = Script {
            answers: answers.collect(),
            ..Script::default()
        };
    }

    /// The requests sent so far.
    pub(super) fn attempts(&self) -> Vec<Attempt> {
        lock(&self.script).attempts.clone()
    }

    /// The authority that the provider trusts, in PEM.
    pub(super) fn authority_pem(&self) -> &str {
        &self.trusted_authority.pem
    }
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Script {
    /// How the next request fails, if it does.
    fn fail(&self) -> Option<TransportFailure> {
        self.answers.front()?.as_ref()?.fail
    }

    /// Records that the next request does not arrive.
    fn record_lost(&mut self, host: String) {
        self.answers.pop_front();
        self.attempts.push(Attempt { host, seen: None });
    }
}

impl Network for ReplayNetwork {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let mut script = lock(&self.script);
        let found = if script.fail() == Some(TransportFailure::Dns) {
            script.record_lost(host.to_owned());
            Err(io::Error::other("the transcript says there is no such name"))
        } else {
            script.name = Some(host.to_owned());
            Ok(vec![SocketAddr::new(ADDRESS, port)])
        };
        Box::pin(async move { found })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        let mut script = lock(&self.script);
        let name = script.name.take().unwrap_or_else(|| address.ip().to_string());
        let authority = match script.fail() {
            Some(TransportFailure::Dns | TransportFailure::Connect) => {
                script.record_lost(name);
                let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
                return Box::pin(async move { Err(refused) });
            }
            Some(TransportFailure::Tls) => {
                script.record_lost(name.clone());
                Arc::clone(&self.untrusted_authority)
            }
            Some(TransportFailure::Timeout | TransportFailure::Truncated) | None => Arc::clone(&self.trusted_authority),
        };
        let script = Arc::clone(&self.script);
        Box::pin(async move {
            let (near, far) = tokio::io::duplex(PIPE_BYTES);
            let server = Server { name, script };
            let acceptor = acceptor(authority, &server.name)?;
            tokio::spawn(server.serve(far, acceptor));
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

/// One connection.
struct Server {
    name: String,
    script: Arc<Mutex<Script>>,
}

impl Server {
    async fn serve(self, stream: DuplexStream, acceptor: TlsAcceptor) {
        let Ok(stream) = acceptor.accept(stream).await else {
            return;
        };
        let service = service_fn(|request| self.answer(request));
        let served = hyper::server::conn::http1::Builder::new();
        // The client judges how a connection ends.
        drop(served.serve_connection(TokioIo::new(stream), service).await);
    }

    async fn answer(&self, request: http::Request<Incoming>) -> io::Result<http::Response<Full<Bytes>>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes().to_vec();
        let host = head.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
        let seen = ReceivedRequest {
            method: head.method.to_string(),
            url: format!("https://{}{}", host.unwrap_or(&self.name), head.uri),
            headers: head.headers,
            body,
        };
        let answer = {
            let mut script = lock(&self.script);
            script.attempts.push(Attempt {
                host: self.name.clone(),
                seen: Some(seen),
            });
            script.answers.pop_front().flatten()
        };
        match answer {
            Some(CannedResponse {
                fail: Some(TransportFailure::Timeout),
                ..
            }) => std::future::pending().await,
            Some(answer) if answer.fail.is_none() => write(answer),
            Some(_) | None => Err(io::Error::other("the transcript has no answer")),
        }
    }
}

fn write(answer: CannedResponse) -> io::Result<http::Response<Full<Bytes>>> {
    let mut response = http::Response::builder().status(answer.status.unwrap_or(200));
    let typed = answer
        .headers
        .keys()
        .any(|name| name.eq_ignore_ascii_case("content-type"));
    if answer.json.is_some() && !typed {
        response = response.header("content-type", "application/json");
    }
    for (name, value) in &answer.headers {
        response = response.header(name, value);
    }
    let body = match answer.json {
        Some(json) => json.to_string(),
        None => answer.body.unwrap_or_default(),
    };
    response.body(Full::new(Bytes::from(body))).map_err(io::Error::other)
}

/// An acceptor of TLS connections for `name`, which a client that connects to an address does not
/// send.
fn acceptor(authority: Arc<Authority>, name: &str) -> io::Result<TlsAcceptor> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(CertificateResolver {
            authority,
            name: name.to_owned(),
        }));
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[derive(Debug)]
struct CertificateResolver {
    authority: Arc<Authority>,
    name: String,
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.authority.certificate(&self.name)
    }
}

/// Signs a certificate for any name.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    made: Mutex<BTreeMap<String, Arc<CertifiedKey>>>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    fn new(name: &str) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            pem,
            issuer: Issuer::new(params, key),
            made: Mutex::default(),
        })
    }

    /// The certificate of `name`. `None` if none can be made for it.
    fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = made.get(name) {
            return Some(Arc::clone(known));
        }
        let key = KeyPair::generate().ok()?;
        let params = CertificateParams::new(vec![name.to_owned()]).ok()?;
        let certificate = params.signed_by(&key, &self.issuer).ok()?;
        let der = PrivateKeyDer::try_from(key.serialize_der()).ok()?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = provider.key_provider.load_private_key(der).ok()?;
        let certified = Arc::new(CertifiedKey::new(vec![certificate.der().clone()], key));
        made.insert(name.to_owned(), Arc::clone(&certified));
        Some(certified)
    }
}
