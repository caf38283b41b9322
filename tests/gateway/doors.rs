//! Everything that clients reach before they are authenticated is used by many of them at once, at a fixed
//! rate. People who are signed in, agents whose key is known and API servers are served all the while, and
//! each bound is seen to act by its counter.
//!
//! With `TOLLGATE_DOORS_REPORT=1` it also prints how much longer people wait meanwhile (`cargo xtask nightly
//! doors`).

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::{Certificate, Client, Identity};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use test_support::authority::Pair;
use test_support::backend::{Backend, Reply};
use test_support::issuer::Issuer;
use test_support::kubernetes::gateway::{Gateway, Layout};
use test_support::kubernetes::webhook::Webhook;
use test_support::token;
use test_support::world::SESSION_KEY;
use tollgate_agent::Agent;
use tollgate_agent::key::SigningKey;
use tollgate_agent::settings::Settings;

use flood::{Endpoint, Flood, Targets};

mod flood;

/// The longest wait for a bound to act, and for an answer to a known caller.
const PATIENCE: Duration = Duration::from_secs(120);
/// Clusters whose agents connect during the flood.
const AGENTS: usize = 4;
/// People who send one request after another.
const PEOPLE: usize = 4;
/// Requests of each known caller after all bounds have acted.
const MORE: usize = 5;
/// How long people are measured, with the flood and without.
const ROUND: Duration = Duration::from_secs(10);
const ROUNDS: usize = 5;

/// The host of the console.
const CONSOLE: &str = "console.example";
/// The load balancer behind which the clients with IPv6 addresses are.
const BALANCER: Ipv4Addr = Ipv4Addr::new(127, 7, 0, 1);

/// A counter that rises when a bound acts: its name, and labels that it has among others.
#[derive(Clone, Copy, Debug)]
struct Bound {
    endpoint: Endpoint,
    counter: &'static str,
    labels: &'static [&'static str],
}

const fn bound(endpoint: Endpoint, counter: &'static str, labels: &'static [&'static str]) -> Bound {
    Bound {
        endpoint,
        counter,
        labels,
    }
}

const CLOSED: &str = "tollgate_connections_closed_total";
const CONNECTOR_EVENTS: &str = "tollgate_connector_events_total";
const DECISIONS: &str = "tollgate_decisions_total";

/// Those of docs/security.md that a flood of some seconds can reach.
const BOUNDS: [Bound; 13] = [
    bound(
        Endpoint::Connection,
        CLOSED,
        &["listener=\"public\"", "bound=\"address\""],
    ),
    bound(Endpoint::Handshake, CLOSED, &["listener=\"public\"", "bound=\"total\""]),
    bound(
        Endpoint::Admission,
        CLOSED,
        &["listener=\"admission\"", "bound=\"address\""],
    ),
    bound(
        Endpoint::Admission,
        CLOSED,
        &["listener=\"admission\"", "bound=\"total\""],
    ),
    bound(
        Endpoint::Agent,
        CONNECTOR_EVENTS,
        &["event=\"agent.refused\"", "reason=\"too_many\""],
    ),
    bound(
        Endpoint::Agent,
        CONNECTOR_EVENTS,
        &["event=\"agent.refused\"", "reason=\"no_proof_in_time\""],
    ),
    bound(
        Endpoint::DeviceCode,
        DECISIONS,
        &["front=\"login\"", "reason=\"slow_down\""],
    ),
    bound(
        Endpoint::LoginToken,
        DECISIONS,
        &["front=\"login\"", "reason=\"too_many_requests_of_address\""],
    ),
    bound(
        Endpoint::SignIn,
        DECISIONS,
        &["front=\"console\"", "reason=\"too_many_requests_of_strangers\""],
    ),
    bound(
        Endpoint::LoginToken,
        DECISIONS,
        &["front=\"login\"", "reason=\"too_many_requests_of_strangers\""],
    ),
    bound(
        Endpoint::Webhook,
        DECISIONS,
        &["front=\"argocd\"", "reason=\"too_many_requests_of_address\""],
    ),
    bound(
        Endpoint::Argocd,
        DECISIONS,
        &["front=\"argocd\"", "reason=\"too_many_requests_of_strangers\""],
    ),
    bound(Endpoint::IssuerKeys, "tollgate_issuer_key_fetches_spared_total", &[]),
];

/// A gateway with everything that is served before authentication, and what is behind it.
struct Site {
    gateway: Gateway,
    webhook: Webhook,
    authority: Certificate,
    targets: Arc<Targets>,
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
        let webhook = Webhook::new();
        let mut layout = Layout::new(&["alice"], "p, alice, clusters, get, *, allow\n");
        webhook.configure(&mut layout, &json!({}));
        layout.policies("argocd");
        let mapped = |url: &str, prefix: &str| {
            json!({
                "issuer": {"url": url, "audiences": ["doors"]},
                "algorithms": ["ES256"],
                "claimMappings": {"username": {"claim": "sub", "prefix": prefix}},
            })
        };
        let mut stalled = mapped(&format!("http://{}", silent.local_addr().unwrap()), "stalled:");
        stalled["client"] = json!({"id": "doors", "name": "stalled", "scopes": ["openid"]});
        layout.settings(json!({
            // Small enough to be reached at any speed of the machine: what is open stays so for a minute.
            "limits": {
                "connections": 2_000, "connectionsPerAddress": 30, "requestsPerPerson": 20, "headerTimeout": "60s",
            },
            "trustedProxies": [BALANCER.to_string()],
            "argocd": {"server": format!("http://{}", argocd.address)},
            "authentication": {"argocdSessions": true, "jwt": [stalled, mapped(&issuer.url, "live:")]},
            "console": {"url": format!("https://{CONSOLE}")},
            "store": {"url": "sqlite:tollgate.db"},
            "connectors": {},
            "clusters": {},
        }));
        for number in 0..AGENTS {
            let name = format!("c{number}");
            let config = json!({"agent": {"publicKeys": [make_key(files, number)]}});
            let server = format!("https://{name}.clusters.invalid");
            let data = json!({"name": name, "server": server, "config": config.to_string()});
            layout.cluster(&name, &data);
        }
        let authority = std::fs::read_to_string(layout.root().join("gateway-ca.pem")).unwrap();
        std::fs::write(files.join("gateway.pem"), &authority).unwrap();
        let known = issuer.token(&json!({"sub": "nobody", "aud": "doors"}));
        let gateway = layout.start().await;
        let admission = (Ipv4Addr::LOCALHOST, webhook.port()).into();
        let targets = Targets::new((gateway.address(), admission), &authority, with_unknown_key(&known));
        Self {
            gateway,
            webhook,
            authority: Certificate::from_pem(authority.as_bytes()).unwrap(),
            targets: Arc::new(targets),
            _argocd: argocd,
            _silent: silent,
            _issuer: issuer,
        }
    }

    /// A client of the person with this number, who has a separate address.
    fn person(&self, number: usize) -> Client {
        let address = Ipv4Addr::new(127, 8, 0, u8::try_from(number).unwrap() + 1);
        let builder = Client::builder().no_proxy().local_address(Some(address.into()));
        let builder = builder.tls_certs_only([self.authority.clone()]).http1_only();
        builder.build().unwrap()
    }

    /// A client as API servers are.
    fn api_server(&self) -> Client {
        let Pair { certificate, key } = self.webhook.client_certificate();
        let identity = Identity::from_pem(format!("{certificate}{key}").as_bytes()).unwrap();
        let builder = Client::builder().no_proxy().tls_certs_only([self.authority.clone()]);
        builder.identity(identity).build().unwrap()
    }

    /// The sum of a counter's series that have these labels.
    async fn count(&self, counter: &str, labels: &[&str]) -> f64 {
        let text = self.gateway.admin_text("/metrics").await;
        let series = text.lines().filter(|line| line.starts_with(counter));
        let series = series.filter(|line| labels.iter().all(|label| line.contains(label)));
        series
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Asks as a person for the clusters.
    ///
    /// # Errors
    /// The connection ended without an answer.
    async fn ask(&self, client: &Client) -> Result<(), reqwest::Error> {
        let request = client
            .get(format!("{}/api/v1/tollgate/clusters", self.gateway.url()))
            .bearer_auth(token::session(SESSION_KEY, "alice"));
        let answer = timeout(PATIENCE, request.send()).await.expect("an answer")?;
        assert_eq!(answer.status(), 200);
        let clusters: Value = answer.json().await?;
        // The gateway's own cluster is among them.
        assert_eq!(
            clusters["items"].as_array().map(Vec::len),
            Some(AGENTS + 1),
            "{clusters}"
        );
        Ok(())
    }

    /// Asks as an API server.
    ///
    /// # Errors
    /// As [`Self::ask`].
    async fn review(&self, client: &Client) -> Result<(), reqwest::Error> {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "CREATE", "namespace": "n", "name": "c",
                "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                "resource": {"group": "", "version": "v1", "resource": "configmaps"},
                "userInfo": {"username": "alice"},
                "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}},
            },
        });
        let request = client.post(format!("{}/admission", self.webhook.url())).json(&review);
        let answer = timeout(PATIENCE, request.send()).await.expect("an answer")?;
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await?;
        assert_eq!(answer["response"]["allowed"], true, "{answer}");
        Ok(())
    }
}

/// Known callers who send one request after another, and how long each took.
struct KnownCallers {
    tasks: JoinSet<Vec<Duration>>,
    stop: Arc<AtomicBool>,
    answered: Arc<Vec<AtomicUsize>>,
    /// New connections that were closed before their first answer.
    displaced: Arc<AtomicUsize>,
}

impl KnownCallers {
    fn start(site: &Arc<Site>) -> Self {
        let mut callers = Self {
            tasks: JoinSet::new(),
            stop: Arc::default(),
            answered: Arc::new((0..=PEOPLE).map(|_| AtomicUsize::new(0)).collect()),
            displaced: Arc::default(),
        };
        for number in 0..=PEOPLE {
            let (site, stop) = (Arc::clone(site), Arc::clone(&callers.stop));
            let (answered, displaced) = (Arc::clone(&callers.answered), Arc::clone(&callers.displaced));
            callers.tasks.spawn(async move {
                let is_api_server = number == PEOPLE;
                let new_client = || match is_api_server {
                    true => site.api_server(),
                    false => site.person(number),
                };
                let mut client = new_client();
                let mut is_new = true;
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    // Half of the people have a new connection for each request.
                    if !is_api_server && number % 2 == 0 {
                        (client, is_new) = (new_client(), true);
                    }
                    let begun = Instant::now();
                    let mut asked = site.send(is_api_server, &client).await;
                    // A connection on which nobody has proved who they are may have to give way to newer ones,
                    // if the machine is so slow that 1,000 others come before its first request.
                    while asked.is_err() && is_new {
                        assert!(begun.elapsed() < PATIENCE, "caller {number} never gets in");
                        displaced.fetch_add(1, Ordering::Relaxed);
                        asked = site.send(is_api_server, &client).await;
                    }
                    asked.unwrap();
                    is_new = false;
                    if !is_api_server {
                        took.push(begun.elapsed());
                    }
                    answered[number].fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_millis(5)).await;
                }
                took
            });
        }
        callers
    }

    /// Waits until each of them has had this many more answers.
    async fn are_served(&mut self, more: usize) {
        let before: Vec<usize> = self.counts();
        let end = Instant::now() + PATIENCE;
        while self
            .counts()
            .iter()
            .zip(&before)
            .any(|(now, before)| *now < before + more)
        {
            if let Some(ended) = self.tasks.try_join_next() {
                panic!("a caller was not served: {ended:?}");
            }
            assert!(Instant::now() < end, "answers: {:?}, before: {before:?}", self.counts());
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn counts(&self) -> Vec<usize> {
        self.answered
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect()
    }

    /// How long each request of a person took, the longest last.
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

impl Site {
    async fn send(&self, is_api_server: bool, client: &Client) -> Result<(), reqwest::Error> {
        match is_api_server {
            true => self.review(client).await,
            false => self.ask(client).await,
        }
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
fn connect_agents(site: &Site, files: &Path) -> JoinSet<Result<(), String>> {
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

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_clients_at_every_door_keep_out_no_known_caller() {
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let files = tempfile::tempdir().unwrap();
    let site = Arc::new(Site::start(files.path()).await);
    let mut callers = KnownCallers::start(&site);
    let flood = Flood::start(&site.targets);
    let end = Instant::now() + PATIENCE;
    loop {
        let mut unseen = Vec::new();
        for bound in BOUNDS {
            if site.count(bound.counter, bound.labels).await == 0.0 {
                unseen.push(bound);
            }
        }
        if unseen.is_empty() {
            break;
        }
        if Instant::now() >= end {
            let text = site.gateway.admin_text("/metrics").await;
            let decisions = text.lines().filter(|line| line.starts_with(DECISIONS));
            let decisions: Vec<&str> = decisions.collect();
            panic!("these bounds did not act: {unseen:?}; decisions: {decisions:#?}");
        }
        flood.turn_to(unseen.iter().map(|bound| bound.endpoint).collect());
        sleep(Duration::from_millis(100)).await;
    }
    flood.turn_to(Vec::new());
    // Every bound is reached. Agents whose key is known get in, and stay.
    let _agents = connect_agents(&site, files.path());
    let connected = async || site.count("tollgate_connectors_connected", &[]).await;
    while connected().await < AGENTS as f64 {
        assert!(Instant::now() < end + PATIENCE, "the agents do not get in");
        sleep(Duration::from_millis(100)).await;
    }
    callers.are_served(MORE).await;
    assert_eq!(connected().await, AGENTS as f64);
    assert_eq!(
        site.count(CONNECTOR_EVENTS, &["event=\"agent.disconnected\""]).await,
        0.0
    );
    let displaced = callers.displaced.load(Ordering::Relaxed);
    println!(
        "{displaced} new connections of known callers were displaced; answers: {:?}",
        callers.counts()
    );
    callers.end().await;
    drop(flood);

    if std::env::var_os("TOLLGATE_DOORS_REPORT").is_some() {
        println!("{}", measure(&site).await);
    }
}

/// The ratio of people's p99 with and without the flood: the best of alternating rounds.
async fn measure(site: &Arc<Site>) -> String {
    let p99 = async || {
        let callers = KnownCallers::start(site);
        sleep(ROUND).await;
        let took = callers.end().await;
        took[took.len() * 99 / 100].as_secs_f64()
    };
    let mut best = [f64::MAX; 2];
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        // What the flood left open ends.
        sleep(ROUND / 2).await;
        best[0] = best[0].min(p99().await);
        let flood = Flood::start(&site.targets);
        sleep(ROUND / 2).await;
        best[1] = best[1].min(p99().await);
        rates.push(flood.rate().round());
    }
    let [without, with] = best;
    format!(
        "p99 of people: {:.1} ms without, {:.1} ms with unauthenticated clients: {:.2} times. Requests of those a \
         second: {rates:?}",
        without * 1_000.0,
        with * 1_000.0,
        with / without
    )
}
