//! Authorities of servers that the settings name: they are renewed while the gateway runs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use test_support::authority::Authority;
use test_support::client::{Answer, Client};
use test_support::world::{Setup, World};
use tollgate_runtime::followed;

/// A server of TLS that answers every request with 200, one on each connection. It stands for argocd-server
/// and for an OpenTelemetry collector.
struct Server {
    address: SocketAddr,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    /// The paths that were asked for.
    seen: Arc<Mutex<Vec<String>>>,
}

fn config(authority: &Authority) -> Arc<ServerConfig> {
    let pair = authority.server(&["localhost"]);
    let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
}

impl Server {
    async fn start(authority: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            config: Arc::new(Mutex::new(config(authority))),
            seen: Arc::default(),
        };
        let (config, seen) = (Arc::clone(&server.config), Arc::clone(&server.seen));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let config = Arc::clone(&config.lock().unwrap());
                tokio::spawn(answer(TlsAcceptor::from(config), stream, Arc::clone(&seen)));
            }
        });
        server
    }

    /// Presents a certificate of this authority from now on.
    fn renew(&self, authority: &Authority) {
        *self.config.lock().unwrap() = config(authority);
    }

    /// How often a path was asked for.
    fn count(&self, path: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| *seen == path).count()
    }
}

async fn answer(acceptor: TlsAcceptor, stream: tokio::net::TcpStream, seen: Arc<Mutex<Vec<String>>>) {
    // A client that does not trust the certificate closes the connection.
    let Ok(mut stream) = acceptor.accept(stream).await else {
        return;
    };
    let mut received = Vec::new();
    let mut chunk = [0; 4096];
    let head = loop {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(read) => received.extend_from_slice(&chunk[..read]),
        }
        if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            break String::from_utf8_lossy(&received[..end]).into_owned();
        }
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().unwrap())
    });
    let whole = head.len() + 4 + length.unwrap_or_default();
    while received.len() < whole {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(read) => received.extend_from_slice(&chunk[..read]),
        }
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    seen.lock().unwrap().push(path);
    let _ = stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        .await;
    let _ = stream.shutdown().await;
}

async fn read_again() {
    tokio::task::spawn_blocking(followed::reread).await.unwrap();
}

/// What a page of Argo CD answers, which needs no session.
async fn page(world: &World) -> Answer {
    let request = b"GET /applications HTTP/1.1\r\nhost: argocd.test\r\nconnection: close\r\n\r\n";
    Client::connect(world.address()).await.exchange(request).await
}

async fn world(server: &Server, ca: &Path) -> World {
    let url = format!("https://localhost:{}", server.address.port());
    let setup = Setup {
        settings: json!({
            "argocd": {"server": url, "ca": ca},
            "telemetry": {"endpoint": url, "ca": ca, "metricsInterval": "1s"},
        }),
        ..Setup::default()
    };
    setup.start().await
}

#[tokio::test]
async fn of_argocd_server_and_the_collector_are_read_again() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let server = Server::start(&first).await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, &first.pem).unwrap();
    let world = world(&server, &ca).await;
    assert_eq!(page(&world).await.status, 200);
    world.until("metrics", async || server.count("/v1/metrics") > 0).await;
    world.until("traces", async || server.count("/v1/traces") > 0).await;

    // The server's certificate is of an authority that the file does not have.
    server.renew(&second);
    assert_eq!(page(&world).await.status, 502);
    // What is no certificate changes nothing, and is said.
    std::fs::write(&ca, "broken").unwrap();
    read_again().await;
    assert_eq!(page(&world).await.status, 502);
    let unusable = |state: u8| format!("tollgate_files_unusable{{setting=\"argocd.ca\"}} {state}");
    assert!(world.admin("/metrics").await.contains(&unusable(1)));
    server.renew(&first);
    assert_eq!(page(&world).await.status, 200);

    server.renew(&second);
    std::fs::write(&ca, &second.pem).unwrap();
    read_again().await;
    let (metrics, traces) = (server.count("/v1/metrics"), server.count("/v1/traces"));
    assert_eq!(page(&world).await.status, 200);
    assert!(world.admin("/metrics").await.contains(&unusable(0)));
    world
        .until("metrics after the renewal", async || {
            server.count("/v1/metrics") > metrics
        })
        .await;
    world
        .until("traces after the renewal", async || server.count("/v1/traces") > traces)
        .await;
    // The former authority is not trusted any more.
    server.renew(&first);
    assert_eq!(page(&world).await.status, 502);
    let end = "tollgate_certificate_end_timestamp_seconds{use=\"authority\",name=\"argocd.ca\"} ";
    assert!(world.admin("/metrics").await.contains(end));
}
