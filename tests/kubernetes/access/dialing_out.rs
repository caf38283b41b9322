//! A gateway that reaches no API server: it is in a separate network, and the cluster's agent dials it.

use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::fixture::{AccessAs, Fixture};
use super::workflow::{discovery, large, logs, objects, refused, watching};
use crate::joined::JoinedCluster;
use crate::kubelet::use_pod;
use test_support::kubernetes::agent::AgentProcess;
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::kubectl::Kubectl;
use test_support::kubernetes::network::Network;

mod between;
mod faults;

/// The longest time until an end notices that the other one is gone without a word.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

/// Fields end in this order.
struct Remote {
    fixture: Fixture,
    agent: AgentProcess,
    joined: JoinedCluster<'static>,
    network: Network,
}

impl Remote {
    /// A cluster that has joined.
    async fn start() -> Self {
        let network = Network::start().await;
        let cluster = Cluster::shared().await;
        let server = cluster.url().to_owned();
        let fixture = Fixture::start_with(|layout| {
            layout.run_in_network(&network);
            // The name of the balancer that some tests have.
            layout.settings(json!({"connectors": {"hosts": ["localhost"]}}));
            layout.cluster("people", &with_agent(&server, &json!({})));
            // The other one is not part of this.
            layout.cluster("robots", &with_agent("https://robots.clusters.invalid", &json!({})));
        })
        .await;
        assert!(!network.reaches(server.trim_start_matches("https://")).await);
        let joined = JoinedCluster::new(cluster).await;
        let people = ["--user", "gitlab:user:*", "--group", "gitlab:*"];
        let made = joined.join("people", &fixture.gateway, &people).await.secret.unwrap();
        fixture.gateway.rewrite(&made);
        let agent = joined.run(&json!({})).await;
        let remote = Self {
            fixture,
            agent,
            joined,
            network,
        };
        let kubectl = remote.kubectl().await;
        remote.until_served(&kubectl).await;
        remote
    }

    async fn kubectl(&self) -> Kubectl {
        let token = self.fixture.token(AccessAs::User).await;
        self.fixture.kubectl(&token.bearer)
    }

    async fn until_served(&self, kubectl: &Kubectl) {
        let here = format!("--namespace={}", self.fixture.home);
        eventually("the cluster is read through its agent", async || {
            kubectl
                .run(&["get", "pods", &here])
                .await
                .status
                .success()
                .then_some(())
        })
        .await;
    }

    /// The same with another process of the agent, whose settings differ.
    async fn through(mut self, more: Value) -> Self {
        self.agent.process.kill().await.unwrap();
        self.agent = self.joined.run(&more).await;
        self
    }

    async fn connected(&self) -> usize {
        self.fixture
            .gateway
            .admin("/agents/connected")
            .await
            .as_array()
            .unwrap()
            .len()
    }
}

/// The values of a cluster's Secret.
fn with_agent(server: &str, agent: &Value) -> Value {
    let name = if server.ends_with(".invalid") {
        "robots"
    } else {
        "people"
    };
    json!({"name": name, "server": server, "config": json!({"agent": agent}).to_string()})
}

#[tokio::test]
async fn a_whole_day_of_kubectl_in_a_cluster_that_nobody_can_dial() {
    let remote = Remote::start().await;
    let kubectl = remote.kubectl().await;
    let fixture = &remote.fixture;
    let here = format!("--namespace={}", fixture.home);
    objects(&kubectl, &here).await;
    watching(&kubectl, &here).await;
    large(&kubectl, &here).await;
    discovery(fixture, &kubectl, AccessAs::User).await;
    refused(fixture, &kubectl, AccessAs::User).await;
    logs(&kubectl, &here).await;
    use_pod(&kubectl, &fixture.home).await;
}

#[tokio::test]
async fn a_black_hole_is_noticed_at_both_ends_and_heals_by_itself() {
    let remote = Remote::start().await;
    let kubectl = remote.kubectl().await;
    let here = format!("--namespace={}", remote.fixture.home);
    let mut watch = kubectl.start(&["get", "configmaps", &here, "--watch-only", "--output=name"]);
    let mut shell = kubectl.start(&["exec", "-i", &here, "pod", "--", "cat"]);
    shell.say("hello\n").await;
    assert!(shell.line("hello").await.is_some());
    assert_eq!(remote.connected().await, 1);

    // The client's own connections are in the same network, so they say nothing about the agent's.
    remote.network.black_hole().await;
    let lost = Instant::now();
    remote.agent.until_logged("the connection broke").await;
    assert!(lost.elapsed() < NOTICED_WITHIN, "{:?}", lost.elapsed());
    tokio::time::sleep(NOTICED_WITHIN.saturating_sub(lost.elapsed())).await;
    remote.network.heal().await;
    let log = remote.fixture.gateway.log();
    let is_noticed = log
        .iter()
        .any(|line| line.to_string().contains("a connector is not served"));
    assert!(is_noticed, "{log:?}");
    remote.until_served(&kubectl).await;
    assert_eq!(remote.connected().await, 1);
    // What was open ended with an error.
    assert!(watch.line("no such line").await.is_none());
    let ended = shell.end().await;
    assert!(!ended.status.success(), "{ended:?}");
}
