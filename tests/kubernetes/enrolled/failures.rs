//! Gateways that end while Argo CD syncs.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Scene;
use super::argocd::{World, config_map, is_done, messages, project};
use test_support::kubernetes::argocd::Cli;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::Gateway;
use test_support::port::free_port;

/// The namespace and its Application.
const MANY: &str = "shop";

/// How many ConfigMaps the Application has.
const OBJECTS: usize = 400;

/// Writes of a sync after which a gateway ends.
const SOME: usize = 20;

/// Longer than a connection takes to be made, and far shorter than a sync.
const HANDSHAKE: Duration = Duration::from_secs(1);

/// A TCP load balancer: each connection goes to the next server.
struct Balancer {
    address: SocketAddr,
    servers: watch::Sender<Vec<SocketAddr>>,
    task: JoinHandle<()>,
}

impl Balancer {
    async fn start(servers: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (servers, now) = watch::channel(servers);
        let task = tokio::spawn(async move {
            let mut number = 0;
            while let Ok((mut near, _)) = listener.accept().await {
                let server = {
                    let servers = now.borrow();
                    servers[number % servers.len()]
                };
                number += 1;
                tokio::spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(server).await {
                        let _ = copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        });
        Self { address, servers, task }
    }

    /// New connections go to these servers only.
    fn route(&self, servers: Vec<SocketAddr>) {
        self.servers.send_replace(servers);
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Fixture {
    world: World,
    /// A second gateway with the same settings.
    replica: Gateway,
    cli: Cli,
    account: String,
}

impl Fixture {
    async fn start() -> Self {
        let mut replica = None;
        let world = World::start_with(|layout| {
            replica = Some(layout.replica());
            let address = format!("127.0.0.1:{}", free_port());
            // Watches go on until then. Requests have three quarters of it.
            layout.settings(json!({"listen": address, "drain": "10s"}));
        })
        .await;
        let server = world.destination.url().to_owned();
        let project = project("shop", &[(&server, MANY)], &[(&server, MANY, "deployer")]);
        world.control.admin().apply(&project.to_string()).await;
        let fixture = Self {
            replica: replica.unwrap().start().await,
            cli: world.cli().await,
            account: Scene::account(MANY, "deployer"),
            world,
        };
        fixture.commit("1").await;
        // Argo CD would spend most of the time on the schemas of the objects.
        let unchecked = ["--sync-option", "Validate=false"];
        fixture.world.create_application(&fixture.cli, MANY, &unchecked).await;
        fixture.world.until_acting(&server, &fixture.account).await;
        fixture
    }

    /// Gives all objects this value.
    async fn commit(&self, value: &str) {
        let items: Vec<Value> = (0..OBJECTS)
            .map(|number| config_map(&format!("many-{number}"), value))
            .collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.world.commit(&[("shop/many.yaml", Some(list))]).await;
    }

    /// How often the account changed an object by now.
    fn written(&self) -> usize {
        let events = self.world.destination.audit().events_with("many-").into_iter();
        let account = self.account.as_str();
        let written = events.filter(|event| event["impersonatedUser"]["username"] == account && is_done(event));
        written.count()
    }

    /// Starts a sync, and waits until it has written something.
    async fn sync_some(&self, more: &[&str]) {
        let before = self.written();
        let sync = ["app", "sync", MANY, "--async"];
        self.cli.succeed(&[&sync, more].concat()).await;
        eventually("the sync writes", async || {
            (self.written() >= before + SOME).then_some(())
        })
        .await;
    }

    /// Waits until the sync has ended, and asserts what came of it.
    async fn ends(&self, value: &str) -> Value {
        let state = eventually("the sync ends", async || {
            let state = self.world.operation(MANY).await;
            (state["phase"] != "Running").then_some(state)
        })
        .await;
        assert_eq!(state["phase"], "Succeeded", "{}", messages(&state));
        let get = [
            "get",
            "configmaps",
            &format!("--namespace={MANY}"),
            "--show-managed-fields",
        ];
        let list = self.world.destination.admin().json(&get).await;
        let is_ours = |item: &&Value| item["metadata"]["name"].as_str().unwrap().starts_with("many-");
        let ours: Vec<&Value> = list["items"].as_array().unwrap().iter().filter(is_ours).collect();
        assert_eq!(ours.len(), OBJECTS);
        for item in ours {
            assert_eq!(item["data"]["value"], value, "{item}");
            for manager in item["metadata"]["managedFields"].as_array().unwrap() {
                assert_eq!(manager["manager"], "argocd-controller", "{item}");
            }
        }
        self.world.assert_actors(std::slice::from_ref(&self.account));
        state
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_survives_that_its_gateway_is_killed_or_replaced() {
    let mut fixture = Fixture::start().await;
    let retry = [
        "--retry-limit",
        "20",
        "--retry-backoff-duration",
        "1s",
        "--retry-backoff-factor",
        "1",
    ];
    fixture.sync_some(&retry).await;
    fixture.world.gateway.kill().await;
    let written = fixture.written();
    assert!(written < OBJECTS, "the sync had ended");
    // On a busy machine a gateway is back before Argo CD sends its next request.
    eventually("the sync fails for want of its gateway", async || {
        fixture.world.operation(MANY).await["retryCount"].as_u64()
    })
    .await;
    fixture.world.gateway.restart().await;
    fixture.ends("1").await;

    // One of two replicas stops, as in a rollout: it gets no new connections first.
    let (first, second) = (fixture.world.gateway.address(), fixture.replica.address());
    let balancer = Balancer::start(vec![first, second]).await;
    let server = fixture.world.destination.url();
    let proxy = format!("https://{}", balancer.address);
    fixture.world.write_argocd_secret("destination", server, &proxy).await;
    let before = fixture.written();
    fixture.commit("2").await;
    let served = |gateway: &Gateway| {
        let records = gateway.decisions().into_iter();
        let patches = records.filter(|record| record["kubernetes"]["attributes"]["verb"] == "patch");
        patches.count()
    };
    let [by_first, by_second] = [served(&fixture.world.gateway), served(&fixture.replica)];
    fixture.sync_some(&[]).await;
    balancer.route(vec![second]);
    // A connection that is being made ends with its gateway, before a request is on it.
    tokio::time::sleep(HANDSHAKE).await;
    assert!(fixture.written() < before + OBJECTS, "the sync had ended");
    fixture.world.gateway.stop().await;
    let state = fixture.ends("2").await;
    assert_eq!(state["retryCount"], Value::Null, "{state}");
    assert!(
        served(&fixture.world.gateway) > by_first,
        "the first gateway served none of it"
    );
    assert!(
        served(&fixture.replica) > by_second,
        "the second gateway served none of it"
    );
}
