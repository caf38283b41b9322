//! Limits on sets that would overload the gateway, and that other callers are still served.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::{API, names, post, set, setup, stored};
use test_support::world::World;

/// How long other callers may wait meanwhile: ten times what they need on a busy machine.
const SERVED: Duration = Duration::from_secs(10);

fn list(count: usize) -> Value {
    named("name", count)
}

fn named(key: &str, count: usize) -> Value {
    let elements: Vec<Value> = (0..count).map(|at| json!({key: format!("a{at}")})).collect();
    json!({"list": {"elements": elements}})
}

/// The set `name`, whose generators are replaced by these.
fn with(name: &str, generators: Value) -> Value {
    let mut set = set(name, "dev", &[]);
    set["spec"]["generators"] = generators;
    set
}

/// A gateway with small limits, and a git server that accepts connections and never answers.
async fn start() -> (World, TcpListener) {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut setup = setup();
    let repositories = format!("http://{}/*", silent.local_addr().unwrap());
    let rows = "p, alice, repositories, get, *, allow\np, erin, repositories, get, *, allow\n";
    setup.rbac_cm.get_mut("policy.csv").unwrap().push_str(rows);
    setup.settings = json!({"applicationSets": {
        // A request that waits for git does not count.
        "concurrency": 1,
        "repositories": [repositories],
        "limits": {"applications": 50, "parameters": 500, "generators": 20, "time": "3s"},
        "git": {"time": "2s"},
    }});
    (setup.start().await, silent)
}

async fn is_refused(world: &World, set: &Value, status: u16, text: &str) {
    let (found, body) = post(world, "alice", "", set).await;
    assert_eq!(found, status, "{body}");
    let message = body["message"].as_str().unwrap_or_default();
    assert!(message.contains(text), "{message}");
}

#[tokio::test]
async fn sets_that_grow_too_large_are_refused_with_the_limit() {
    let (world, _silent) = start().await;
    let two = |a: Value, b: Value| json!({"matrix": {"generators": [a, b]}});
    let wide = two(list(400), named("b", 400));
    is_refused(&world, &with("wide", json!([wide])), 400, "at most 500 are allowed").await;
    let nested = two(two(list(20), named("b", 20)), two(named("c", 20), named("d", 20)));
    is_refused(&world, &with("nested", json!([nested])), 400, "at most 500 are allowed").await;
    is_refused(&world, &with("long", json!([list(51)])), 400, "at most 50 are allowed").await;
    let many: Vec<Value> = (0..21).map(|_| list(1)).collect();
    is_refused(&world, &with("many", json!(many)), 400, "at most 20 are allowed").await;
    let mut bomb = with("bomb", json!([list(1)]));
    bomb["spec"]["goTemplate"] = json!(true);
    bomb["spec"]["template"]["metadata"]["name"] =
        json!("a{{ range until 10000 }}{{ range until 10000 }}x{{ end }}{{ end }}");
    let (status, body) = post(&world, "alice", "", &bomb).await;
    assert_eq!(status, 400, "{body}");
    assert!(stored(&world, "ApplicationSet").is_empty() && stored(&world, "Application").is_empty());

    // The twin: a set within the limits passes.
    let (status, body) = post(&world, "alice", "", &with("good", json!([list(50)]))).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(stored(&world, "Application").len(), 50);
}

#[tokio::test]
async fn others_are_served_while_git_is_slow() {
    let (world, silent) = start().await;
    let url = format!("http://{}/slow.git", silent.local_addr().unwrap());
    let git = json!({"git": {"repoURL": url, "revision": "HEAD", "directories": [{"path": "*"}]}});
    let slow = with("slow", json!([git]));
    let hang = async { is_refused(&world, &slow, 502, "slow.git").await };
    let others = async {
        for turn in 0..5 {
            let set = set(&format!("other-{turn}"), "dev", &[&format!("app-{turn}")]);
            let made = timeout(SERVED, post(&world, "alice", "", &set)).await;
            let (status, body) = made.expect("others are served");
            assert_eq!(status, 200, "{body}");
            let listed = timeout(SERVED, super::get(&world, "carol", "")).await;
            assert_eq!(listed.expect("others are served").0, 200);
        }
    };
    tokio::join!(hang, others);
    assert_eq!(names(&stored(&world, "ApplicationSet")).len(), 5, "{API}");
}
