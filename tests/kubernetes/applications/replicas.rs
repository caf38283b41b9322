//! Two independent gateways behind a load balancer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::fixture::{Fixture, FixtureBuilder, Source, Started, role, run_apply, user};
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::Gateway;
use test_support::kubernetes::kubectl::Run;

/// The objects of the sync. There are enough of them that a gateway can be killed in the middle.
const OBJECTS: usize = 40;

/// A load balancer that forwards each connection to the next address that accepts it.
async fn balance(backends: [SocketAddr; 2]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let next = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let first = next.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                for number in [first, first + 1] {
                    if let Ok(mut backend) = TcpStream::connect(backends[number % 2]).await {
                        // A killed gateway closes its connections, which the client sees.
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut backend).await;
                        return;
                    }
                }
            });
        }
    });
    address
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
    let balanced = balance([fixture.gateway.address(), other.address()]).await;
    let kubectl = fixture.kubectl_at(&format!("https://{balanced}"), "alice", "guestbook");
    let objects = sync(&there);
    let audit = fixture.cluster.audit();
    let (first, begun) = tokio::join!(run_apply(&kubectl, &objects), async {
        eventually("the sync is under way", async || {
            (created(&audit.events_with(&there), &there).len() > 3).then_some(())
        })
        .await;
        fixture.gateway.kill().await;
        created(&audit.events_with(&there), &there).len()
    });
    assert!(begun < OBJECTS, "the gateway died too late: {first:?}");
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
