//! Tokens that Argo CD revoked: what their holders get on every front, and what they have open.
//! Redis is a real one, to which the tests write as argocd-server does.

use serde_json::{Value, json};

use crate::wire::{put, reason};
use test_support::authority::Authority;
use test_support::backend::{Backend, Reply};
use test_support::client::{Answer, Client};
use test_support::redis::{PASSWORD, Redis};
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World};
use tollgate_config::raw::{self, SettingLocations};
use tollgate_gateway::running::inputs;
use tollgate_identity::clock::Clock;

/// A plain read of each front that accepts sessions of Argo CD.
const FRONTS: [&str; 4] = [
    "/api/v1/applications",
    "/api/v1/applicationsets",
    "/api/v1/extensions/echo/a",
    "/api/v1/tollgate/clusters",
];

/// Something that stays open, on each front that can keep something open here.
const STREAMS: [&str; 3] = [
    "/api/v1/stream/applications",
    "/api/v1/stream/applicationsets",
    "/api/v1/extensions/echo/stream",
];

/// A backend that serves the extension `echo` and stands for argocd-server. Streams stay open.
async fn backend() -> Backend {
    Backend::start(|seen| match seen.line().contains("stream") {
        true => Reply::Stall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n".to_vec()),
        false => Reply::ok("fine"),
    })
    .await
}

/// A gateway that reads this Redis.
async fn world(backend: &Backend, redis: Value) -> World {
    let mut setup = Setup::with_backend(backend.address);
    setup.settings = json!({
        "argocd": {"server": format!("http://{}", backend.address), "redis": redis},
        "applicationSets": {},
    });
    setup.start().await
}

/// `settings` with more keys.
fn with(mut settings: Value, more: Value) -> Value {
    let (Value::Object(all), Value::Object(more)) = (&mut settings, more) else {
        panic!("no objects");
    };
    all.extend(more);
    settings
}

/// A session of `alice` with this `jti`.
fn session(id: &str) -> String {
    let now = jiff::Timestamp::now().as_second();
    let claims = json!({"iss": "argocd", "sub": "alice:login", "iat": now, "exp": now + 3600, "jti": id});
    token::sign(SESSION_KEY, &claims)
}

fn get(path: &str, id: &str) -> Vec<u8> {
    request("GET", path, id)
}

fn request(method: &str, path: &str, id: &str) -> Vec<u8> {
    let about = "argocd-application-name: argocd:cart\r\nargocd-project-name: shop\r\n";
    let token = session(id);
    let fields = format!("host: argocd.test\r\nconnection: close\r\n{about}authorization: Bearer {token}\r\n");
    format!("{method} {path} HTTP/1.1\r\n{fields}\r\n").into_bytes()
}

async fn send(world: &World, path: &str, id: &str) -> Answer {
    Client::connect(world.address()).await.exchange(&get(path, id)).await
}

/// Status and reason of the answer to a session; no reason if it is let in. `None` if the connection ends
/// without an answer, as that of a request does whose session is revoked meanwhile.
async fn outcome(world: &World, id: &str) -> Option<(u16, String)> {
    let mut client = Client::connect(world.address()).await;
    client.send(&get("/api/v1/applications", id)).await;
    let answer = client.answer().await?;
    let reason = if answer.status == 200 {
        String::new()
    } else {
        reason(&answer)
    };
    Some((answer.status, reason))
}

async fn until_outcome(world: &World, id: &str, expected: (u16, &str)) {
    let is_so = || async {
        let outcome = outcome(world, id).await;
        outcome.is_some_and(|(status, reason)| (status, reason.as_str()) == expected)
    };
    world.until(&format!("{expected:?} for session {id}"), is_so).await;
}

const LET_IN: (u16, &str) = (200, "");
const REVOKED: (u16, &str) = (401, "token_revoked");
const UNAVAILABLE: (u16, &str) = (503, "revocations_unavailable");

async fn assert_outcome(world: &World, id: &str, expected: (u16, &str)) {
    let (status, reason) = outcome(world, id).await.unwrap();
    assert_eq!((status, reason.as_str()), expected, "session {id}");
}

/// An open stream, and the id of its decision.
struct Stream {
    client: Client,
    decision: String,
}

impl Stream {
    async fn open(world: &World, path: &str, id: &str) -> Self {
        let mut client = Client::connect(world.address()).await;
        client.send(&get(path, id)).await;
        let head = client.head().await.expect("a head");
        assert_eq!(head.status, 200, "{path}: {}", head.head);
        let decision = head.values("tollgate-decision-id")[0].to_owned();
        Self { client, decision }
    }

    /// Waits until it ends, for this reason.
    async fn assert_ends(mut self, world: &World, expected: &str) {
        self.client.rest().await;
        let record = async || -> Value {
            let text = world.admin(&format!("/decisions/{}", self.decision)).await;
            serde_json::from_str(&text).expect("a record")
        };
        world
            .until("the end is recorded", || async { record().await["ended"].is_object() })
            .await;
        assert_eq!(record().await["ended"]["reason"], expected);
    }
}

async fn readiness(world: &World) -> (u16, String) {
    let url = format!("http://{}/readyz", world.running.admin_address());
    let answer = reqwest::get(url).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

async fn metric(world: &World, name: &str) -> String {
    let metrics = world.admin("/metrics").await;
    let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.expect("the metric").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_is_refused_on_every_front_and_what_it_has_open_ends() {
    let redis = Redis::start().await;
    redis.revoke("before", 3600).await;
    let backend = backend().await;
    let world = world(&backend, redis.settings()).await;
    for path in FRONTS {
        let refused = send(&world, path, "before").await;
        assert_eq!((refused.status, reason(&refused).as_str()), REVOKED, "{path}");
        assert_eq!(send(&world, path, "now").await.status, 200, "{path}");
        assert_eq!(send(&world, path, "never").await.status, 200, "{path}");
    }
    let mut streams = Vec::new();
    let mut twins = Vec::new();
    for path in STREAMS {
        streams.push(Stream::open(&world, path, "now").await);
        twins.push(Stream::open(&world, path, "never").await);
    }
    redis.revoke("now", 3600).await;
    for stream in streams {
        stream.assert_ends(&world, "session_revoked").await;
    }
    for path in FRONTS {
        let refused = send(&world, path, "now").await;
        assert_eq!((refused.status, reason(&refused).as_str()), REVOKED, "{path}");
        assert_eq!(send(&world, path, "never").await.status, 200, "{path}");
    }
    assert_eq!(metric(&world, "tollgate_argocd_revoked_tokens").await, "2");
    redis.revoke("never", 3600).await;
    for twin in twins {
        twin.assert_ends(&world, "session_revoked").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ends_its_own_session_is_answered() {
    let redis = Redis::start().await;
    for is_answered in [true, false] {
        let (answer, answers) = std::sync::mpsc::channel::<()>();
        let answers = std::sync::Mutex::new(answers);
        let backend = Backend::start(move |seen| {
            if seen.line().starts_with("PUT") {
                let _ = tokio::task::block_in_place(|| answers.lock().unwrap().recv());
            }
            Reply::ok("fine")
        })
        .await;
        let world = world(&backend, redis.settings()).await;
        let id = format!("own-{is_answered}");
        let mut client = Client::connect(world.address()).await;
        client.send(&request("PUT", "/api/v1/account/password", &id)).await;
        world
            .until("the backend has the request", async || !backend.seen().is_empty())
            .await;
        redis.revoke(&id, 3600).await;
        until_outcome(&world, &id, REVOKED).await;
        if is_answered {
            answer.send(()).unwrap();
        }
        let answered = client.answer().await.expect("an answer");
        assert_eq!(answered.status, if is_answered { 200 } else { 401 });
        drop(answer);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_follows_the_list() {
    let redis = Redis::start().await;
    let backend = backend().await;
    let replicas = [
        world(&backend, redis.settings()).await,
        world(&backend, redis.settings()).await,
    ];
    for replica in &replicas {
        assert_outcome(replica, "a", LET_IN).await;
    }
    redis.revoke("a", 3600).await;
    for replica in &replicas {
        until_outcome(replica, "a", REVOKED).await;
        assert_outcome(replica, "b", LET_IN).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_revoked_stays_so_after_redis_was_killed_and_started_empty() {
    let mut redis = Redis::start().await;
    let world = world(&backend().await, redis.settings()).await;
    redis.revoke("a", 3600).await;
    until_outcome(&world, "a", REVOKED).await;
    redis.restart().await;
    assert_eq!(redis.command(&["EXISTS", "revoked-token|a"]).await, ":0");
    let is_followed = || async {
        redis.revoke("b", 3600).await;
        outcome(&world, "b").await.is_some_and(|(status, _)| status == 401)
    };
    world.until("new revocations arrive", is_followed).await;
    assert_outcome(&world, "a", REVOKED).await;
    assert_outcome(&world, "c", LET_IN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_away_sessions_are_refused_after_the_grace_period() {
    let mut redis = Redis::start().await;
    let settings = with(redis.settings(), json!({"gracePeriod": "6s"}));
    let world = world(&backend().await, settings).await;
    redis.revoke("a", 3600).await;
    until_outcome(&world, "a", REVOKED).await;
    assert_outcome(&world, "b", LET_IN).await;
    assert_eq!(readiness(&world).await.0, 200);
    let stream = Stream::open(&world, "/api/v1/stream/applications", "b").await;
    redis.kill();
    stream.assert_ends(&world, "revocations_unavailable").await;
    assert_outcome(&world, "b", UNAVAILABLE).await;
    assert_outcome(&world, "a", REVOKED).await;
    let (status, text) = readiness(&world).await;
    assert_eq!(
        (status, text.as_str()),
        (503, "Argo CD's list of revoked tokens is unavailable\n")
    );
    redis.restart().await;
    until_outcome(&world, "b", LET_IN).await;
    assert_outcome(&world, "a", REVOKED).await;
    assert_eq!(readiness(&world).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_allow_only_what_is_known_to_be_revoked_is_refused_while_redis_is_away() {
    let mut redis = Redis::start().await;
    let settings = with(
        redis.settings(),
        json!({"gracePeriod": "2s", "whenUnavailable": "allow"}),
    );
    let world = world(&backend().await, settings).await;
    redis.revoke("a", 3600).await;
    until_outcome(&world, "a", REVOKED).await;
    redis.kill();
    let is_reported = || async { metric(&world, "tollgate_argocd_revoked_tokens_unavailable").await == "1" };
    world.until("the metric", is_reported).await;
    assert_outcome(&world, "b", LET_IN).await;
    assert_outcome(&world, "a", REVOKED).await;
    assert_eq!(readiness(&world).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_starts_while_redis_is_away_and_lets_sessions_in_when_it_answers() {
    let mut redis = Redis::stopped(None);
    let world = world(&backend().await, redis.settings()).await;
    assert_outcome(&world, "a", UNAVAILABLE).await;
    assert_eq!(readiness(&world).await.0, 503);
    redis.restart().await;
    until_outcome(&world, "a", LET_IN).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_refuses_sessions_until_the_file_has_the_right_one() {
    let redis = Redis::with_password().await;
    let settings = with(redis.settings(), json!({"passwordFile": "redis-password"}));
    let world = world(&backend().await, settings).await;
    // There is no file yet.
    assert_outcome(&world, "a", UNAVAILABLE).await;
    put(&world, "redis-password", "wrong\n");
    let failures = metric(&world, "tollgate_argocd_redis_failures_total").await;
    let is_tried_again = || async { metric(&world, "tollgate_argocd_redis_failures_total").await != failures };
    world.until("another attempt", is_tried_again).await;
    assert_outcome(&world, "a", UNAVAILABLE).await;
    put(&world, "redis-password", format!("{PASSWORD}\n"));
    until_outcome(&world, "a", LET_IN).await;
    redis.revoke("a", 3600).await;
    until_outcome(&world, "a", REVOKED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_only_the_named_authority_is_trusted() {
    let redis = Redis::with_password().await;
    let password = redis.file("password", PASSWORD);
    let right = with(redis.tls_settings(), json!({"passwordFile": password}));
    for settings in [
        right.clone(),
        with(right.clone(), json!({"serverName": "argocd-redis"})),
    ] {
        let world = world(&backend().await, settings).await;
        assert_outcome(&world, "a", LET_IN).await;
        redis.revoke("b", 3600).await;
        until_outcome(&world, "b", REVOKED).await;
        redis.command(&["DEL", "revoked-token|b"]).await;
    }
    let other = redis.file("other.pem", &Authority::new("other").pem);
    for wrong in [json!({"ca": other}), json!({"serverName": "redis.example"})] {
        let world = world(&backend().await, with(right.clone(), wrong)).await;
        assert_outcome(&world, "a", UNAVAILABLE).await;
    }
}

/// The rights that docs/argocd.md lists.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_few_rights_is_enough() {
    let redis = Redis::with_password().await;
    let rights = "on >few-rights resetchannels ~revoked-token|* &new-revoked-token -@all +hello +ping +scan +pttl \
                  +subscribe";
    let words: Vec<&str> = ["ACL", "SETUSER", "tollgate"]
        .into_iter()
        .chain(rights.split(' '))
        .collect();
    assert_eq!(redis.command(&words).await, "+OK");
    let password = redis.file("few-rights", "few-rights");
    let user = json!({"username": "tollgate", "passwordFile": password});
    let world = world(&backend().await, with(redis.settings(), user)).await;
    assert_outcome(&world, "a", LET_IN).await;
    redis.revoke("a", 3600).await;
    until_outcome(&world, "a", REVOKED).await;
}

/// What `tollgate check` says about `argocd.redis`.
async fn findings(redis: Value) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tollgate.yaml");
    let settings = json!({
        "state": {"directory": "s"}, "policies": {"directory": "p"}, "argocd": {"redis": redis},
    });
    std::fs::write(&path, settings.to_string()).unwrap();
    let config = raw::load(&path).value.unwrap();
    let found = inputs::findings(&config, &SettingLocations::read(&path), &Clock::default()).await;
    found.iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn check_tries_redis() {
    let mut redis = Redis::with_password().await;
    let right = redis.file("right", PASSWORD);
    let wrong = redis.file("wrong", "not-the-password");
    let settings = |file: &std::path::Path| with(redis.settings(), json!({"passwordFile": file}));
    let (right, wrong) = (settings(&right), settings(&wrong));
    assert_eq!(findings(right.clone()).await, [""; 0]);
    for (redis, what, advice) in [
        (redis.settings(), "refused", "`argocd.redis.passwordFile`"),
        (wrong, "refused", "Secret `argocd-redis`"),
        (
            with(redis.settings(), json!({"passwordFile": "none"})),
            "`passwordFile`: ",
            "correct the setting",
        ),
    ] {
        let found = findings(redis).await;
        assert!(
            matches!(found.as_slice(), [one] if one.contains("error") && one.contains(what) && one.contains(advice)),
            "{what}: {found:?}"
        );
        assert!(!found[0].contains("not-the-password"), "{found:?}");
    }
    redis.kill();
    let found = findings(right.clone()).await;
    assert!(
        found[0].contains("error") && found[0].contains("no connection"),
        "{found:?}"
    );
    let found = findings(with(right, json!({"whenUnavailable": "allow"}))).await;
    assert!(
        found[0].contains("warning") && found[0].contains("no connection"),
        "{found:?}"
    );
}
