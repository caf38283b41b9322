//! Streams end when their credential is revoked or expires.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

use super::fixture::{AccessAs, CredentialKind, Fixture};
use test_support::kubernetes::eventually;
use test_support::kubernetes::kubectl::{Kubectl, Protocol, Running};

/// The longest time from the response to the revocation to the end of the last stream in the gateway.
const WITHIN: SignedDuration = SignedDuration::from_secs(1);

/// The longest time until five processes of kubectl have noticed on a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// Opens a log, shells, a watch and a port forward.
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

/// Asserts that kubectl notices the end of all streams, with an error where it can detect it.
/// kubectl accepts the end of a watch, and with SPDY it takes the end of a command for success.
async fn ended(streams: Vec<(&'static str, Running)>, protocol: Protocol) {
    let answered = Instant::now();
    for (name, running) in streams {
        let run = running.end().await;
        let took = answered.elapsed();
        assert!(took < NOTICED_WITHIN, "{name} ended after {took:?}: {run:?}");
        let can_tell = match protocol {
            Protocol::WebSocket => name != "watch",
            Protocol::Spdy => name == "logs" || name == "port-forward",
        };
        assert!(
            !can_tell || !run.status.success(),
            "{name} ended without an error: {run:?}"
        );
    }
}

/// Asserts that the gateway ended this many streams within [`WITHIN`].
async fn ended_in_time(fixture: &Fixture, count: usize, answered: Timestamp) {
    let last = fixture.gateway.ended(count, "session_revoked").await;
    let took = last.duration_since(answered);
    assert!(took < WITHIN, "the last stream ended after {took:?}");
}

/// Asserts that the credential is refused, and that kubectl says so.
async fn refused(kubectl: &Kubectl, here: &str) {
    let error = kubectl.fail(&["get", "pods", here]).await;
    assert!(
        error.contains("Unauthorized") || error.contains("You must be logged in"),
        "{error}"
    );
}

/// Checks that `revoke` ends the streams of one token and not those of another. It gets the token's
/// id and returns when the revocation is acknowledged.
async fn check((agent, protocol): (AccessAs, Protocol), revoke: impl AsyncFnOnce(&Fixture, &str)) {
    let fixture = Fixture::start().await;
    let here = format!("--namespace={}", fixture.home);
    let (token, kept) = (fixture.token(agent).await, fixture.token(agent).await);
    let kubectl = fixture.kubectl(&token.bearer).speak(protocol);
    let streams = open(&kubectl, &here).await;
    // The streams of another token of the same person stay open.
    let other = fixture.kubectl(&kept.bearer);
    let mut others = open(&other, &here).await;

    revoke(&fixture, &token.id).await;
    let (answered, count) = (Timestamp::now(), streams.len());
    ended(streams, protocol).await;
    ended_in_time(&fixture, count, answered).await;
    refused(&kubectl, &here).await;
    for (name, running) in &mut others {
        assert!(running.runs(), "{name} of another token ended");
    }
    other.succeed(&["get", "pods", &here]).await;
}

#[tokio::test]
async fn by_the_api_ends_streams_within_a_second() {
    for variant in [(AccessAs::User, Protocol::WebSocket), (AccessAs::Agent, Protocol::Spdy)] {
        check(variant, async |fixture, id| {
            let path = format!("/api/v1/tokens/{id}");
            fixture.api(Method::DELETE, &path, &json!({})).await;
        })
        .await;
    }
}

#[tokio::test]
async fn by_the_command_line_ends_streams_within_a_second() {
    check((AccessAs::User, Protocol::WebSocket), async |fixture, id| {
        fixture.tollgate(&["token", "revoke", id]).await;
    })
    .await;
}

/// An ID token cannot be revoked, but the session with it can.
#[tokio::test]
async fn of_a_session_with_an_id_token_ends_its_streams() {
    let mut fixture = Fixture::start().await;
    let here = format!("--namespace={}", fixture.home);
    let bearer = fixture.bearer(CredentialKind::IdToken, AccessAs::User).await;
    let kubectl = fixture.kubectl(&bearer);
    let streams = open(&kubectl, &here).await;
    let session = eventually("the session is listed with its streams", async || {
        let listed = fixture.api(Method::GET, "/api/v1/sessions", &json!({})).await;
        let sessions = listed["items"].as_array().unwrap();
        let session = sessions
            .iter()
            .find(|session| session["openStreams"] == streams.len())?;
        assert_eq!(session["user"]["username"], "alice");
        assert_eq!(session["agent"]["id"], AccessAs::User as i64);
        Some(session["id"].as_str().unwrap().to_owned())
    })
    .await;
    assert!(session.starts_with("oidc:"), "{session}");
    fixture.tollgate(&["session", "revoke", &session]).await;
    let (answered, count) = (Timestamp::now(), streams.len());
    ended(streams, Protocol::WebSocket).await;
    ended_in_time(&fixture, count, answered).await;
    refused(&kubectl, &here).await;
}

/// An expired token ends its streams without a revocation.
#[tokio::test]
async fn is_not_needed_for_an_expired_token() {
    let fixture = Fixture::start().await;
    let here = format!("--namespace={}", fixture.home);
    // On a busy machine the streams may take longer to open than a token lives.
    let mut lifetimes = ["15s", "30s", "60s"].into_iter();
    let (streams, kubectl, left) = loop {
        let lifetime = lifetimes.next().expect("opening took too long");
        let token = fixture.token_for(AccessAs::User, lifetime).await;
        let kubectl = fixture.kubectl(&token.bearer);
        let streams = open(&kubectl, &here).await;
        let left = jiff::Timestamp::now().until(token.expires_at).unwrap();
        if left.is_positive() {
            break (streams, kubectl, left);
        }
    };
    tokio::time::sleep(left.try_into().unwrap()).await;
    ended(streams, Protocol::WebSocket).await;
    refused(&kubectl, &here).await;
}
