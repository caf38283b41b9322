//! Everything that strangers can reach is used by many of them at once, at a fixed rate. People who are signed
//! in and agents whose key is known are served all the while, and each bound is seen to act.
//!
//! With `TOLLGATE_DOORS_REPORT=1` it reports how much longer people wait meanwhile (`cargo xtask nightly doors`).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::header::HOST;
use reqwest::{Certificate, Client, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use test_support::backend::{Backend, Reply};
use test_support::issuer::Issuer;
use test_support::kubernetes::gateway::{Gateway, Layout};
use test_support::token;
use test_support::world::SESSION_KEY;
use tollgate_agent::Agent;
use tollgate_agent::key::SigningKey;
use tollgate_agent::settings::Settings;

/// Requests of strangers, all doors together: 500 a second.
const BETWEEN: Duration = Duration::from_millis(2);
/// How long a stranger keeps what it has open.
const HELD: Duration = Duration::from_secs(10);
/// The longest wait for a bound to act, and for an answer to a person.
const PATIENCE: Duration = Duration::from_secs(120);
/// Clusters whose agents connect while strangers are at it.
const AGENTS: usize = 4;
/// Addresses of the many strangers at one door.
const CROWD: u8 = 60;
/// People who send one request after another.
const PEOPLE: usize = 4;
/// How long people are measured, with strangers and without.
const ROUND: Duration = Duration::from_secs(5);
const ROUNDS: usize = 5;

/// The host of the console, which has no other service.
const CONSOLE: &str = "console.example";

/// A door, in the order of docs/security.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Door {
    /// A connection without a handshake.
    Connection,
    Agent,
    DeviceCode,
    SignIn,
    /// What argocd-server serves to everybody.
    Argocd,
    /// A token of an issuer with an unknown key.
    IssuerKeys,
}

const DOORS: [Door; 6] = [
    Door::Connection,
    Door::Agent,
    Door::DeviceCode,
    Door::SignIn,
    Door::Argocd,
    Door::IssuerKeys,
];

/// A counter of each bound: family, and labels that it has among others.
const BOUNDS: [(&str, &[&str]); 10] = [
    ("tollgate_connections_closed_total", &["bound=\"address\""]),
    ("tollgate_connections_closed_total", &["bound=\"total\""]),
    (
        "tollgate_agent_events_total",
        &["event=\"agent.refused\"", "reason=\"too_many\""],
    ),
    (
        "tollgate_agent_events_total",
        &["event=\"agent.refused\"", "reason=\"no_proof_in_time\""],
    ),
    ("tollgate_decisions_total", &["front=\"login\"", "reason=\"slow_down\""]),
    (
        "tollgate_decisions_total",
        &["front=\"console\"", "reason=\"too_many_requests_of_address\""],
    ),
    (
        "tollgate_decisions_total",
        &["front=\"console\"", "reason=\"too_many_requests_of_strangers\""],
    ),
    (
        "tollgate_decisions_total",
        &["front=\"argocd\"", "reason=\"too_many_requests_of_address\""],
    ),
    (
        "tollgate_decisions_total",
        &["front=\"argocd\"", "reason=\"too_many_requests_of_strangers\""],
    ),
    ("tollgate_issuer_key_fetches_spared_total", &[]),
];

/// A gateway with every door, and what is behind them.
struct Site {
    gateway: Gateway,
    authority: Certificate,
    /// A token with a key that its issuer does not have.
    unknown_key: String,
    _argocd: Backend,
    /// An issuer that accepts and never answers.
    _silent: TcpListener,
    _issuer: Issuer,
}

impl Site {
    async fn start(files: &Path) -> Self {
        let argocd = Backend::start(|seen| match seen.line().contains("/healthz") {
            true => Reply::ok(""),
            false => Reply::Stall(Vec::new()),
        })
        .await;
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let issuer = Issuer::start().await;
        let mut layout = Layout::new(&["alice"], "p, alice, clusters, get, *, allow\n");
        layout.tls();
        layout.policies("argocd");
        let mapped = |url: &str, prefix: &str| {
            json!({
                "issuer": {"url": url, "audiences": ["doors"]},
                "claimMappings": {"username": {"claim": "sub", "prefix": prefix}},
            })
        };
        let mut stalled = mapped(&format!("http://{}", silent.local_addr().unwrap()), "stalled:");
        stalled["client"] = json!({"id": "doors", "name": "stalled", "scopes": ["openid"]});
        layout.settings(json!({
            // Small enough that strangers reach them.
            "limits": {"connections": 800, "connectionsPerAddress": 100, "requestsPerPerson": 20},
            "argocd": {"server": format!("http://{}", argocd.address)},
            "authentication": {"argocdSessions": true, "jwt": [stalled, mapped(&issuer.url, "live:")]},
            "console": {"url": format!("https://{CONSOLE}")},
            "store": {"url": "sqlite:tollgate.db"},
            "agents": {},
            "clusters": {},
        }));
        for number in 0..AGENTS {
            let name = format!("c{number}");
            let config = json!({"agent": {"publicKeys": [make_key(files, number)]}});
            let server = format!("https://{name}.clusters.invalid");
            let data = json!({"name": name, "server": server, "config": config.to_string()});
            layout.cluster(&name, &data);
        }
        let authority = std::fs::read(layout.root().join("gateway-ca.pem")).unwrap();
        std::fs::write(files.join("gateway.pem"), &authority).unwrap();
        let known = issuer.token(&json!({"sub": "nobody", "aud": "doors"}));
        Self {
            gateway: layout.start().await,
            authority: Certificate::from_pem(&authority).unwrap(),
            unknown_key: with_unknown_key(&known),
            _argocd: argocd,
            _silent: silent,
            _issuer: issuer,
        }
    }

    /// A client with this address.
    fn client(&self, address: IpAddr) -> Client {
        Client::builder()
            .no_proxy()
            .local_address(address)
            .tls_certs_only([self.authority.clone()])
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap()
    }

    /// What a stranger sends to a door; `None` for a connection alone.
    fn request(&self, door: Door, client: &Client) -> Option<RequestBuilder> {
        let url = |path: &str| format!("{}{path}", self.gateway.url());
        Some(match door {
            Door::Connection => return None,
            Door::Agent => client
                .get(url("/api/v1/tollgate/agents/connect"))
                .header("connection", "upgrade")
                .header("upgrade", "websocket")
                .header("sec-websocket-version", "13")
                .header("sec-websocket-protocol", tollgate_agent::SUBPROTOCOL)
                .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            Door::DeviceCode => client.post(url("/api/v1/login/device")).json(&json!({"client": "x"})),
            Door::SignIn => client.get(url("/console/sign-in/stalled")).header(HOST, CONSOLE),
            Door::Argocd => client.get(url("/login")),
            Door::IssuerKeys => client.get(url("/api/v1/me")).bearer_auth(&self.unknown_key),
        })
    }

    /// The sum of a counter's series that have these labels.
    async fn count(&self, (family, labels): (&str, &[&str])) -> f64 {
        let text = self.gateway.admin_text("/metrics").await;
        let series = text.lines().filter(|line| line.starts_with(family));
        let series = series.filter(|line| labels.iter().all(|label| line.contains(label)));
        series
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

/// Strangers who come at a fixed rate until this is dropped.
struct Strangers {
    _task: JoinSet<()>,
}

impl Strangers {
    fn start(site: &Arc<Site>) -> Self {
        let site = Arc::clone(site);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut clients = HashMap::new();
            let mut due = interval(BETWEEN);
            due.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let mut visits = JoinSet::new();
            for number in 0_usize.. {
                due.tick().await;
                let door = number % DOORS.len();
                let address = stranger(door, number / DOORS.len());
                let client = clients.entry(address).or_insert_with(|| site.client(address)).clone();
                visits.spawn(visit(Arc::clone(&site), DOORS[door], (address, client)));
                while visits.try_join_next().is_some() {}
            }
        });
        Self { _task: task }
    }
}

/// Every fourth stranger at a door has the same address.
fn stranger(door: usize, visit: usize) -> IpAddr {
    let door = u8::try_from(door).unwrap();
    let host = match visit % 4 {
        0 => 1,
        _ => u8::try_from(visit % usize::from(CROWD)).unwrap() + 2,
    };
    Ipv4Addr::new(127, 9, door, host).into()
}

async fn visit(site: Arc<Site>, door: Door, (address, client): (IpAddr, Client)) {
    let holding = async {
        let Some(request) = site.request(door, &client) else {
            let socket = TcpSocket::new_v4().unwrap();
            if socket.bind((address, 0).into()).is_ok()
                && let Ok(mut stream) = socket.connect(site.gateway.address()).await
            {
                let _ = stream.read_u8().await;
            }
            return;
        };
        let Ok(answer) = request.send().await else { return };
        if answer.status() == 101 {
            if let Ok(mut tunnel) = answer.upgrade().await {
                let mut read = [0; 1024];
                while matches!(tunnel.read(&mut read).await, Ok(length) if length > 0) {}
            }
            return;
        }
        let _ = answer.bytes().await;
    };
    let _ = timeout(HELD, holding).await;
}

/// People who send one request after another, and how long each took.
struct People {
    tasks: JoinSet<Vec<Duration>>,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
}

impl People {
    fn start(site: &Arc<Site>) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for number in 0..PEOPLE {
            let (site, stop, answered) = (Arc::clone(site), Arc::clone(&stop), Arc::clone(&answered));
            tasks.spawn(async move {
                let own = IpAddr::from(Ipv4Addr::new(127, 8, 0, u8::try_from(number).unwrap() + 1));
                let mut client = site.client(own);
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    // Half of them have just come.
                    if number % 2 == 0 {
                        client = site.client(own);
                    }
                    let begun = Instant::now();
                    let request = client
                        .get(format!("{}/api/v1/tollgate/clusters", site.gateway.url()))
                        .bearer_auth(token::session(SESSION_KEY, "alice"));
                    let answer = timeout(PATIENCE, request.send()).await.expect("an answer").unwrap();
                    assert_eq!(answer.status(), 200);
                    let clusters: Value = answer.json().await.unwrap();
                    assert_eq!(clusters["items"].as_array().map(Vec::len), Some(AGENTS), "{clusters}");
                    took.push(begun.elapsed());
                    answered.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_millis(5)).await;
                }
                took
            });
        }
        Self { tasks, stop, answered }
    }

    /// The times of all of them, the longest last.
    async fn end(mut self) -> Vec<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        let mut took = Vec::new();
        while let Some(times) = self.tasks.join_next().await {
            took.extend(times.unwrap());
        }
        took.sort_unstable();
        took
    }
}

fn make_key(folder: &Path, number: usize) -> String {
    let pem = SigningKey::generate_pem().unwrap();
    let key = SigningKey::from_pem(&pem).unwrap().public().to_string();
    let file = folder.join(format!("{number}.pem"));
    std::fs::write(file, secrecy::ExposeSecret::expose_secret(&pem)).unwrap();
    key
}

/// The agents of all clusters, until this is dropped.
fn connect_agents(site: &Site, files: &Path) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for number in 0..AGENTS {
        let settings = json!({
            "gateway": site.gateway.url(), "certificateAuthority": "gateway.pem", "cluster": format!("c{number}"),
            "key": format!("{number}.pem"),
            "apiServer": {
                "url": "https://127.0.0.1:1", "certificateAuthority": "gateway.pem", "token": "gateway.pem",
            },
        });
        let file = files.join(format!("agent{number}.yaml"));
        std::fs::write(&file, settings.to_string()).unwrap();
        let agent = Agent::new(Settings::load(&file, None).unwrap()).unwrap();
        tasks.spawn(Arc::new(agent).run(CancellationToken::new(), Duration::ZERO));
    }
    tasks
}

/// The token with another `kid`.
fn with_unknown_key(token: &str) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    let (_, rest) = token.split_once('.').unwrap();
    let head = json!({"alg": "ES256", "kid": "unknown", "typ": "JWT"}).to_string();
    format!("{}.{rest}", URL_SAFE_NO_PAD.encode(head))
}

/// Waits until a condition holds, however many times it has to be asked.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < end, "waited {PATIENCE:?} for {what}");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_at_every_door_keep_out_nobody_who_is_known() {
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let files = tempfile::tempdir().unwrap();
    let site = Arc::new(Site::start(files.path()).await);
    let strangers = Strangers::start(&site);
    let people = People::start(&site);
    for bound in BOUNDS {
        until(&format!("the bound {bound:?}"), async || site.count(bound).await > 0.0).await;
    }
    // Every bound is reached: who comes now is known, and served.
    let _agents = connect_agents(&site, files.path());
    let connected = ("tollgate_agents_connected", &[] as &[&str]);
    until("the agents", async || site.count(connected).await >= AGENTS as f64).await;
    let before = people.answered.load(Ordering::Relaxed);
    until("more answers", async || {
        people.answered.load(Ordering::Relaxed) > before + 4 * PEOPLE
    })
    .await;
    assert!(site.count(connected).await >= AGENTS as f64);
    people.end().await;
    drop(strangers);

    if std::env::var_os("TOLLGATE_DOORS_REPORT").is_some() {
        report(&site).await;
    }
}

/// Prints the ratio of people's p99 with and without strangers: the best of alternating rounds.
async fn report(site: &Arc<Site>) {
    let p99 = async || {
        let people = People::start(site);
        sleep(ROUND).await;
        let took = people.end().await;
        took[took.len() * 99 / 100].as_secs_f64()
    };
    let mut best = [f64::MAX; 2];
    for _ in 0..ROUNDS {
        sleep(HELD).await;
        best[0] = best[0].min(p99().await);
        let strangers = Strangers::start(site);
        best[1] = best[1].min(p99().await);
        drop(strangers);
    }
    let [calm, stormy] = best;
    println!(
        "p99 of people: {:.1} ms without strangers, {:.1} ms with 500 requests of strangers a second: {:.2} times",
        calm * 1_000.0,
        stormy * 1_000.0,
        stormy / calm
    );
}
