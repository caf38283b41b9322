//! Thousands of agents at one gateway: what each costs while nothing happens, how long they take to come back when
//! the gateway was killed, and what people notice of that at another replica. All of them are in this process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{Effort, Measured, percentile, say};
use test_support::api_server::Api;
use test_support::balancer::Balancer;
use test_support::kubernetes::gateway::{Gateway, Layout, base64};
use test_support::port::free_port;
use test_support::postgres::shared;
use tollgate_agent::Agent;
use tollgate_agent::key::SigningKey;
use tollgate_agent::settings::Settings;

/// The longest wait until all are connected.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long the gateway is left alone before its memory is read.
const REST: Duration = Duration::from_secs(10);

/// Argument by which this program becomes a balancer of the addresses that follow.
pub(crate) const BALANCE: &str = "--balance";

/// Time between an answer to a person and the next request.
const BETWEEN_REQUESTS: Duration = Duration::from_millis(5);

pub(crate) async fn measure(effort: Effort) {
    // A socket for each, and the gateways inherit the limit.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    one_gateway(effort).await;
    two_replicas(effort).await;
}

/// Memory, and the time until all are back at the only gateway.
async fn one_gateway(effort: Effort) {
    say(&format!("{} agents at one gateway", effort.agents));
    let files = tempfile::tempdir().unwrap();
    let mut layout = Layout::new(&[], "");
    prepare(&mut layout, files.path(), effort);
    let mut gateway = layout.start().await;
    sleep(REST).await;
    let before = gateway.memory_kib();
    let agents = Agents::start(files.path(), &[gateway.url()], effort);
    until_connected(&gateway, effort.agents).await;
    sleep(REST).await;
    let each = gateway.memory_kib().saturating_sub(before) as f64 / effort.agents as f64;
    Measured::at_most("memory of an idle agent at the gateway", (each, "KiB"), 64.0).print();

    gateway.kill().await;
    gateway.restart().await;
    let begun = Instant::now();
    until_connected(&gateway, effort.agents).await;
    let back = begun.elapsed().as_secs_f64();
    Measured::at_most("until 5,000 agents are back after `kill -9`", (back, "s"), 60.0).print();
    drop(agents);
}

/// One of two replicas is killed: the time until all are back there, and what people notice at the other one.
async fn two_replicas(effort: Effort) {
    say(&format!("{} agents at two replicas", effort.agents));
    let files = tempfile::tempdir().unwrap();
    let mut layout = Layout::new(&["alice"], "p, role:all, *, *, *, allow\ng, alice, role:all\n");
    prepare(&mut layout, files.path(), effort);
    let api = Api::start(|_| (200, Vec::new(), "{}".to_owned())).await;
    let tls = json!({"caData": base64(&api.ca_pem)});
    let config = json!({"bearerToken": "of-the-gateway", "tlsClientConfig": tls});
    layout.cluster(
        "near",
        &json!({"name": "near", "server": api.url(), "config": config.to_string()}),
    );
    let database = shared().database().await;
    layout.settings(json!({
        "clusters": {"forward": true},
        "store": {"url": database},
        "connectors": {"peers": {"listen": "127.0.0.1:0"}},
    }));
    let mut other = layout.replica();
    other.setting("/listen", json!(format!("127.0.0.1:{}", free_port())));
    let (mut killed, other) = (layout.start().await, other.start().await);
    // Each connection takes two sockets there, and a process may have no more than some 20,000.
    let (_one, first) = balance_elsewhere(&[&killed, &other]).await;
    let (_two, second) = balance_elsewhere(&[&killed, &other]).await;
    let agents = Agents::start(files.path(), &[first, second], effort);
    for gateway in [&killed, &other] {
        until_connected(gateway, effort.agents).await;
    }
    sleep(REST).await;
    let person = Person::new(&other);
    let (_, mut calm) = person.ask_while(sleep(REST)).await;

    killed.kill().await;
    let begun = Instant::now();
    // Reading 5,000 clusters takes processors away that another machine would have for itself.
    let (_, mut starting) = person.ask_while(killed.restart()).await;
    let (_, mut stormy) = person.ask_while(until_connected(&killed, effort.agents)).await;
    let back = begun.elapsed().as_secs_f64();
    Measured::at_most(
        "until a replica has its 5,000 agents again after `kill -9`",
        (back, "s"),
        60.0,
    )
    .print();
    let [calm, starting, stormy] = [&mut calm, &mut starting, &mut stormy].map(|took| percentile(took, 99));
    say(&format!(
        "p99 of people at the other replica: {calm:.2} ms, {starting:.2} ms while the killed one starts, {stormy:.2} ms \
         while agents come back"
    ));
    Measured::at_most(
        "p99 of people at the other replica meanwhile",
        (stormy / calm, "×"),
        2.0,
    )
    .print();
    drop(agents);
}

/// A separate process that balances connections to these gateways, and its URL.
async fn balance_elsewhere(gateways: &[&Gateway]) -> (Child, String) {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .arg(BALANCE)
        .args(gateways.iter().map(|gateway| gateway.address().to_string()))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let address = lines.next_line().await.unwrap().unwrap();
    (process, format!("https://{address}"))
}

/// What that process does: prints its address, and balances until it is killed.
pub(crate) async fn balance(servers: &[SocketAddr]) {
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let balancer = Balancer::to(servers).await;
    println!("{}", balancer.address());
    std::future::pending().await
}

/// Somebody who sends a request every few milliseconds.
struct Person {
    client: reqwest::Client,
    url: String,
}

impl Person {
    fn new(gateway: &Gateway) -> Self {
        Self {
            client: gateway.client("alice"),
            url: format!("{}/clusters/near/k8s/version", gateway.url()),
        }
    }

    /// Sends requests until `ended` ends. Returns how long each took, in milliseconds.
    async fn ask_while<T>(&self, ended: impl Future<Output = T>) -> (T, Vec<f64>) {
        let mut ended = std::pin::pin!(ended);
        let mut took = Vec::new();
        loop {
            let begun = Instant::now();
            let answer = self.client.get(&self.url).send().await.unwrap();
            assert!(answer.status().is_success(), "{answer:?}");
            answer.bytes().await.unwrap();
            took.push(begun.elapsed().as_secs_f64() * 1e3);
            tokio::select! {
                value = ended.as_mut() => return (value, took),
                () = sleep(BETWEEN_REQUESTS) => {}
            }
        }
    }
}

/// Gives a gateway clusters with agents, and their keys.
fn prepare(layout: &mut Layout, files: &Path, effort: Effort) {
    layout.tls();
    layout.setting("/listen", json!(format!("127.0.0.1:{}", free_port())));
    layout.settings(json!({"limits": {"connections": 100_000, "connectionsPerAddress": 100_000}}));
    for number in 0..effort.agents {
        let key = make_key(files, number);
        let (name, config) = (format!("c{number}"), json!({"agent": {"publicKeys": [key]}}));
        let server = format!("https://{name}.clusters.invalid");
        layout.cluster(
            &name,
            &json!({"name": name, "server": server, "config": config.to_string()}),
        );
    }
    std::fs::copy(layout.root().join("gateway-ca.pem"), files.join("gateway.pem")).unwrap();
}

/// Running agents. They end when the value is dropped.
struct Agents {
    _tasks: JoinSet<Result<(), String>>,
}

impl Agents {
    /// - `urls`: where they connect, each to one of them.
    fn start(files: &Path, urls: &[String], effort: Effort) -> Self {
        let mut tasks = JoinSet::new();
        for number in 0..effort.agents {
            let agent = Arc::new(agent(files, &urls[number % urls.len()], number));
            tasks.spawn(agent.run(CancellationToken::new(), Duration::ZERO));
        }
        Self { _tasks: tasks }
    }
}

fn make_key(folder: &Path, number: usize) -> String {
    let pem = SigningKey::generate_pem().unwrap();
    let key = SigningKey::from_pem(&pem).unwrap().public().to_string();
    std::fs::write(
        folder.join(format!("{number}.pem")),
        secrecy::ExposeSecret::expose_secret(&pem),
    )
    .unwrap();
    key
}

fn agent(folder: &Path, url: &str, number: usize) -> Agent {
    let settings = json!({
        "gateway": url, "certificateAuthority": "gateway.pem", "cluster": format!("c{number}"),
        "key": format!("{number}.pem"),
        "apiServer": {"url": "https://127.0.0.1:1", "certificateAuthority": "gateway.pem", "token": "gateway.pem"},
    });
    let file = folder.join("agent.yaml");
    std::fs::write(&file, settings.to_string()).unwrap();
    Agent::new(Settings::load(&file, None).unwrap()).unwrap()
}

async fn until_connected(gateway: &Gateway, count: usize) {
    let waiting = async {
        loop {
            let text = gateway.admin_text("/metrics").await;
            let line = text
                .lines()
                .find(|line| line.starts_with("tollgate_connectors_connected "));
            let connected: usize = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
            if connected == count {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}
