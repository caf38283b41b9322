//! What is between the agent and the gateway: proxies, balancers that end TLS, and clocks that differ.

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Duration, sleep, timeout};

use super::{Remote, with_agent};
use crate::joined::JoinedCluster;
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::Layout;
use test_support::kubernetes::kubectl::Kubectl;
use test_support::nginx::Nginx;

/// The longest time until a proxy has a request.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// A proxy that knows `CONNECT` and nothing else. Returns its port, and the requests that it sees.
async fn connect_proxy() -> (u16, tokio::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, requests) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let seen = seen.clone();
            tokio::spawn(async move {
                let mut client = BufReader::new(client);
                let mut line = String::new();
                client.read_line(&mut line).await.unwrap();
                let mut field = line.clone();
                while field != "\r\n" {
                    field.clear();
                    client.read_line(&mut field).await.unwrap();
                }
                let target = line.split(' ').nth(1).unwrap().to_owned();
                seen.send(line).await.unwrap();
                let mut server = TcpStream::connect(target).await.unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (port, requests)
}

#[tokio::test]
async fn an_agent_goes_through_an_http_proxy() {
    let remote = Remote::start().await;
    let (port, mut requests) = connect_proxy().await;
    let remote = remote
        .through(json!({"proxy": format!("http://127.0.0.1:{port}")}))
        .await;
    let kubectl = remote.kubectl().await;
    remote.until_served(&kubectl).await;
    let address = remote.fixture.gateway.address();
    let line = timeout(SEEN_WITHIN, requests.recv()).await.unwrap().unwrap();
    assert_eq!(line, format!("CONNECT {address} HTTP/1.1\r\n"));
    eventually("one agent is connected", async || {
        (remote.connected().await == 1).then_some(())
    })
    .await;
}

/// A cluster that is served through a balancer that ends TLS.
///
/// - `idle_seconds`: after how long without a byte the balancer cuts a connection.
async fn through_balancer(idle_seconds: u32) -> (Nginx, Remote, Kubectl) {
    let remote = Remote::start().await;
    let balancer = Nginx::before(&remote.fixture.gateway, idle_seconds).await;
    let settings = json!({"gateway": balancer.url(), "certificateAuthority": balancer.authority()});
    let remote = remote.through(settings).await;
    let kubectl = remote.kubectl().await;
    remote.until_served(&kubectl).await;
    (balancer, remote, kubectl)
}

#[tokio::test]
async fn a_balancer_that_ends_tls_does_not_cut_an_agent_that_has_nothing_to_say() {
    // More than the 15 s between two pings.
    let (_balancer, remote, kubectl) = through_balancer(20).await;
    let here = format!("--namespace={}", remote.fixture.home);
    let mut watch = kubectl.start(&["get", "configmaps", &here, "--watch-only", "--output=name"]);
    let mut shell = kubectl.start(&["exec", "-i", &here, "pod", "--", "cat"]);
    shell.say("hello\n").await;
    assert!(shell.line("hello").await.is_some());
    sleep(Duration::from_secs(45)).await;
    shell.say("still there\n").await;
    assert!(shell.line("still there").await.is_some());
    kubectl.succeed(&["create", "configmap", "made", &here]).await;
    assert!(watch.line("configmap/made").await.is_some());
    let log = remote.agent.log();
    assert!(!log.contains("the connection broke"), "{log}");
    assert_eq!(remote.connected().await, 1);
}

/// What the documents say of such a limit: connections end again and again, and each time the agent is back.
#[tokio::test]
async fn a_balancer_that_cuts_sooner_than_agents_ping_is_dialed_again() {
    let (_balancer, remote, kubectl) = through_balancer(5).await;
    remote.agent.until_logged("the connection broke").await;
    remote.until_served(&kubectl).await;
}

#[tokio::test]
async fn an_agent_whose_clock_is_a_day_off_is_served() {
    let mut remote = Remote::start().await;
    let kubectl = remote.kubectl().await;
    for (shift, days) in [("+1d", 1), ("-1d", -1)] {
        remote.agent.process.kill().await.unwrap();
        remote.agent = remote.joined.run_at(shift).await;
        remote.until_served(&kubectl).await;
        // It has that clock, indeed.
        let day = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
        let (day, log) = (day.strftime("%Y-%m-%dT").to_string(), remote.agent.log());
        assert!(log.contains(&day), "{day}: {log}");
    }
    assert_eq!(remote.connected().await, 1);
}

#[tokio::test]
async fn only_join_tokens_depend_on_the_clock_of_the_gateway() {
    let cluster = Cluster::shared().await;
    let mut layout = Layout::new(&[], "");
    layout.tls();
    layout.run_at("+1d");
    layout.settings(json!({"connectors": {}}));
    layout.cluster("people", &with_agent(cluster.url(), &json!({})));
    let gateway = layout.start().await;
    let joined = JoinedCluster::new(cluster).await;
    let join = async |more: &[&str]| {
        let made = joined.join("people", &gateway, more).await;
        gateway.rewrite(&made.secret.unwrap());
    };
    join(&["--user", "*"]).await;
    let agent = joined.run(&json!({})).await;
    agent.until_logged("token_expired").await;
    // The agent notices the other token by itself.
    join(&["--user", "*", "--token-lifetime", "48h"]).await;
    eventually("the agent is connected", async || {
        let connected = gateway.admin("/agents/connected").await;
        (connected.as_array().unwrap().len() == 1).then_some(())
    })
    .await;
}
