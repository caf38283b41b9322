//! Two independent gateways behind a load balancer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::fixture::{Fixture, FixtureBuilder, Source, Started, role, run_apply, user};
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::Gateway;
use test_support::kubernetes::kubectl::Run;

/// The objects of the sync.
const OBJECTS: usize = 40;

/// Bytes of the client after which the load balancer stops. A handshake and discovery send less, and the
/// sync sends more than twice as much.
const HALT_AFTER: usize = 12 * 1024;

/// A load balancer that forwards each connection to the first address that accepts it. The connection
/// that brings the client's bytes to [`HALT_AFTER`] stops: nothing more of it reaches the gateway, which is
/// therefore in the middle of the sync however fast the client is.
struct Balancer {
    address: SocketAddr,
    halted: Arc<Notify>,
}

impl Balancer {
    async fn start(backends: [SocketAddr; 2]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let balancer = Self {
            address: listener.local_addr().unwrap(),
            halted: Arc::default(),
        };
        let (sent, halted) = (Arc::new(AtomicUsize::new(0)), balancer.halted.clone());
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (sent, halted) = (sent.clone(), halted.clone());
                tokio::spawn(async move {
                    // Each address in turn.
                    if let Ok(backend) = TcpStream::connect(&backends[..]).await {
                        forward(client, backend, &sent, &halted).await;
                    }
                });
            }
        });
        balancer
    }
}

/// Forwards a connection until either end closes it: a killed gateway closes its connections, which the
/// client sees.
async fn forward(client: TcpStream, backend: TcpStream, sent: &AtomicUsize, halted: &Notify) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_backend, mut to_backend) = backend.into_split();
    let requests = async {
        let mut buffer = [0; 1024];
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            let before = sent.fetch_add(length, Ordering::Relaxed);
            if (before..before + length).contains(&HALT_AFTER) {
                halted.notify_one();
                std::future::pending::<()>().await;
            }
            if to_backend.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = requests => {}
        _ = tokio::io::copy(&mut from_backend, &mut to_client) => {}
    }
}

fn sync(namespace: &str) -> String {
    let object = |number| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("object-{number}"), "namespace": namespace},
            "data": {"number": format!("{number}")},
        })
    };
    json!({"apiVersion": "v1", "kind": "List", "items": (0..OBJECTS).map(object).collect::<Vec<_>>()}).to_string()
}

/// How often each object of the namespace was created.
fn created(events: &[Value], namespace: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for event in events {
        let object = &event["objectRef"];
        let ours = object["namespace"] == namespace && object["resource"] == "configmaps" && event["verb"] == "create";
        if ours && event["responseStatus"]["code"] == 201 {
            *counts.entry(object["name"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    counts
}

async fn start() -> Started {
    let mut builder = FixtureBuilder::new(Source::Kubernetes).await;
    let there = builder.guestbook.clone();
    builder.deployer(&there, "deployer", &[]);
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["*"]}]);
    builder.objects(role(&there, "configmaps", &rules, (&there, "deployer")));
    builder.project(
        "my-project",
        &json!({
            "destinations": [builder.to(&there)],
            "namespaceResourceBlacklist": [{"group": "", "kind": "Secret"}],
            "destinationServiceAccounts": [builder.acts("*", "deployer")],
        }),
    );
    builder.application("guestbook", "my-project", &builder.to(&there));
    builder.start_replicas(1).await
}

/// Both gateways give the same response to the same request.
async fn the_same_answers(fixture: &Fixture, other: &Gateway) {
    let there = fixture.guestbook.as_str();
    let whoami = ["auth", "whoami", "--output=json"];
    let secret = ["create", "secret", "generic", "refused", "-n", there];
    let dry = ["create", "configmap", "refused", "--dry-run=server", "-n", there];
    let strange = ["get", "--raw", "/version"];
    for (who, arguments, word) in [
        ("alice", &whoami[..], ""),
        ("alice", &secret[..], "namespaceResourceBlacklist"),
        ("bob", &dry[..], "you may not sync this application"),
        ("mallory", &strange[..], "you may not see this application"),
    ] {
        let one = fixture.kubectl(who, "guestbook").run(arguments).await;
        let two = fixture.kubectl_at(&other.url(), who, "guestbook").run(arguments).await;
        let comparable = |run: &Run| {
            let text = run.stderr.split(" Trace ID: ").next().unwrap_or_default();
            assert!(text.contains(word), "{arguments:?}: {text}");
            let output: Value = serde_json::from_str(&run.stdout).unwrap_or_default();
            let user = output["status"]["userInfo"]["username"].clone();
            (run.status, text.to_owned(), user)
        };
        assert_eq!(comparable(&one), comparable(&two), "{arguments:?}");
    }
}

#[tokio::test]
async fn one_gateway_is_killed_during_a_sync_and_the_other_continues() {
    let Started {
        mut fixture,
        mut replicas,
    } = start().await;
    let other = replicas.pop().unwrap().start().await;
    let there = fixture.guestbook.clone();

    the_same_answers(&fixture, &other).await;
    let balancer = Balancer::start([fixture.gateway.address(), other.address()]).await;
    let kubectl = fixture.kubectl_at(&format!("https://{}", balancer.address), "alice", "guestbook");
    let objects = sync(&there);
    let audit = fixture.cluster.audit();
    let (first, begun) = tokio::join!(run_apply(&kubectl, &objects), async {
        balancer.halted.notified().await;
        eventually("the sync is under way", async || {
            (!created(&audit.events_with(&there), &there).is_empty()).then_some(())
        })
        .await;
        fixture.gateway.kill().await;
        created(&audit.events_with(&there), &there).len()
    });
    assert!(begun < OBJECTS, "{begun}: {first:?}");
    // A client of the killed gateway tries again and reaches the other one.
    let run = run_apply(&kubectl, &objects).await;
    assert!(run.status.success(), "{run:?}");
    let list = ["get", "configmaps", "--output=name", "-n", &there];
    assert_eq!(kubectl.succeed(&list).await.lines().count(), OBJECTS);
    let counts = eventually("every object was created", async || {
        let counts = created(&audit.events_with(&there), &there);
        (counts.len() == OBJECTS).then_some(counts)
    })
    .await;
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    fixture.wrote(&there, "object-0", &user(&there, "deployer")).await;

    // The remaining gateway changes an object that the other may have created.
    let changed = json!({"data": {"number": "changed"}}).to_string();
    let patch = [
        "patch",
        "configmap",
        "object-0",
        "--type=merge",
        "--patch",
        &changed,
        "-n",
        &there,
    ];
    assert_eq!(kubectl.succeed(&patch).await, "configmap/object-0 patched\n");
}
