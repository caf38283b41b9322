//! Stands for everything that requests are passed on to: argocd-server, the backend of an extension, and
//! the API servers of clusters. It begins an answer to what is watched and says nothing more.
//!
//! It is a separate process, so that both ends of 10,000 streams stay below the usual limits of open files.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Where it answers.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Upstreams {
    /// In plain text, at every loopback address with this port.
    pub(super) plain: SocketAddr,
    /// The same over TLS.
    pub(super) tls: SocketAddr,
}

/// Starts it. It ends when the process that is returned is dropped.
///
/// - `certificate`, `key`: files with the PEM of its TLS.
pub(super) async fn start(certificate: &Path, key: &Path) -> Result<(Upstreams, Child)> {
    let mut process = Command::new(std::env::current_exe()?)
        .args(["soak", "--upstreams"])
        .args([certificate, key])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("starting the stand-in of all upstreams")?;
    let output = process.stdout.take().context("its output")?;
    let line = BufReader::new(output).lines().next_line().await?;
    let upstreams = serde_json::from_str(&line.context("the stand-in of all upstreams ended")?)?;
    Ok((upstreams, process))
}

/// Answers for all upstreams in this process, until it is killed. Where, it prints as JSON.
pub(super) async fn run(certificate: &Path, key: &Path) -> Result<()> {
    let certificate = CertificateDer::from_pem_file(certificate)?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::from_pem_file(key)?)?;
    let router = Router::new().fallback(answer);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let upstreams = Upstreams {
        plain: serve(router.clone()).await?,
        tls: listener.local_addr()?,
    };
    println!("{}", serde_json::to_string(&upstreams)?);
    let acceptor = TlsAcceptor::from(Arc::new(config));
    axum::serve(TlsListener { listener, acceptor }, router).await?;
    Ok(())
}

/// Serves on a free port of every loopback address.
pub(super) async fn serve(router: Router) -> Result<SocketAddr> {
    let listener = TcpListener::bind(("0.0.0.0", 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(SocketAddr::from(([127, 0, 0, 1], port)))
}

/// Its clients are well-behaved: one handshake after another.
struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

async fn answer(uri: Uri) -> Response {
    let path = uri.path();
    let is_open = uri.query().is_some_and(|query| query.contains("watch=true")) || path.starts_with("/api/v1/stream/");
    if matches!(path, "/api" | "/apis") {
        let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        return ([(CONTENT_TYPE, media)], discovery(path)).into_response();
    }
    let body = match is_open {
        true => {
            let begin = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"\n"))]);
            Body::from_stream(begin.chain(stream::pending()))
        }
        false => Body::from("{}"),
    };
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

fn discovery(path: &str) -> String {
    let kind = json!({
        "resource": "configmaps", "responseKind": {"group": "", "version": "", "kind": "ConfigMap"},
        "scope": "Namespaced", "singularResource": "configmap", "verbs": ["get"],
    });
    let group = json!({"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [kind]}]});
    let items = if path == "/api" { vec![group] } else { Vec::new() };
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
        .to_string()
}
