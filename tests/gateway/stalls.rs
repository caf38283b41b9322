//! What the gateway depends on stalls: it accepts and never answers, or is a pipe that nobody reads. Requests
//! that do not need it go on, and probes are answered.

use std::fs::OpenOptions;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::{Instant, sleep, timeout};

use test_support::backend::{Backend, Reply};
use test_support::client::PATIENCE;
use test_support::port::free_port;
use test_support::redis::Redis;
use test_support::relay::{Mode, Relay};
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World};

use crate::clusters::cluster;

/// The one bound of wall time here: a probe that takes longer may get the process killed.
const PROBE: Duration = Duration::from_millis(100);

/// Requests while something stalls, of each kind.
const REQUESTS: usize = 400;

/// `tollgate serve` beside a [`World`], with its own settings and a log that nobody reads.
struct Stalled {
    _process: Child,
    log: Option<BufReader<ChildStderr>>,
    public: SocketAddr,
    admin: SocketAddr,
}

impl Stalled {
    async fn start(world: &World, settings: &Value, log: Stdio) -> Self {
        let port = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let (public, admin) = (port(), port());
        let text = std::fs::read_to_string(world.path("tollgate.yaml")).unwrap();
        let mut all: Value = serde_json::from_str(&text).unwrap();
        all["listen"] = json!(public);
        all["admin"]["listen"] = json!(admin);
        for (key, value) in settings.as_object().unwrap() {
            all[key] = value.clone();
        }
        let path = world.path("stalled.yaml");
        std::fs::write(&path, all.to_string()).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["serve", "--log", "trace", "--config"])
            .arg(path)
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = process.stderr.take().map(BufReader::new);
        Self {
            _process: process,
            log,
            public,
            admin,
        }
    }

    async fn admin(&self, path: &str) -> Option<(u16, String)> {
        let answer = reqwest::get(format!("http://{}{path}", self.admin)).await.ok()?;
        Some((answer.status().as_u16(), answer.text().await.ok()?))
    }

    /// Waits until a page of the admin listener has this status, and returns it.
    async fn until(&self, path: &str, status: u16) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.admin(path).await;
            if let Some((_, text)) = answer.as_ref().filter(|(seen, _)| *seen == status) {
                return text.clone();
            }
            assert!(Instant::now() < end, "{path} is not {status}: {answer:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The fastest of a few probes: other tests take the machine's time as well.
    async fn probe(&self) {
        let mut fastest = Duration::MAX;
        for _ in 0..10 {
            let start = Instant::now();
            let answer = timeout(PATIENCE, self.admin("/healthz")).await.expect("an answer");
            assert_eq!(answer.map(|(status, _)| status), Some(200));
            fastest = fastest.min(start.elapsed());
        }
        assert!(fastest < PROBE, "{fastest:?}");
    }

    async fn counter(&self, name: &str) -> u64 {
        let text = self.until("/metrics", 200).await;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {text}"))
            .trim()
            .parse()
            .unwrap()
    }

    /// Requests of strangers and of `alice`, all of which are answered.
    async fn assert_serves(&self) {
        self.assert_serves_times(REQUESTS).await;
    }

    async fn assert_serves_times(&self, requests: usize) {
        let client = reqwest::Client::new();
        let url = format!("http://{}/api/v1/extensions/echo/hello", self.public);
        for _ in 0..requests {
            let stranger = timeout(PATIENCE, client.get(&url).send()).await.expect("an answer");
            assert_eq!(stranger.unwrap().status(), 401);
            assert_eq!(self.ask("/api/v1/extensions/echo/hello").await, 200);
        }
        self.probe().await;
    }

    /// A request of `alice`, and the status of its answer.
    fn ask(&self, path: &str) -> impl Future<Output = u16> + Send + use<> {
        let asked = reqwest::Client::new()
            .get(format!("http://{}{path}", self.public))
            .bearer_auth(token::session(SESSION_KEY, "alice"))
            .header("Argocd-Application-Name", "argocd:cart")
            .header("Argocd-Project-Name", "shop")
            .send();
        async move {
            let answer = timeout(PATIENCE, asked).await.expect("an answer").unwrap();
            answer.status().as_u16()
        }
    }

    /// Waits until a metric has this value.
    async fn until_metric(&self, series: &str, value: &str) {
        let end = Instant::now() + PATIENCE;
        let line = format!("{series} {value}");
        loop {
            let text = self.until("/metrics", 200).await;
            if text.lines().any(|seen| seen == line) {
                return;
            }
            assert!(Instant::now() < end, "no `{line}`: {text}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn world() -> (Backend, World) {
    let backend = Backend::start(|_| Reply::ok("hello")).await;
    let world = Setup::with_backend(backend.address).start().await;
    (backend, world)
}

#[tokio::test]
async fn a_log_that_nobody_reads_stops_nothing() {
    let (_backend, world) = world().await;
    let mut stalled = Stalled::start(&world, &json!({"decisions": {}}), Stdio::piped()).await;
    stalled.until("/readyz", 200).await;
    let mut lost = 0;
    for _ in 0..5 {
        stalled.assert_serves().await;
        lost = stalled.counter("tollgate_log_lines_lost_total").await;
        if lost > 0 {
            break;
        }
    }
    assert!(lost > 0, "the queue is bounded, and what it loses is counted");
    // Recovery by itself: what waits is written as soon as somebody reads.
    let mut lines = stalled.log.take().unwrap().lines();
    let line = timeout(PATIENCE, lines.next_line()).await.expect("a line");
    assert!(line.unwrap().is_some());
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    stalled.assert_serves().await;
}

#[tokio::test]
async fn a_decision_file_that_blocks_stops_nothing() {
    let (_backend, world) = world().await;
    let path = world.path("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let _reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let stalled = Stalled::start(&world, &json!({"decisions": {"file": path}}), Stdio::null()).await;
    stalled.until("/readyz", 200).await;
    stalled.assert_serves().await;
}

/// It accepts connections and never answers.
async fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The process waits instead of ending, and says for what.
#[tokio::test]
async fn a_store_that_stalls_at_the_start_is_awaited() {
    let (_backend, world) = world().await;
    let (_listener, address) = silent().await;
    let settings = json!({
        "store": {"url": format!("postgres://tollgate@{address}/tollgate?sslmode=disable")},
        "kubernetes": {"users": [{"issuer": "argocd", "is": "username"}]},
    });
    let stalled = Stalled::start(&world, &settings, Stdio::null()).await;
    let awaited = stalled.until("/readyz", 503).await;
    assert!(awaited.contains("waits for"), "{awaited}");
    stalled.probe().await;
    let text = stalled.until("/metrics", 200).await;
    assert!(text.contains("tollgate_log_lines_lost_total"), "{text}");
    // Longer than one attempt takes.
    let end = Instant::now() + Duration::from_secs(15);
    while Instant::now() < end {
        let (status, awaited) = stalled.admin("/readyz").await.expect("the process goes on");
        assert_eq!(status, 503);
        if awaited.contains("the store") {
            return;
        }
        sleep(Duration::from_millis(200)).await;
    }
    panic!("it does not say that it waits for the store");
}

/// A server that requests are passed on to, and which accepts and never answers for a while.
struct PassedOn {
    name: &'static str,
    /// Settings that name the server.
    settings: fn(url: &str) -> Value,
    /// What needs the server.
    path: &'static str,
    /// The front that counts requests without an answer.
    front: &'static str,
}

const PASSED_ON: [PassedOn; 3] = [
    PassedOn {
        name: "argocd-server",
        settings: |url| json!({"argocd": {"server": url}}),
        path: "/api/v1/version",
        front: "argocd",
    },
    PassedOn {
        name: "the backend of an extension",
        settings: |_| json!({}),
        path: "/api/v1/extensions/stalls/hello",
        front: "extensions",
    },
    PassedOn {
        name: "the API server of a cluster",
        settings: |_| json!({"clusters": {"forward": true}}),
        path: "/clusters/stalls/k8s/version",
        front: "clusters",
    },
];

/// Requests that wait for the server.
const WAITING: usize = 20;

#[tokio::test]
async fn a_server_that_stalls_stops_only_what_is_passed_on_to_it() {
    for row in PASSED_ON {
        let backend = Backend::start(|_| Reply::ok("{}")).await;
        let relay = Relay::to(&format!("http://{}", backend.address)).await;
        let url = relay.url().trim_end_matches('/').to_owned();
        let mut setup = Setup::with_backend(backend.address);
        let config = format!("{{services: [{{url: '{url}'}}]}}");
        setup.argocd_cm.insert("extension.config.stalls".to_owned(), config);
        let policy = "p, alice, applications, get, shop/*, allow\np, alice, extensions, invoke, *, allow\n\
                      p, alice, clusters, *, *, allow\n";
        setup.rbac_cm.insert("policy.csv".to_owned(), policy.to_owned());
        setup.objects.push(cluster("stalls", &url, &json!({}), &[]));
        let world = setup.start().await;
        let stalled = Stalled::start(&world, &(row.settings)(&url), Stdio::null()).await;
        stalled.until("/readyz", 200).await;
        assert_eq!(stalled.ask(row.path).await, 200, "{}", row.name);

        relay.set(Mode::Stall);
        let waiting: Vec<_> = (0..WAITING).map(|_| tokio::spawn(stalled.ask(row.path))).collect();
        let series = format!("tollgate_open_exchanges{{front=\"{}\"}}", row.front);
        stalled.until_metric(&series, &WAITING.to_string()).await;
        stalled.assert_serves_times(WAITING).await;
        assert!(waiting.iter().all(|asked| !asked.is_finished()), "{}", row.name);

        relay.set(Mode::Pass);
        for asked in waiting {
            assert_eq!(asked.await.unwrap(), 200, "{}", row.name);
        }
        assert_eq!(stalled.ask(row.path).await, 200, "{}", row.name);
        stalled.until_metric(&series, "0").await;
    }
}

/// Tokens are accepted while the list of revoked ones is not known, if the settings say so.
#[tokio::test]
async fn a_redis_that_stalls_stops_nothing_and_is_used_again() {
    let (_backend, world) = world().await;
    let redis = Redis::start().await;
    let relay = Relay::to(&format!("redis://{}", redis.address())).await;
    let settings = json!({"argocd": {"server": "http://127.0.0.1:1", "redis": {
        "server": relay.url(), "whenUnavailable": "allow", "gracePeriod": "2s",
    }}});
    let stalled = Stalled::start(&world, &settings, Stdio::null()).await;
    stalled.until("/readyz", 200).await;
    let series = "tollgate_argocd_revoked_tokens_unavailable";
    stalled.until_metric(series, "0").await;
    relay.set(Mode::Stall);
    stalled.until_metric(series, "1").await;
    stalled.assert_serves_times(WAITING).await;
    relay.set(Mode::Pass);
    stalled.until_metric(series, "0").await;
}
