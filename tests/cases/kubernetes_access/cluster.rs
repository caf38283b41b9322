//! A fake API server that records the exact requests it received and answers as a case says.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::broadcast;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use test_support::authority::{Authority, Pair};

/// The token of the gateway's service account.
pub(super) const SA_TOKEN: &str = "the-gateways-service-account-token";

/// What the API server does after a request.
#[derive(Clone)]
pub(super) enum Script {
    /// Sends the bytes and reads the next request. If the request asked for an upgrade, it only
    /// counts further bytes instead.
    Reply(Vec<u8>),
    /// Sends these bytes of a 101, then echoes everything.
    Tunnel(Vec<u8>),
    /// Sends a head, then each event at once.
    Events(Vec<u8>, broadcast::Sender<Vec<u8>>),
}

/// Path at which the gateway asks what its own credential may do.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A received request.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) method: String,
    /// Path and query as sent.
    pub(super) target: String,
    /// Fields in order.
    pub(super) fields: Vec<(String, String)>,
    /// Content without framing.
    pub(super) body: Vec<u8>,
    /// Trailer fields after the last chunk.
    pub(super) trailers: Vec<(String, String)>,
    /// Number of bytes received after the response.
    pub(super) after: Arc<AtomicUsize>,
}

impl Seen {
    /// Values of all fields of this name, in order.
    pub(super) fn values(&self, name: &str) -> Vec<&str> {
        let named = |(field, _): &&(String, String)| field.eq_ignore_ascii_case(name);
        self.fields.iter().filter(named).map(|(_, value)| &**value).collect()
    }

    fn upgrades(&self) -> bool {
        !self.values("upgrade").is_empty()
    }

    /// Whether the gateway sent this request for itself, and not for a caller.
    fn is_gateways_own(&self) -> bool {
        let is_absent = |name: &&str| self.values(name).is_empty();
        self.target == REVIEWS
            && ["audit-id", "x-forwarded-for", "impersonate-user"]
                .iter()
                .all(is_absent)
    }

    /// Response to a review that allows everything.
    fn granted(&self) -> Vec<u8> {
        let mut review: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        review["status"] = serde_json::json!({"allowed": true});
        let text = review.to_string();
        let length = text.len();
        let head =
            format!("HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
        (head + &text).into_bytes()
    }
}

/// An API server, which runs as long as its runtime.
#[derive(Clone)]
pub(super) struct Cluster {
    /// Its address.
    pub(super) address: SocketAddr,
    /// Its certificate authority, PEM.
    pub(super) ca_pem: String,
    shared: Arc<Shared>,
    /// Reserves a port on which nothing listens.
    _reserved: Option<Arc<TcpSocket>>,
}

struct Shared {
    script: Mutex<Script>,
    seen: Mutex<Vec<Seen>>,
    open: AtomicUsize,
}

impl Cluster {
    /// Starts an API server.
    pub(super) async fn start() -> Result<Self, String> {
        let authority = Authority::new("tests");
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(|error| error.to_string())?;
        let cluster = Self {
            address: listener.local_addr().map_err(|error| error.to_string())?,
            ca_pem: authority.pem.clone(),
            shared: Arc::new(Shared::default()),
            _reserved: None,
        };
        let acceptor = TlsAcceptor::from(Arc::new(server(&authority)?));
        let shared = Arc::clone(&cluster.shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (shared, acceptor) = (Arc::clone(&shared), acceptor.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        shared.serve(Connection::new(stream)).await;
                    }
                });
            }
        });
        Ok(cluster)
    }

    /// Reserves an address that refuses connections.
    pub(super) fn absent() -> Result<Self, String> {
        let socket = TcpSocket::new_v4().map_err(|error| error.to_string())?;
        socket
            .bind(([127, 0, 0, 1], 0).into())
            .map_err(|error| error.to_string())?;
        Ok(Self {
            address: socket.local_addr().map_err(|error| error.to_string())?,
            ca_pem: Authority::new("tests").pem,
            shared: Arc::new(Shared::default()),
            _reserved: Some(Arc::new(socket)),
        })
    }

    /// Sets what it does from now on.
    pub(super) fn set_script(&self, script: Script) {
        *self.shared.script.lock().expect("no panic before") = script;
    }

    /// The requests received so far.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().expect("no panic before").clone()
    }

    /// Number of open tunnels and streams.
    pub(super) fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            script: Mutex::new(Script::Reply(Vec::new())),
            seen: Mutex::default(),
            open: AtomicUsize::new(0),
        }
    }
}

fn server(authority: &Authority) -> Result<ServerConfig, String> {
    let Pair { certificate, key } = authority.server(&["127.0.0.1"]);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let text = |error: &dyn std::fmt::Display| error.to_string();
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| text(&error))?
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| text(&error))?],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| text(&error))?,
        )
        .map_err(|error| text(&error))
}

impl Shared {
    async fn serve(&self, mut connection: Connection) {
        while let Some(seen) = connection.request().await {
            if seen.is_gateways_own() {
                if connection.stream.write_all(&seen.granted()).await.is_err()
                    || connection.stream.flush().await.is_err()
                {
                    return;
                }
                continue;
            }
            let script = self.script.lock().expect("no panic before").clone();
            let after = Arc::clone(&seen.after);
            let upgrades = seen.upgrades();
            self.seen.lock().expect("no panic before").push(seen);
            match script {
                Script::Reply(bytes) => {
                    if connection.stream.write_all(&bytes).await.is_err() || connection.stream.flush().await.is_err() {
                        return;
                    }
                    if upgrades {
                        return connection.count(&after).await;
                    }
                }
                Script::Tunnel(head) => {
                    self.open.fetch_add(1, Ordering::SeqCst);
                    connection.echo(&head, &after).await;
                    self.open.fetch_sub(1, Ordering::SeqCst);
                    return;
                }
                Script::Events(head, events) => {
                    self.open.fetch_add(1, Ordering::SeqCst);
                    connection.play(&head, events.subscribe()).await;
                    self.open.fetch_sub(1, Ordering::SeqCst);
                    return;
                }
            }
        }
    }
}

struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

impl Connection {
    fn new(stream: TlsStream<TcpStream>) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    async fn request(&mut self) -> Option<Seen> {
        let head = self.read_until(b"\r\n\r\n").await?;
        let head = String::from_utf8_lossy(&head).into_owned();
        let (line, fields) = head.split_once("\r\n")?;
        let mut words = line.split(' ');
        let mut seen = Seen {
            method: words.next()?.to_owned(),
            target: words.next()?.to_owned(),
            fields: lines(fields),
            body: Vec::new(),
            trailers: Vec::new(),
            after: Arc::default(),
        };
        if let Some(length) = seen
            .values("content-length")
            .first()
            .map(|length| length.parse::<usize>())
        {
            seen.body = self.read_exactly(length.ok()?).await?;
        } else if !seen.values("transfer-encoding").is_empty() {
            loop {
                let line = self.read_until(b"\r\n").await?;
                let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).ok()?;
                if size == 0 {
                    break;
                }
                let chunk = self.read_exactly(size + 2).await?;
                seen.body.extend(chunk.get(..size)?);
            }
            loop {
                let line = self.read_until(b"\r\n").await?;
                if line == b"\r\n" {
                    break;
                }
                seen.trailers.extend(lines(&String::from_utf8_lossy(&line)));
            }
        }
        Some(seen)
    }

    /// Counts received bytes until the connection ends.
    async fn count(&mut self, after: &AtomicUsize) {
        after.fetch_add(self.buffer.len(), Ordering::SeqCst);
        let mut piece = [0; 1024];
        while let Ok(length) = self.stream.read(&mut piece).await {
            if length == 0 {
                return;
            }
            after.fetch_add(length, Ordering::SeqCst);
        }
    }

    async fn echo(&mut self, head: &[u8], after: &AtomicUsize) {
        let mut piece = std::mem::take(&mut self.buffer);
        if self.stream.write_all(head).await.is_err() {
            return;
        }
        loop {
            after.fetch_add(piece.len(), Ordering::SeqCst);
            if self.stream.write_all(&piece).await.is_err() || self.stream.flush().await.is_err() {
                return;
            }
            piece.clear();
            match self.stream.read_buf(&mut piece).await {
                Ok(length) if length > 0 => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    async fn play(&mut self, head: &[u8], mut events: broadcast::Receiver<Vec<u8>>) {
        let mut next = head.to_vec();
        let mut piece = [0; 64];
        loop {
            if self.stream.write_all(&next).await.is_err() || self.stream.flush().await.is_err() {
                return;
            }
            tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => next = event,
                    Err(_) => return,
                },
                read = self.stream.read(&mut piece) => match read {
                    Ok(length) if length > 0 => next.clear(),
                    Ok(_) | Err(_) => return,
                },
            }
        }
    }

    /// Reads up to and including `mark`.
    async fn read_until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|window| window == mark) {
                return Some(self.buffer.drain(..at + mark.len()).collect());
            }
            if self.stream.read_buf(&mut self.buffer).await.ok()? == 0 {
                return None;
            }
        }
    }

    async fn read_exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < length {
            if self.stream.read_buf(&mut self.buffer).await.ok()? == 0 {
                return None;
            }
        }
        Some(self.buffer.drain(..length).collect())
    }
}

/// Parses header lines, in order.
fn lines(text: &str) -> Vec<(String, String)> {
    let fields = text.split("\r\n").filter_map(|line| line.split_once(':'));
    fields
        .map(|(name, value)| (name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
        .collect()
}
