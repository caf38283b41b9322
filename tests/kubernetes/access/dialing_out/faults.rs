//! What breaks when an end, or what is between them, fails in the middle of something, and what comes back by
//! itself.

use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Duration, Instant};

use super::Remote;
use test_support::kubernetes::kubectl::{Kubectl, Running};
use test_support::relay::{Mode, Relay};

/// The longest time until a client sees that an end of the connection was killed, beyond what kubectl itself
/// takes.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// How long kubectl takes for a read while nothing is wrong, which is long on a busy machine.
async fn usual(kubectl: &Kubectl, here: &str) -> Duration {
    let begun = Instant::now();
    kubectl.succeed(&["get", "pods", here]).await;
    begun.elapsed()
}

/// A command for each kind of stream, in the middle of it.
async fn streams(kubectl: &Kubectl, here: &str) -> Vec<(&'static str, Running)> {
    let mut shell = kubectl.start(&["exec", "-i", here, "pod", "--", "cat"]);
    shell.say("hello\n").await;
    assert!(shell.line("hello").await.is_some());
    let mut log = kubectl.start(&["logs", "-f", here, "pod"]);
    assert!(log.line("line 10 ").await.is_some());
    // Its input never ends.
    let mut upload = kubectl.start(&[
        "exec",
        "-i",
        here,
        "pod",
        "--",
        "sh",
        "-c",
        "echo begun; cat > /dev/null",
    ]);
    assert!(upload.line("begun").await.is_some());
    upload.say(&"x".repeat(1 << 16)).await;
    vec![("exec", shell), ("logs", log), ("upload", upload)]
}

/// All of them end, and none as if it had ended by itself.
async fn assert_broken(streams: Vec<(&'static str, Running)>, usual: Duration) {
    let begun = Instant::now();
    for (what, running) in streams {
        let run = running.end().await;
        assert!(
            begun.elapsed() < usual + SEEN_WITHIN,
            "{what} ended after {:?}",
            begun.elapsed()
        );
        // kubectl ends `logs -f` with success regardless of what happens to the connection.
        assert!(!run.status.success() || what == "logs", "{what}: {run:?}");
    }
}

#[tokio::test]
async fn an_agent_that_is_killed_ends_what_is_open_and_sends_nothing_twice() {
    let mut remote = Remote::start().await;
    let kubectl = remote.kubectl().await;
    let here = format!("--namespace={}", remote.fixture.home);
    let open = streams(&kubectl, &here).await;
    let watch = kubectl.start(&["get", "configmaps", &here, "--watch", "--output=name"]);
    kubectl.succeed(&["create", "configmap", "made", &here]).await;
    let usual = usual(&kubectl, &here).await;

    remote.agent.process.kill().await.unwrap();
    assert_broken(open, usual).await;
    drop(watch);
    // Without an agent, a change is refused before it is sent anywhere.
    let refused = kubectl.run(&["create", "configmap", "lost", &here]).await;
    assert!(!refused.status.success(), "{refused:?}");
    remote.agent = remote.joined.run(&json!({})).await;
    remote.until_served(&kubectl).await;
    drop(streams(&kubectl, &here).await);
    let events = remote.fixture.cluster.audit().events_with(&remote.fixture.home);
    let created = |name: &str| {
        let is_it = |event: &&serde_json::Value| {
            event["verb"] == "create" && event["objectRef"]["name"] == name && event["stage"] == "ResponseComplete"
        };
        events.iter().filter(is_it).count()
    };
    assert_eq!((created("made"), created("lost")), (1, 0));
}

#[tokio::test]
async fn a_gateway_that_is_killed_ends_what_is_open_and_the_agent_finds_it_again() {
    let mut remote = Remote::start().await;
    let kubectl = remote.kubectl().await;
    let here = format!("--namespace={}", remote.fixture.home);
    let open = streams(&kubectl, &here).await;
    let usual = usual(&kubectl, &here).await;
    remote.fixture.gateway.kill().await;
    let killed = Instant::now();
    assert_broken(open, usual).await;
    remote.agent.until_logged("the connection broke").await;
    assert!(killed.elapsed() < usual + SEEN_WITHIN, "{:?}", killed.elapsed());
    remote.fixture.gateway.restart().await;
    remote.until_served(&kubectl).await;
    drop(streams(&kubectl, &here).await);
}

#[tokio::test]
async fn a_reader_that_stops_reading_stops_nobody_else() {
    let remote = Remote::start().await;
    let kubectl = remote.kubectl().await;
    let here = format!("--namespace={}", remote.fixture.home);
    let before = usual(&kubectl, &here).await;
    let mut stalled = Vec::new();
    for _ in 0..8 {
        let mut command = kubectl.command(&["exec", &here, "pod", "--", "head", "-c", "200000000", "/dev/zero"]);
        let mut child = command.spawn().unwrap();
        let mut first = [0; 1];
        child.stdout.as_mut().unwrap().read_exact(&mut first).await.unwrap();
        stalled.push(child);
    }
    // All of them are as full as they get.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let during = usual(&kubectl, &here).await;
    assert!(during < before + SEEN_WITHIN, "{before:?}, {during:?}");
    drop(stalled);
}

#[tokio::test]
async fn a_balancer_that_cuts_the_connection_is_dialed_again() {
    let remote = Remote::start().await;
    let relay = Relay::to(&remote.fixture.gateway.url()).await;
    // Its certificate names the gateway's own address and `localhost`.
    let local = format!("https://localhost:{}", relay.port());
    let remote = remote.through(json!({"gateway": local})).await;
    let kubectl = remote.kubectl().await;
    remote.until_served(&kubectl).await;
    relay.set(Mode::Cut);
    relay.set(Mode::Pass);
    remote.agent.until_logged("the connection broke").await;
    remote.until_served(&kubectl).await;
}
