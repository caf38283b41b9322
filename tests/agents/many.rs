//! Thousands of agents at one gateway: what each costs while nothing happens, and how long they take to come
//! back when the gateway was killed. All of them are in this process.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{Effort, Measured, say};
use test_support::kubernetes::gateway::{Gateway, Layout};
use tollgate_agent::Agent;
use tollgate_agent::key::SigningKey;
use tollgate_agent::settings::Settings;

/// The longest wait until all are connected.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long the gateway is left alone before its memory is read.
const REST: Duration = Duration::from_secs(10);

pub(crate) async fn measure(effort: Effort) {
    say(&format!("{} agents at one gateway", effort.agents));
    // A socket for each, and the gateway inherits the limit.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let files = tempfile::tempdir().unwrap();
    let mut layout = Layout::new(&[], "");
    layout.tls();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    layout.setting("/listen", json!(format!("127.0.0.1:{port}")));
    layout.settings(json!({"limits": {"connections": 100_000, "connectionsPerAddress": 100_000}}));
    let keys: Vec<_> = (0..effort.agents)
        .map(|number| make_key(files.path(), number))
        .collect();
    for (number, key) in keys.iter().enumerate() {
        let (name, config) = (format!("c{number}"), json!({"agent": {"publicKeys": [key]}}));
        let server = format!("https://{name}.clusters.invalid");
        layout.cluster(
            &name,
            &json!({"name": name, "server": server, "config": config.to_string()}),
        );
    }
    let mut gateway = layout.start().await;
    std::fs::write(files.path().join("gateway.pem"), gateway.authority().unwrap()).unwrap();
    sleep(REST).await;
    let before = memory(&gateway).await;
    let stop = CancellationToken::new();
    let mut agents = JoinSet::new();
    for number in 0..effort.agents {
        let agent = Arc::new(agent(files.path(), &gateway, number));
        agents.spawn(agent.run(stop.clone(), Duration::ZERO));
    }
    let begun = Instant::now();
    until_connected(&gateway, effort.agents).await;
    say(&format!(
        "all are connected after {:.1} s",
        begun.elapsed().as_secs_f64()
    ));
    sleep(REST).await;
    let each = (memory(&gateway).await - before) / effort.agents as f64 / 1024.0;
    Measured::at_most("memory of an idle agent at the gateway", (each, "KiB"), 64.0).print();

    gateway.kill().await;
    gateway.restart().await;
    let begun = Instant::now();
    until_connected(&gateway, effort.agents).await;
    let back = begun.elapsed().as_secs_f64();
    say(&format!("all are back after {back:.1} s"));
    Measured::at_most("until 5,000 agents are back after `kill -9`", (back, "s"), 60.0).print();
    stop.cancel();
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

fn agent(folder: &Path, gateway: &Gateway, number: usize) -> Agent {
    let settings = json!({
        "gateway": gateway.url(), "certificateAuthority": "gateway.pem", "cluster": format!("c{number}"),
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
            let line = text.lines().find(|line| line.starts_with("tollgate_agents_connected "));
            let connected: usize = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
            if connected == count {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

/// Resident memory of the gateway, in bytes.
async fn memory(gateway: &Gateway) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.process())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kibibytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes * 1024.0
}
