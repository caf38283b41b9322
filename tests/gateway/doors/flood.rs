//! Unauthenticated clients that come at a fixed rate, from many addresses, and keep what they have open.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{BALANCER, CONSOLE};

/// 500 requests a second, all endpoints together. A machine that is too slow gets fewer.
const TICK: Duration = Duration::from_millis(20);
const PER_TICK: usize = 10;
/// How long a client keeps what it has open.
const HELD: Duration = Duration::from_secs(60);
/// Addresses of one kind at each endpoint, besides the one that every second request has.
const ADDRESSES: usize = 100;

/// What clients reach before they are authenticated, in the order of docs/security.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// A connection on which nothing is sent.
    Connection,
    /// A TLS handshake that is begun.
    Handshake,
    Agent,
    DeviceCode,
    /// An exchange of a code whose content never comes.
    LoginToken,
    /// Going to an issuer that does not answer.
    SignIn,
    /// A page of argocd-server, which does not answer.
    Argocd,
    /// The webhook of argocd-server.
    Webhook,
    /// A token of an issuer with an unknown key.
    IssuerKeys,
    /// A connection to the listener of the admission webhook.
    Admission,
}

const ENDPOINTS: [Endpoint; 10] = [
    Endpoint::Connection,
    Endpoint::Handshake,
    Endpoint::Agent,
    Endpoint::DeviceCode,
    Endpoint::LoginToken,
    Endpoint::SignIn,
    Endpoint::Argocd,
    Endpoint::Webhook,
    Endpoint::IssuerKeys,
    Endpoint::Admission,
];

/// Where the endpoints are.
pub(super) struct Targets {
    public: SocketAddr,
    admission: SocketAddr,
    tls: TlsConnector,
    /// A token with a key that its issuer does not have.
    unknown_key: String,
}

impl Targets {
    pub(super) fn new((public, admission): (SocketAddr, SocketAddr), authority: &str, unknown_key: String) -> Self {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
            .unwrap();
        let mut config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Self {
            public,
            admission,
            tls: TlsConnector::from(Arc::new(config)),
            unknown_key,
        }
    }

    /// The head of a request, without the empty line at its end, and its content. `None` for connections alone.
    fn request(&self, endpoint: Endpoint) -> Option<(String, &'static str)> {
        let form = |path: &str, length: usize| {
            format!("POST {path} HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n")
        };
        let device = "{\"client\":\"x\"}";
        let (head, content) = match endpoint {
            Endpoint::Connection | Endpoint::Handshake | Endpoint::Admission => return None,
            Endpoint::Agent => {
                let fields = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                     sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
                let protocol = tollgate_agent::SUBPROTOCOL;
                let path = "/api/v1/tollgate/agents/connect";
                let head = format!("GET {path} HTTP/1.1\r\n{fields}sec-websocket-protocol: {protocol}\r\n");
                return Some((format!("{head}host: gateway.test\r\n"), ""));
            }
            Endpoint::DeviceCode => (form("/api/v1/login/device", device.len()), device),
            Endpoint::LoginToken => (form("/api/v1/login/token", 100), ""),
            Endpoint::SignIn => {
                let head = "GET /console/sign-in/stalled HTTP/1.1\r\nconnection: close\r\n";
                return Some((format!("{head}host: {CONSOLE}\r\n"), ""));
            }
            Endpoint::Argocd => ("GET /login HTTP/1.1\r\n".to_owned(), ""),
            Endpoint::Webhook => (form("/api/webhook", 2), "{}"),
            Endpoint::IssuerKeys => {
                let bearer = &self.unknown_key;
                let head = format!("GET /api/v1/me HTTP/1.1\r\nauthorization: Bearer {bearer}\r\n");
                (head, "")
            }
        };
        Some((format!("{head}connection: close\r\nhost: gateway.test\r\n"), content))
    }

    /// Sends a request, and keeps its connection open.
    async fn visit(&self, endpoint: Endpoint, client: FloodClient) -> std::io::Result<()> {
        let address = match endpoint {
            Endpoint::Admission => self.admission,
            _ => self.public,
        };
        let socket = TcpSocket::new_v4()?;
        socket.bind((client.local, 0).into())?;
        let mut stream = socket.connect(address).await?;
        let Some((head, content)) = self.request(endpoint) else {
            if endpoint == Endpoint::Handshake {
                // A record of TLS: its type, version and length.
                stream.write_all(b"\x16\x03\x01\x02\x00\x01").await?;
            }
            return read_to_end(&mut stream).await;
        };
        let name = ServerName::try_from("localhost").map_err(std::io::Error::other)?;
        let mut stream = self.tls.connect(name, stream).await?;
        let forwarded = client
            .behind_balancer
            .map(|address| format!("x-forwarded-for: {address}\r\n"));
        let forwarded = forwarded.unwrap_or_default();
        stream
            .write_all(format!("{head}{forwarded}\r\n{content}").as_bytes())
            .await?;
        stream.flush().await?;
        read_to_end(&mut stream).await
    }
}

async fn read_to_end(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> std::io::Result<()> {
    let mut sink = [0; 1024];
    while stream.read(&mut sink).await? > 0 {}
    Ok(())
}

/// Where a client is.
#[derive(Clone, Copy)]
struct FloodClient {
    local: Ipv4Addr,
    behind_balancer: Option<IpAddr>,
}

impl FloodClient {
    /// Every second one at an endpoint has the same address, or one of the same /64 network.
    fn new(endpoint: usize, visit: usize) -> Self {
        let network = match visit % 4 {
            0 | 1 => 0,
            _ => 1 + (visit / 4) % ADDRESSES,
        };
        let is_alone = matches!(
            ENDPOINTS[endpoint],
            Endpoint::Connection | Endpoint::Handshake | Endpoint::Admission
        );
        if visit.is_multiple_of(2) || is_alone {
            let octets = [127, 9, endpoint, 1 + network].map(|octet| u8::try_from(octet).unwrap());
            return Self {
                local: octets.into(),
                behind_balancer: None,
            };
        }
        let address = format!("2001:db8:{endpoint:x}:{network:x}::{:x}", visit % 0x1_0000);
        Self {
            local: BALANCER,
            behind_balancer: Some(address.parse().unwrap()),
        }
    }
}

/// Clients that come until this is dropped.
pub(super) struct Flood {
    tasks: JoinSet<()>,
    /// Endpoints that get half of all requests, and an equal share of the others.
    preferred: Arc<Mutex<Vec<Endpoint>>>,
    sent: Arc<AtomicUsize>,
    since: Instant,
}

impl Flood {
    pub(super) fn start(targets: &Arc<Targets>) -> Self {
        let mut flood = Self {
            tasks: JoinSet::new(),
            preferred: Arc::default(),
            sent: Arc::default(),
            since: Instant::now(),
        };
        let (targets, preferred, sent) = (
            Arc::clone(targets),
            Arc::clone(&flood.preferred),
            Arc::clone(&flood.sent),
        );
        flood.tasks.spawn(async move {
            let mut ticks = interval(TICK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let mut visits = JoinSet::new();
            let mut numbers = [0; ENDPOINTS.len()];
            loop {
                ticks.tick().await;
                for _ in 0..PER_TICK {
                    let number = sent.fetch_add(1, Ordering::Relaxed);
                    let endpoint = choose(number, &preferred.lock().unwrap());
                    let client = FloodClient::new(endpoint, numbers[endpoint]);
                    numbers[endpoint] += 1;
                    let targets = Arc::clone(&targets);
                    visits.spawn(async move {
                        // A refusal is what the test is about.
                        let _ = timeout(HELD, targets.visit(ENDPOINTS[endpoint], client)).await;
                    });
                }
                while visits.try_join_next().is_some() {}
            }
        });
        flood
    }

    /// Sends more to these endpoints than to others, so that their bounds are reached on a slow machine, too.
    pub(super) fn turn_to(&self, endpoints: Vec<Endpoint>) {
        *self.preferred.lock().unwrap() = endpoints;
    }

    /// Requests a second so far.
    pub(super) fn rate(&self) -> f64 {
        self.sent.load(Ordering::Relaxed) as f64 / self.since.elapsed().as_secs_f64()
    }
}

/// The index of the endpoint of a request.
fn choose(number: usize, preferred: &[Endpoint]) -> usize {
    let at = number / 2;
    if number % 2 == 1 && !preferred.is_empty() {
        let endpoint = preferred[at % preferred.len()];
        return ENDPOINTS.iter().position(|other| *other == endpoint).unwrap();
    }
    match preferred.is_empty() {
        true => number % ENDPOINTS.len(),
        false => at % ENDPOINTS.len(),
    }
}
