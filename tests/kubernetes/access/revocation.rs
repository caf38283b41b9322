//! Credentials end, and with them what they had opened.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

use super::world::{As, With, World};
use test_support::kubernetes::eventually;
use test_support::kubernetes::kubectl::{Kubectl, Protocol, Running};

/// From the answer of who revoked to the end of the last stream.
const WITHIN: Duration = Duration::from_secs(1);

/// What alice has open: a log, shells, a watch, a tunnel.
async fn open(kubectl: &Kubectl, here: &str) -> Vec<(&'static str, Running)> {
    let mut log = kubectl.start(&["logs", "-f", here, "pod"]);
    log.line("line 12 ").await.unwrap();
    let mut shell = kubectl.start(&["exec", "-i", here, "pod", "--", "cat"]);
    shell.say("hello\n").await;
    shell.line("hello").await.unwrap();
    let mut quiet = kubectl.start(&["exec", here, "pod", "--", "sh", "-c", "echo quiet; exec sleep 600"]);
    quiet.line("quiet").await.unwrap();
    let mut watch = kubectl.start(&["get", "pods", here, "--watch", "--output=name"]);
    watch.line("pod/pod").await.unwrap();
    let mut forward = kubectl.start(&["port-forward", here, "pod/pod", ":80"]);
    forward.line("Forwarding from").await.unwrap();
    vec![
        ("logs", log),
        ("exec -i", shell),
        ("exec", quiet),
        ("watch", watch),
        ("port-forward", forward),
    ]
}

/// All of it ends within [`WITHIN`] from now, as an error where kubectl can tell:
/// it takes the end of a watch for what servers do now and then, and by SPDY that of
/// a command for its success.
async fn ended(streams: Vec<(&'static str, Running)>, protocol: Protocol) {
    let answered = Instant::now();
    for (name, running) in streams {
        let run = running.end().await;
        let took = answered.elapsed();
        assert!(took < WITHIN, "{name} ended after {took:?}: {run:?}");
        let can_tell = match protocol {
            Protocol::WebSocket => name != "watch",
            Protocol::Spdy => name == "logs" || name == "port-forward",
        };
        assert!(
            !can_tell || !run.status.success(),
            "{name} ended as if all were well: {run:?}"
        );
    }
}

/// The credential lets nobody in any more, and kubectl says so.
async fn refused(kubectl: &Kubectl, here: &str) {
    let said = kubectl.fail(&["get", "pods", here]).await;
    assert!(
        said.contains("Unauthorized") || said.contains("You must be logged in"),
        "{said}"
    );
}

/// `revoke` ends a token of alice, told its number; it returns when it is answered.
async fn check((agent, protocol): (As, Protocol), revoke: impl AsyncFnOnce(&World, &str)) {
    let world = World::start().await;
    let here = format!("--namespace={}", world.home);
    let (token, kept) = (world.token(agent).await, world.token(agent).await);
    let kubectl = world.kubectl(&token.bearer).speak(protocol);
    let streams = open(&kubectl, &here).await;
    // Another token of the same person: nothing of it ends.
    let other = world.kubectl(&kept.bearer);
    let mut others = open(&other, &here).await;

    revoke(&world, &token.id).await;
    ended(streams, protocol).await;
    refused(&kubectl, &here).await;
    for (name, running) in &mut others {
        assert!(running.runs(), "{name} of another token ended");
    }
    other.succeed(&["get", "pods", &here]).await;
}

#[tokio::test]
async fn by_the_api_ends_streams_within_a_second() {
    for way in [(As::User, Protocol::WebSocket), (As::Agent, Protocol::Spdy)] {
        check(way, async |world, id| {
            let path = format!("/api/v1/tokens/{id}");
            world.api(Method::DELETE, &path, &json!({})).await;
        })
        .await;
    }
}

#[tokio::test]
async fn by_the_command_line_ends_streams_within_a_second() {
    check((As::User, Protocol::WebSocket), async |world, id| {
        world.tollgate(&["token", "revoke", id]).await;
    })
    .await;
}

/// ID tokens are nobody's to revoke, but sessions with them are.
#[tokio::test]
async fn of_a_session_with_an_id_token_ends_its_streams() {
    let mut world = World::start().await;
    let here = format!("--namespace={}", world.home);
    let bearer = world.bearer(With::IdToken, As::User).await;
    let kubectl = world.kubectl(&bearer);
    let streams = open(&kubectl, &here).await;
    let session = eventually("the session is listed with its streams", async || {
        let listed = world.api(Method::GET, "/api/v1/sessions", &json!({})).await;
        let sessions = listed["items"].as_array().unwrap();
        let session = sessions
            .iter()
            .find(|session| session["openStreams"] == streams.len())?;
        assert_eq!(session["user"]["username"], "alice");
        assert_eq!(session["agent"]["id"], As::User as i64);
        Some(session["id"].as_str().unwrap().to_owned())
    })
    .await;
    assert!(session.starts_with("oidc:"), "{session}");
    world.tollgate(&["session", "revoke", &session]).await;
    ended(streams, Protocol::WebSocket).await;
    refused(&kubectl, &here).await;
}

/// What nobody revokes ends by itself, in the middle of everything.
#[tokio::test]
async fn is_not_needed_for_a_token_whose_time_is_up() {
    let world = World::start().await;
    let here = format!("--namespace={}", world.home);
    let token = world.token_for(As::User, "15s").await;
    let kubectl = world.kubectl(&token.bearer);
    let streams = open(&kubectl, &here).await;
    let left = jiff::Timestamp::now().until(token.expires_at).unwrap();
    assert!(left.is_positive(), "opening took too long");
    tokio::time::sleep(left.try_into().unwrap()).await;
    ended(streams, Protocol::WebSocket).await;
    refused(&kubectl, &here).await;
}
