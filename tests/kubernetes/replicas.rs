//! Two gateways with one PostgreSQL. A revocation at one ends streams at the other, even if the
//! other loses the database.

use jiff::{SignedDuration, Timestamp};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::access::fixture::{AccessAs, Fixture, Token, kubectl};
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::Gateway;
use test_support::kubernetes::kubectl::{Kubectl, Running};
use test_support::postgres::shared;
use test_support::relay::{Mode, Relay};

/// The longest time from the response to a revocation to the end of the stream in the gateway. kubectl may
/// notice later on a busy machine.
const WITHIN: SignedDuration = SignedDuration::from_secs(1);

/// How long a replica keeps serving without the store.
const GRACE: SignedDuration = SignedDuration::from_secs(3);

/// The same where no test waits for it: longer than a store takes to answer on a busy machine.
const LONG_GRACE: SignedDuration = SignedDuration::from_secs(10);

/// Two replicas: `fixture.gateway` reaches the database directly and has [`LONG_GRACE`], `other` reaches it
/// through a relay.
struct Replicas {
    fixture: Fixture,
    other: Gateway,
    relay: Relay,
}

impl Replicas {
    /// - `grace`: of `other`.
    async fn start(grace: SignedDuration) -> Self {
        let seconds = |time: SignedDuration| format!("{}s", time.as_secs());
        let url = shared().database().await;
        let relay = Relay::to(&url).await;
        let mut other = None;
        let fixture = Fixture::start_with(|layout| {
            layout.settings(json!({
                "store": {"url": url, "gracePeriod": seconds(LONG_GRACE)},
                "limits": {"requestsPerPerson": 2},
            }));
            let mut replica = layout.replica();
            replica.setting("/store", json!({"url": relay.url(), "gracePeriod": seconds(grace)}));
            other = Some(replica);
        })
        .await;
        Self {
            fixture,
            other: other.unwrap().start().await,
            relay,
        }
    }

    fn here(&self) -> String {
        format!("--namespace={}", self.fixture.home)
    }

    /// Opens a shell with `kubectl`.
    async fn shell(&self, kubectl: &Kubectl) -> Running {
        let mut shell = kubectl.start(&["exec", "-i", &self.here(), "pod", "--", "cat"]);
        shell.say("hello\n").await;
        shell.line("hello").await.unwrap();
        shell
    }

    async fn revoke(&self, token: &Token) {
        let path = format!("/api/v1/tokens/{}", token.id);
        self.fixture.api(Method::DELETE, &path, &json!({})).await;
    }

    /// The status of a read through a replica.
    async fn read(&self, gateway: &Gateway, token: &Token) -> StatusCode {
        let url = format!(
            "{}/k8s-proxy/api/v1/namespaces/{}/pods",
            gateway.url(),
            self.fixture.home
        );
        let answer = gateway.plain_client().get(url).bearer_auth(&token.bearer).send().await;
        answer.unwrap().status()
    }

    async fn items(&self, path: &str) -> Vec<Value> {
        let listed = self.fixture.api(Method::GET, path, &json!({})).await;
        listed["items"].as_array().unwrap().clone()
    }
}

#[tokio::test]
async fn a_token_revoked_at_one_ends_a_shell_at_the_other_within_a_second() {
    let replicas = Replicas::start(LONG_GRACE).await;
    let (token, kept) = (
        replicas.fixture.token(AccessAs::User).await,
        replicas.fixture.token(AccessAs::User).await,
    );
    let there = kubectl(&replicas.other, &token.bearer);
    let shell = replicas.shell(&there).await;
    let mut stays = replicas.shell(&kubectl(&replicas.other, &kept.bearer)).await;

    replicas.revoke(&token).await;
    let answered = Timestamp::now();
    let run = shell.end().await;
    let last = replicas.other.ended(1, "session_revoked").await;
    let took = last.duration_since(answered);
    assert!(took < WITHIN, "it ended after {took:?}: {run:?}");
    assert!(!run.status.success(), "{run:?}");
    for gateway in [&replicas.fixture.gateway, &replicas.other] {
        assert_eq!(replicas.read(gateway, &token).await, StatusCode::UNAUTHORIZED);
        assert_eq!(gateway.readiness().await.0, 200);
    }
    assert!(stays.runs(), "the shell of another token ended");
}

/// Sessions and audit log cover both replicas. Each replica counts a person's open requests itself.
#[tokio::test]
async fn sessions_and_audit_are_of_all_replicas_and_limits_of_each() {
    let replicas = Replicas::start(LONG_GRACE).await;
    let token = replicas.fixture.token(AccessAs::User).await;
    let mut shells = Vec::new();
    for gateway in [&replicas.fixture.gateway, &replicas.other] {
        let kubectl = kubectl(gateway, &token.bearer);
        shells.push(replicas.shell(&kubectl).await);
        shells.push(replicas.shell(&kubectl).await);
        // Each replica permits two open requests per person.
        let refused = replicas.read(gateway, &token).await;
        assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS);
    }
    let session = format!("pat:{}", token.id);
    let listed = eventually("the session is listed with the streams of both", async || {
        let sessions = replicas.items("/api/v1/sessions").await;
        let mine: Vec<_> = sessions
            .into_iter()
            .filter(|one| one["id"] == session.as_str())
            .collect();
        (mine.len() == 1 && mine[0]["openStreams"] == 4).then_some(mine)
    })
    .await;
    assert!(listed[0]["requests"].as_u64().unwrap() >= 4, "{listed:?}");
    let events = replicas.items("/api/v1/audit?limit=1000").await;
    let is_shell = |event: &&Value| event["action"] == "access.allowed" && event["details"]["subresource"] == "exec";
    assert_eq!(events.iter().filter(is_shell).count(), 4, "{events:?}");

    replicas.revoke(&token).await;
    let answered = Timestamp::now();
    for shell in shells {
        shell.end().await;
    }
    for gateway in [&replicas.fixture.gateway, &replicas.other] {
        let last = gateway.ended(2, "session_revoked").await;
        let took = last.duration_since(answered);
        assert!(took < WITHIN, "the last shell ended after {took:?}");
    }
    let closed = eventually("the log has the closed streams of both", async || {
        let events = replicas.items("/api/v1/audit?limit=1000&action=stream.closed").await;
        (events.len() == 4).then_some(events)
    })
    .await;
    assert!(
        closed
            .iter()
            .all(|event| event["details"]["reason"] == "session revoked"),
        "{closed:?}"
    );
}

/// A replica that cannot learn of revocations serves for the grace period and no longer.
async fn cut_off(mode: Mode) {
    let replicas = Replicas::start(GRACE).await;
    let (token, kept) = (
        replicas.fixture.token(AccessAs::User).await,
        replicas.fixture.token(AccessAs::User).await,
    );
    let shell = replicas.shell(&kubectl(&replicas.other, &token.bearer)).await;
    let mut stays = replicas.shell(&kubectl(&replicas.fixture.gateway, &kept.bearer)).await;
    assert_eq!(replicas.read(&replicas.other, &kept).await, StatusCode::OK);
    assert_eq!(replicas.other.readiness().await.0, 200);

    replicas.relay.set(mode);
    let cut = Timestamp::now();
    replicas.revoke(&token).await;
    let run = shell.end().await;
    let last = replicas.other.ended(1, "store_unavailable").await;
    let took = last.duration_since(cut);
    assert!(took < GRACE + WITHIN, "it ended after {took:?}: {run:?}");
    assert!(!run.status.success(), "{run:?}");
    let (status, text) = replicas.other.readiness().await;
    assert_eq!((status, text.as_str()), (503, "the store is unavailable\n"));
    // It authenticates nobody, not even with cached credentials.
    for token in [&token, &kept] {
        let status = replicas.read(&replicas.other, token).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    }
    // The other replica has the store, and its streams stay open.
    assert_eq!(replicas.fixture.gateway.readiness().await.0, 200);
    assert_eq!(replicas.read(&replicas.fixture.gateway, &kept).await, StatusCode::OK);
    assert!(stays.runs());

    replicas.relay.set(Mode::Pass);
    eventually("the replica is ready again", async || {
        (replicas.other.readiness().await.0 == 200).then_some(())
    })
    .await;
    assert_eq!(replicas.read(&replicas.other, &token).await, StatusCode::UNAUTHORIZED);
    let works = eventually("the replica accepts other tokens", async || {
        let status = replicas.read(&replicas.other, &kept).await;
        status.is_success().then_some(status)
    })
    .await;
    assert_eq!(works, StatusCode::OK);
    // A busy machine may exceed the grace period again.
    let exec = ["exec", &replicas.here(), "pod", "--", "echo", "hello"];
    eventually("the replica opens shells", async || {
        let run = kubectl(&replicas.other, &kept.bearer).run(&exec).await;
        (run.stdout == "hello\n").then_some(())
    })
    .await;
    let closed = eventually("the end of the shell is in the log", async || {
        let events = replicas.items("/api/v1/audit?limit=1000&action=stream.closed").await;
        (!events.is_empty()).then_some(events)
    })
    .await;
    assert_eq!(closed[0]["details"]["reason"], "store unavailable");
}

#[tokio::test]
async fn a_replica_whose_connections_are_cut_ends_what_it_has_open() {
    cut_off(Mode::Cut).await;
}

#[tokio::test]
async fn a_replica_whose_connections_stall_ends_what_it_has_open() {
    cut_off(Mode::Stall).await;
}

#[tokio::test]
async fn a_replica_whose_packets_are_lost_ends_what_it_has_open() {
    cut_off(Mode::Drop).await;
}
