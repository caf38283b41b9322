//! `/api/v1/sessions`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate_core::agent::AgentId;
use tollgate_core::user::User;
use tollgate_store::ActiveSession;
use uuid::Uuid;

use super::{ORIGIN, TestEnvironment, environment, environment_with, no, refused};
use test_support::token;
use test_support::world::SESSION_KEY;

/// A browser session: the cookie, the CSRF token, the id.
struct Browser {
    cookie: String,
    csrf: String,
    id: String,
}

async fn browser(environment: &TestEnvironment) -> Browser {
    let answer = environment.ask(Method::POST, "alice", "sessions").send().await.unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let field = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    let body: Value = answer.json().await.unwrap();
    let (cookie, attributes) = field.split_once("; ").unwrap();
    assert_eq!(attributes, "Path=/k8s-proxy/; HttpOnly; SameSite=Strict; Max-Age=86400");
    assert!(!body.to_string().contains(cookie.split_once('=').unwrap().1), "{body}");
    Browser {
        cookie: cookie.to_owned(),
        csrf: body["csrfToken"].as_str().unwrap().to_owned(),
        id: body["id"].as_str().unwrap().to_owned(),
    }
}

impl Browser {
    async fn enter(&self, environment: &TestEnvironment, csrf: &str) -> u16 {
        let url = format!("http://{}/k8s-proxy/api/v1/namespaces", environment.world.address());
        let request = reqwest::Client::new().get(url).header("cookie", &self.cookie);
        let request = request.header("gitlab-agent-id", "9999").header("x-csrf-token", csrf);
        request.send().await.unwrap().status().as_u16()
    }
}

async fn revoke(environment: &TestEnvironment, user: &str, id: &str) -> (u16, String) {
    let path = format!("sessions/{}", id.replace(':', "%3A"));
    refused(environment.ask(Method::DELETE, user, &path)).await
}

#[tokio::test]
async fn a_browser_session_lives_until_it_is_ended() {
    let environment = environment().await;
    let session = browser(&environment).await;
    let listed = environment.items("alice", "sessions").await;
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (&listed[0]["id"], &listed[0]["requests"]),
        (&json!(session.id), &json!(0))
    );
    assert_eq!(session.enter(&environment, &session.csrf).await, 200);
    assert_eq!(session.enter(&environment, "wrong").await, 401);
    let listed = environment.items("alice", "sessions").await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["agent"], json!({"id": 9999, "name": "prod"}));
    assert_eq!(listed[0]["requests"], 1);

    let unknown = no(404, "session_not_found");
    assert_eq!(revoke(&environment, "bob", &session.id).await, unknown);
    // dora's permission is for one agent, but a browser session is for all agents.
    assert_eq!(revoke(&environment, "dora", &session.id).await, unknown);
    assert_eq!(session.enter(&environment, &session.csrf).await, 200);
    assert_eq!(revoke(&environment, "alice", &session.id).await, no(200, ""));
    assert_eq!(session.enter(&environment, &session.csrf).await, 401);
    assert_eq!(environment.items("alice", "sessions").await, Vec::<Value>::new());

    let session = browser(&environment).await;
    assert_eq!(revoke(&environment, "carol", &session.id).await, no(200, ""));
    assert_eq!(session.enter(&environment, &session.csrf).await, 401);
    let events = environment.items("carol", "audit?user=*&action=session.revoked").await;
    let actors: Vec<&Value> = events.iter().map(|event| &event["user"]).collect();
    assert_eq!(actors, ["carol", "alice"]);
    assert!(
        !json!(environment.items("carol", "audit?user=*").await)
            .to_string()
            .contains(&session.csrf)
    );
}

#[tokio::test]
async fn sessions_are_for_people_the_directory_knows() {
    let environment = environment().await;
    let post = |user: &str| environment.ask(Method::POST, user, "sessions");
    assert_eq!(refused(post("carol")).await, no(403, "user_not_linked"));
    assert_eq!(refused(post("eve")).await, no(403, "user_blocked"));
    let with = post("alice").json(&json!({"user": "bob"}));
    assert_eq!(refused(with).await, no(400, "bad_content"));
    let text = post("alice").body("{}");
    assert_eq!(refused(text).await, no(415, "bad_content_type"));
    assert_eq!(environment.items("alice", "sessions").await, Vec::<Value>::new());
}

#[tokio::test]
async fn tokens_at_work_are_sessions() {
    let environment = environment().await;
    let made = environment.made().await;
    let (id, bearer) = (made["token"]["id"].as_str().unwrap(), made["bearer"].as_str().unwrap());
    assert_eq!(environment.enter(bearer).await, 200);
    let session = format!("pat:{id}");
    for (user, query) in [
        ("alice", "sessions"),
        ("alice", "sessions?agent=prod"),
        ("carol", "sessions?user=*"),
        ("carol", "sessions?user=alice"),
        ("dora", "sessions?user=*&agent=prod"),
    ] {
        let listed = environment.items(user, query).await;
        let ids: Vec<&Value> = listed.iter().map(|item| &item["id"]).collect();
        assert_eq!(ids, [&json!(session)], "{user} {query}");
        assert_eq!(listed[0]["client"], "127.0.0.1");
    }
    assert_eq!(environment.items("bob", "sessions").await, Vec::<Value>::new());
    assert_eq!(
        environment.items("alice", "sessions?agent=stage").await,
        Vec::<Value>::new()
    );
    let denied = no(403, "permission_denied");
    assert_eq!(refused(environment.get("bob", "sessions?user=alice")).await, denied);
    assert_eq!(
        refused(environment.get("bob", "sessions?user=*&agent=prod")).await,
        denied
    );
    assert_eq!(
        revoke(&environment, "bob", &session).await,
        no(404, "session_not_found")
    );
    assert_eq!(
        revoke(&environment, "alice", "oidc:never-seen").await,
        no(404, "session_not_found")
    );
    assert_eq!(environment.enter(bearer).await, 200);
    assert_eq!(revoke(&environment, "dora", &session).await, no(200, ""));
    assert_eq!(environment.enter(bearer).await, 401);
}

#[tokio::test]
async fn a_token_is_revoked_however_its_id_is_spelled() {
    let environment = environment().await;
    for spell in [|id: &str| id.to_uppercase(), |id: &str| id.replace('-', "")] {
        let made = environment.made().await;
        let (id, bearer) = (made["token"]["id"].as_str().unwrap(), made["bearer"].as_str().unwrap());
        assert_eq!(environment.enter(bearer).await, 200);
        let spelled = format!("pat:{}", spell(id));
        assert_eq!(
            revoke(&environment, "bob", &spelled).await,
            no(404, "session_not_found")
        );
        assert_eq!(environment.enter(bearer).await, 200);
        assert_eq!(revoke(&environment, "alice", &spelled).await, no(200, ""));
        assert_eq!(environment.enter(bearer).await, 401, "{spelled}");
        let events = environment.items("carol", "audit?user=*&action=token.revoked").await;
        assert_eq!(events[0]["session"], format!("pat:{id}"));
    }
}

/// Opens a log request whose content does not end.
async fn log(environment: &TestEnvironment, bearer: &str) -> TcpStream {
    let mut stream = TcpStream::connect(environment.world.address()).await.unwrap();
    let head = format!(
        "POST /k8s-proxy/api/v1/namespaces/default/pods/web/log HTTP/1.1\r\nHost: tollgate\r\n\
         Authorization: Bearer {bearer}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_have_open_ends_when_they_are_blocked() {
    let environment = environment().await;
    let made = environment.made().await;
    let hers = made["bearer"].as_str().unwrap();
    let answer = environment.token("bob", &json!({"name": "ci", "agent": 9998})).await;
    let other: Value = answer.json().await.unwrap();
    let (mut open, mut stays) = (
        log(&environment, hers).await,
        log(&environment, other["bearer"].as_str().unwrap()).await,
    );
    let streams = async |user: &str| {
        let items = environment.items("carol", &format!("sessions?user={user}")).await;
        items
            .iter()
            .filter_map(|item| item["openStreams"].as_u64())
            .sum::<u64>()
    };
    let both = || async { (streams("alice").await, streams("bob").await) == (1, 1) };
    environment.world.until("both logs are open", both).await;

    // The user directory comes after the three objects of every setup and the cluster.
    let file = environment.world.path("state/004.yaml");
    assert!(std::fs::read_to_string(&file).unwrap().contains("UserDirectory"));
    std::fs::write(file, super::people_with("blocked").to_string()).unwrap();
    let mut answer = Vec::new();
    let read = open.read_to_end(&mut answer);
    tokio::time::timeout(Duration::from_secs(20), read)
        .await
        .unwrap()
        .unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert_eq!(environment.enter(hers).await, 401);
    assert_eq!(streams("bob").await, 1);
    let mut byte = [0];
    assert!(stays.read(&mut byte).now_or_never().is_none(), "bob's is open");
    let closed = || async {
        environment
            .items("carol", "audit?user=*&action=stream.closed")
            .await
            .len()
            == 1
    };
    environment.world.until("the audit event", closed).await;
    let events = environment.items("carol", "audit?user=*&action=stream.closed").await;
    assert_eq!(events[0]["details"]["reason"], "access withdrawn");
    assert_eq!(events[0]["user"], "alice");
}

#[tokio::test]
async fn pages_of_allowed_origins_may_make_sessions() {
    let environment = environment_with(json!({"publicURL": "https://t.example/base/k8s-proxy/"})).await;
    let url = format!("http://{}/api/v1/sessions", environment.world.address());
    let preflight = |origin: &str, url: &str| {
        let request = reqwest::Client::new().request(Method::OPTIONS, url);
        let request = request
            .header("origin", origin)
            .header("access-control-request-method", "POST");
        request.header("access-control-request-headers", "authorization").send()
    };
    let answer = preflight(ORIGIN, &url).await.unwrap();
    assert_eq!(answer.status(), 200);
    let fields = answer.headers();
    assert_eq!(fields["access-control-allow-origin"], ORIGIN);
    assert_eq!(fields["access-control-allow-credentials"], "true");
    assert_eq!(fields["access-control-allow-headers"], "authorization");
    for (origin, url) in [
        ("https://evil.example", &url),
        (ORIGIN, &format!("http://{}/api/v1/tokens", environment.world.address())),
    ] {
        let answer = preflight(origin, url).await.unwrap();
        assert_ne!(answer.status(), 200);
        assert!(
            !answer.headers().contains_key("access-control-allow-origin"),
            "{origin} {url}"
        );
    }

    // With a bearer token, and with the cookie that a browser adds by itself.
    let bearer = environment
        .ask(Method::POST, "alice", "sessions")
        .header("origin", ORIGIN);
    let answer = bearer.send().await.unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers()["access-control-allow-origin"], ORIGIN);
    let field = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(
        field.contains("; Path=/base/k8s-proxy/;") && field.ends_with("; Secure"),
        "{field}"
    );
    let cookie = format!("argocd.token={}", token::session(SESSION_KEY, "alice"));
    let own = format!("http://{}", environment.world.address());
    for (origin, expected) in [(own.as_str(), 201), ("https://evil.example", 403)] {
        let request = reqwest::Client::new().post(&url).header("cookie", &cookie);
        let answer = request.header("origin", origin).send().await.unwrap();
        assert_eq!(answer.status(), expected, "{origin}");
        assert!(
            !answer.headers().contains_key("access-control-allow-origin"),
            "{origin}"
        );
    }
}

/// As for tokens: pages have all sessions that the caller may see, and no others.
#[tokio::test]
async fn sessions_of_others_hide_none_of_those_one_may_see() {
    let environment = environment().await;
    let store = &environment.world.running.services().unwrap().store;
    let now = jiff::Timestamp::now();
    let seen = |session: String, (id, username): (i64, &str), agent: i64| ActiveSession {
        session,
        replica: Uuid::from_u128(1),
        user: User {
            id,
            username: username.to_owned(),
        },
        agent_id: AgentId::new(agent).unwrap(),
        first_at: now,
        last_at: now,
        client: "192.0.2.1".to_owned(),
        requests: 1,
        open_streams: 0,
        expires_at: None,
    };
    // The sessions of others come first in every order.
    let others = (0..1_200).map(|number| seen(format!("oidc:a{number}"), (102, "bob"), 9998));
    let mine = (0..5).map(|number| seen(format!("oidc:b{number}"), (101, "alice"), 9999));
    store
        .upsert_active_sessions(&others.chain(mine).collect::<Vec<_>>())
        .await
        .unwrap();
    let unused = browser(&environment).await;

    let pages = async |user: &str, query: &str| {
        let (mut pages, mut next) = (Vec::new(), String::new());
        loop {
            let answer = environment.get(user, &format!("{query}{next}")).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{user} {query}{next}");
            let page: Value = answer.json().await.unwrap();
            let items = page["items"].as_array().unwrap().iter();
            let mut ids: Vec<_> = items.map(|item| item["id"].as_str().unwrap().to_owned()).collect();
            ids.sort_unstable();
            let text = page["continue"].as_str().map(str::to_owned);
            if let Some(text) = &text {
                let cursor = String::from_utf8(URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap();
                assert!(
                    cursor.contains(ids.last().unwrap()),
                    "the cursor names an item of the page: {cursor}"
                );
            }
            pages.push(ids);
            match text {
                Some(text) => next = format!("&continue={text}"),
                None => return pages,
            }
        }
    };
    let mine = ["oidc:b0", "oidc:b1", "oidc:b2", "oidc:b3", "oidc:b4"];
    assert_eq!(pages("dora", "sessions?user=*").await, [mine]);
    assert_eq!(pages("dora", "sessions?user=*&limit=5").await, [mine]);
    let paged = pages("dora", "sessions?user=*&limit=3").await;
    assert_eq!(paged, [&mine[..3], &mine[3..]]);
    assert_eq!(pages("dora", "sessions?user=alice&agent=prod").await, [mine]);
    let own = pages("alice", "sessions?limit=4").await;
    assert_eq!(own, [&mine[..4], &[unused.id.as_str(), "oidc:b4"]]);
    let all = pages("carol", "sessions?user=*").await;
    assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [1_000, 206]);
    let mut all = all.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 1_206);
    let denied = no(403, "permission_denied");
    assert_eq!(
        refused(environment.get("dora", "sessions?user=*&agent=stage")).await,
        denied
    );
    assert_eq!(refused(environment.get("bob", "sessions?user=*")).await, denied);
}
