//! A token ends, and with it what it had opened.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

use super::world::{As, World};
use crate::support::kubectl::{Kubectl, Running};

/// From the answer of who revoked to the end of the last stream.
const WITHIN: Duration = Duration::from_secs(1);

/// What alice has open: a log, a shell, a watch, a tunnel.
async fn open(kubectl: &Kubectl, here: &str) -> Vec<(&'static str, Running)> {
    let mut log = kubectl.start(&["logs", "-f", here, "pod"]);
    log.line("line 12 ").await.unwrap();
    let mut shell = kubectl.start(&["exec", "-i", here, "pod", "--", "cat"]);
    shell.say("hello\n").await;
    shell.line("hello").await.unwrap();
    let mut quiet = kubectl.start(&["exec", here, "pod", "--", "sh", "-c", "echo quiet; sleep 600"]);
    quiet.line("quiet").await.unwrap();
    let mut watch = kubectl.start(&["get", "pods", here, "--watch", "--output=name"]);
    watch.line("pod/pod").await.unwrap();
    vec![("logs", log), ("exec -i", shell), ("exec", quiet), ("watch", watch)]
}

/// Revokes by `revoke`, which gives the moment it had its answer.
async fn check(agent: As, revoke: impl AsyncFnOnce(&World, &str) -> Instant) {
    let world = World::start().await;
    let here = format!("--namespace={}", world.home);
    let (token, kept) = (world.token(agent).await, world.token(agent).await);
    let kubectl = world.kubectl(&token.bearer);
    let streams = open(&kubectl, &here).await;
    // Another token of the same person: nothing of it ends.
    let other = world.kubectl(&kept.bearer);
    let mut others = open(&other, &here).await;

    let answered = revoke(&world, &token.id).await;
    for (name, running) in streams {
        let run = running.end().await;
        let took = answered.elapsed();
        assert!(took < WITHIN, "{name} ended after {took:?}: {run:?}");
        // kubectl takes the end of a watch for what servers do now and then.
        assert!(
            name == "watch" || !run.status.success(),
            "{name} ended as if all were well: {run:?}"
        );
    }
    let said = kubectl.fail(&["get", "pods", &here]).await;
    assert!(
        said.contains("Unauthorized") || said.contains("You must be logged in"),
        "{said}"
    );
    for (name, running) in &mut others {
        assert!(running.runs(), "{name} of another token ended");
    }
    other.succeed(&["get", "pods", &here]).await;
}

#[tokio::test]
async fn by_the_api_ends_streams_within_a_second() {
    for agent in [As::User, As::Agent] {
        check(agent, async |world, id| {
            let path = format!("/api/v1/tokens/{id}");
            world.api(Method::DELETE, &path, &json!({})).await;
            Instant::now()
        })
        .await;
    }
}

#[tokio::test]
async fn by_the_command_line_ends_streams_within_a_second() {
    check(As::User, async |world, id| {
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["token", "revoke", id, "--server", &world.gateway.url()])
            .args(["--auth-token", &world.session()])
            .arg("--certificate-authority")
            .arg(world.gateway.path("gateway-ca.pem"))
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        Instant::now()
    })
    .await;
}
