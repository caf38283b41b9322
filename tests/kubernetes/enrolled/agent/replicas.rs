//! Two gateways with one PostgreSQL: either serves a cluster whose agent is connected to any of them.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::super::COMPONENT;
use super::site::Site;
use test_support::balancer::Balancer;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::Gateway;
use test_support::postgres::shared;
use test_support::relay::{Mode, Relay};

/// Two gateways, and a load balancer in front of both.
struct Replicas {
    site: Site,
    other: Gateway,
    balancer: Balancer,
    /// Between the gateways and PostgreSQL.
    relay: Relay,
}

/// A grace period that a test waits for, and one that no store exceeds on a busy machine.
const GRACE: &str = "3s";
const LONG_GRACE: &str = "10s";

impl Replicas {
    /// - `grace`: how long the store may be silent.
    async fn start(grace: &str) -> Self {
        let url = shared().database().await;
        let relay = Relay::to(&url).await;
        let mut other = None;
        let site = Site::start_with(|layout, _| {
            layout.settings(json!({
                "store": {"url": relay.url(), "gracePeriod": grace},
                "connectors": {"peers": {"listen": "127.0.0.1:0"}},
            }));
            other = Some(layout.replica());
        })
        .await;
        let other = other.unwrap().start().await;
        let balancer = Balancer::to(&[site.scene.gateway.address(), other.address()]).await;
        Self {
            site,
            other,
            balancer,
            relay,
        }
    }

    /// Settings of an agent that comes through the balancer.
    fn balanced(&self) -> serde_json::Value {
        json!({"gateway": format!("https://{}", self.balancer.address())})
    }

    /// How many agents are connected to a gateway itself.
    async fn local(gateway: &Gateway) -> usize {
        let text = gateway.admin_text("/metrics").await;
        let line = text
            .lines()
            .find(|line| line.starts_with("tollgate_connectors_connected "));
        line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    }

    async fn until_local(&self, counts: [usize; 2]) {
        let gateways = [&self.site.scene.gateway, &self.other];
        eventually(&format!("{counts:?} connections"), async || {
            let seen = [Self::local(gateways[0]).await, Self::local(gateways[1]).await];
            (seen == counts).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_replica_without_the_agent_sends_requests_to_one_that_has_it() {
    let replicas = Replicas::start(LONG_GRACE).await;
    let Replicas { site, other, .. } = &replicas;
    site.join(&[other]).await;
    // It knows one address, so it never finds the other replica.
    let mut agent = site.run().await;
    site.until_served().await;
    site.until_served_by(other).await;
    assert_eq!(Replicas::local(other).await, 0);

    let namespace = format!("--namespace={}", site.scene.home);
    let kubectl = site.kubectl(other);
    let mut watch = kubectl.start(&["get", "configmaps", "--watch-only", "--output=name", &namespace]);
    site.scene.until_watches(1).await;
    let deployer = format!("--as=system:serviceaccount:{}:deployer", site.scene.home);
    kubectl
        .succeed(&["create", "configmap", "made", &namespace, &deployer])
        .await;
    assert!(watch.line("made").await.is_some());
    site.scene.pod_of_application().await;
    let mut terminal = kubectl.start(&["exec", "-i", &namespace, "pod", "--", "sh", "-c", "echo begun; cat"]);
    assert!(terminal.line("begun").await.is_some());
    terminal.say("through two gateways\n").await;
    assert!(terminal.line("through two gateways").await.is_some());
    // Both say who is connected, and where.
    let shown = site.agents().await;
    assert_eq!(shown["connections"].as_array().unwrap().len(), 1, "{shown}");

    // A second process is refused at the other replica, too.
    let second = site.run_with(&json!({"gateway": other.url()})).await;
    second.until_logged("already_connected").await;
    drop(second);

    agent.process.kill().await.unwrap();
    assert!(watch.line("no such line").await.is_none());
    assert!(terminal.line("no such line").await.is_none());
    eventually("the other replica knows that the agent is gone", async || {
        site.read(other).await;
        let records = other.decisions();
        let last = records.last().unwrap();
        (last["reason"] == "agent_absent" && last["status"] == 503).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_agent_connects_to_two_replicas_and_one_that_is_killed_takes_only_its_own_along() {
    let mut replicas = Replicas::start(LONG_GRACE).await;
    replicas.site.join(&[&replicas.other]).await;
    let _agent = replicas.site.run_with(&replicas.balanced()).await;
    replicas.until_local([1, 1]).await;
    let namespace = format!("--namespace={}", replicas.site.scene.home);
    let watch_of = |gateway: &Gateway| {
        let kubectl = replicas.site.kubectl(gateway);
        let watch = kubectl.start(&["get", "configmaps", "--watch-only", "--output=name", &namespace]);
        (kubectl, watch)
    };
    let (_first, mut here) = watch_of(&replicas.site.scene.gateway);
    let (_second, mut there) = watch_of(&replicas.other);
    replicas.site.scene.until_watches(2).await;
    // On a busy machine, kubectl itself takes long.
    let begun = Instant::now();
    replicas.site.until_served().await;
    let usual = begun.elapsed();

    replicas.other.kill().await;
    let killed = Instant::now();
    assert!(there.line("no such line").await.is_none());
    assert!(here.runs(), "a watch of the other replica ended");
    let read = replicas.site.read(&replicas.site.scene.gateway).await;
    assert!(read.status.success(), "{read:?}");
    let took = killed.elapsed();
    assert!(took < usual + Duration::from_secs(5), "{took:?}");

    // It comes back with another key for its peers, and the agent finds it.
    replicas.balancer.remove(replicas.other.address());
    replicas.other.restart().await;
    replicas.balancer.add(replicas.other.address());
    replicas.until_local([1, 1]).await;
    replicas.site.until_served_by(&replicas.other).await;
    assert!(here.runs());
}

#[tokio::test]
async fn without_the_database_agents_that_are_connected_are_served_and_a_revocation_waits_for_it() {
    let replicas = Replicas::start(GRACE).await;
    let Replicas { site, other, relay, .. } = &replicas;
    site.join(&[other]).await;
    let agent = site.run().await;
    site.until_served().await;
    site.until_served_by(other).await;
    relay.set(Mode::Drop);
    // Longer than the grace period.
    eventually("the gateways notice", async || {
        let log = site.scene.gateway.log();
        let lines = log.iter().map(ToString::to_string);
        lines
            .filter(|line| line.contains("the store cannot be read"))
            .count()
            .gt(&0)
            .then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    for gateway in [&site.scene.gateway, other] {
        let read = site.read(gateway).await;
        assert!(read.status.success(), "{read:?}");
    }
    let key = site.joined.member("key.pem").await;
    let kubectl = site.scene.kubectl(COMPONENT);
    kubectl.succeed(&["get", "--raw", "/version"]).await;
    // Who joined is not let in anew, because nobody can say whether the key was revoked.
    drop(agent);
    let again = site.run().await;
    again.until_logged("store_unavailable").await;
    assert!(!site.read(&site.scene.gateway).await.status.success());
    relay.set(Mode::Pass);
    site.until_served().await;
    site.until_served_by(other).await;
    assert_eq!(site.joined.member("key.pem").await, key);
}
