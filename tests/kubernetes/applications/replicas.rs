//! Two gateways that know nothing of each other, behind one address.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::world::{Plan, Source, Started, World, role, run_apply, user};
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::Gateway;
use test_support::kubernetes::kubectl::Run;

/// Objects of the sync; enough that a gateway dies in the midst of it.
const OBJECTS: usize = 40;

/// The smallest balancer there is: a connection goes to the next address that
/// takes it.
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
                        // A gateway that dies ends its connections; the client sees that.
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

/// How often each object of the namespace was made.
fn made(events: &[Value], namespace: &str) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    for event in events {
        let object = &event["objectRef"];
        let ours = object["namespace"] == namespace && object["resource"] == "configmaps" && event["verb"] == "create";
        if ours && event["responseStatus"]["code"] == 201 {
            *made.entry(object["name"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    made
}

async fn plan() -> Started {
    let mut plan = Plan::new(Source::Kubernetes).await;
    let there = plan.guestbook.clone();
    plan.deployer(&there, "deployer", &[]);
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["*"]}]);
    plan.objects(role(&there, "configmaps", &rules, (&there, "deployer")));
    plan.project(
        "my-project",
        &json!({
            "destinations": [plan.to(&there)],
            "namespaceResourceBlacklist": [{"group": "", "kind": "Secret"}],
            "destinationServiceAccounts": [plan.acts("*", "deployer")],
        }),
    );
    plan.application("guestbook", "my-project", &plan.to(&there));
    plan.start_replicas(1).await
}

/// The same question has the same answer, whichever is asked.
async fn the_same_answers(world: &World, other: &Gateway) {
    let there = world.guestbook.as_str();
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
        let one = world.kubectl(who, "guestbook").run(arguments).await;
        let two = world.kubectl_at(&other.url(), who, "guestbook").run(arguments).await;
        let told = |run: &Run| {
            let text = run.stderr.split(" Trace ID: ").next().unwrap_or_default();
            assert!(text.contains(word), "{arguments:?}: {text}");
            let said: Value = serde_json::from_str(&run.stdout).unwrap_or_default();
            let user = said["status"]["userInfo"]["username"].clone();
            (run.status, text.to_owned(), user)
        };
        assert_eq!(told(&one), told(&two), "{arguments:?}");
    }
}

#[tokio::test]
async fn one_of_two_dies_in_a_sync_and_the_other_carries_on() {
    let Started {
        mut world,
        mut replicas,
    } = plan().await;
    let other = replicas.pop().unwrap().start().await;
    let there = world.guestbook.clone();

    the_same_answers(&world, &other).await;
    let balanced = balance([world.gateway.address(), other.address()]).await;
    let kubectl = world.kubectl_at(&format!("https://{balanced}"), "alice", "guestbook");
    let objects = sync(&there);
    let audit = world.cluster.audit();
    let (first, begun) = tokio::join!(run_apply(&kubectl, &objects), async {
        eventually("the sync is under way", async || {
            (made(&audit.events_with(&there), &there).len() > 3).then_some(())
        })
        .await;
        world.gateway.kill().await;
        made(&audit.events_with(&there), &there).len()
    });
    assert!(begun < OBJECTS, "the gateway died too late: {first:?}");
    // Whoever was connected to the dead one begins again, and finds the other.
    let run = run_apply(&kubectl, &objects).await;
    assert!(run.status.success(), "{run:?}");
    let list = ["get", "configmaps", "--output=name", "-n", &there];
    assert_eq!(kubectl.succeed(&list).await.lines().count(), OBJECTS);
    let made = eventually("every object was made", async || {
        let made = made(&audit.events_with(&there), &there);
        (made.len() == OBJECTS).then_some(made)
    })
    .await;
    assert!(made.values().all(|count| *count == 1), "{made:?}");
    world.wrote(&there, "object-0", &user(&there, "deployer")).await;

    // The one that is left changes what the other made.
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
