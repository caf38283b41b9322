//! A TLS server on loopback that records its requests: an API server, or an identity provider.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::authority::{Authority, Pair};

/// One request that the server received.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    pub target: String,
    pub headers: http::HeaderMap,
    pub body: Vec<u8>,
    /// Whether the client presented a certificate.
    pub certified: bool,
}

impl Seen {
    /// The only value of a field.
    pub fn value(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next()?.to_str().unwrap();
        assert!(values.next().is_none(), "`{name}` occurs twice");
        Some(first)
    }
}

/// A response: status, header fields, body.
pub type Answer = (u16, Vec<(&'static str, String)>, String);

type Script = dyn Fn(&Seen) -> Answer + Send + Sync;

/// A server; it runs as long as its runtime.
#[derive(Clone)]
pub struct Api {
    pub address: SocketAddr,
    /// The authority that signed its certificate.
    pub ca_pem: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    open: Arc<AtomicUsize>,
    is_endless: Arc<AtomicBool>,
}

impl Api {
    /// Starts a server that requests no client certificate.
    pub async fn start(answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        Self::with_clients(None, answer).await
    }

    /// Starts a server at another loopback address.
    pub async fn at(address: IpAddr, answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        Self::serve(address, None, answer).await
    }

    /// Starts a server that requires a client certificate of `clients`.
    pub async fn with_clients(
        clients: Option<&Authority>,
        answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::serve(IpAddr::V4(Ipv4Addr::LOCALHOST), clients, answer).await
    }

    async fn serve(
        address: IpAddr,
        clients: Option<&Authority>,
        answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let authority = Authority::new("tests");
        let acceptor = TlsAcceptor::from(Arc::new(server(&authority, address, clients)));
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let api = Self {
            address: listener.local_addr().unwrap(),
            ca_pem: authority.pem.clone(),
            seen: Arc::default(),
            open: Arc::default(),
            is_endless: Arc::default(),
        };
        let (kept, answer): (_, Arc<Script>) = (api.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, api, answer) = (acceptor.clone(), kept.clone(), Arc::clone(&answer));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let certified = stream.get_ref().1.peer_certificates().is_some();
                    let service = service_fn(|request| api.answer(request, certified, Arc::clone(&answer)));
                    let http = hyper::server::conn::http1::Builder::new();
                    api.open.fetch_add(1, Ordering::SeqCst);
                    drop(http.serve_connection(TokioIo::new(stream), service).await);
                    api.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        api
    }

    /// Its URL, by its address.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// From now on, bodies begin as the script says and never end.
    pub fn never_end(&self) {
        self.is_endless.store(true, Ordering::SeqCst);
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        certified: bool,
        answer: Arc<Script>,
    ) -> io::Result<Response<UnsyncBoxBody<Bytes, io::Error>>> {
        let (head, body) = request.into_parts();
        let seen = Seen {
            method: head.method.to_string(),
            target: head.uri.to_string(),
            headers: head.headers,
            body: body.collect().await.map_err(io::Error::other)?.to_bytes().to_vec(),
            certified,
        };
        let (status, fields, text) = answer(&seen);
        self.seen.lock().unwrap().push(seen);
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(name, value);
        }
        let body = match self.is_endless.load(Ordering::SeqCst) {
            false => Full::new(Bytes::from(text))
                .map_err(|never| match never {})
                .boxed_unsync(),
            true => {
                let more = stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&[b' '; 16 * 1024]))));
                let first = stream::iter([Ok(Frame::data(Bytes::from(text)))]);
                StreamBody::new(stream::StreamExt::chain(first, more)).boxed_unsync()
            }
        };
        response.body(body).map_err(io::Error::other)
    }
}

fn server(authority: &Authority, address: IpAddr, clients: Option<&Authority>) -> ServerConfig {
    let Pair { certificate, key } = authority.server(&[&address.to_string(), "localhost"]);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            let root = CertificateDer::from_pem_slice(clients.pem.as_bytes()).unwrap();
            roots.add(root).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    builder
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap()
}
