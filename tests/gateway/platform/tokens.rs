//! `/api/v1/tokens`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use serde_json::{Value, json};
use tollgate_core::agent::AgentId;
use tollgate_core::user::User;
use tollgate_store::{SecretHash, Token};
use uuid::Uuid;

use super::{TestEnvironment, environment, environment_with, no, refused};

const DAY: i64 = 24 * 60 * 60;

fn life(token: &Value) -> i64 {
    let at = |key: &str| -> jiff::Timestamp { token[key].as_str().unwrap().parse().unwrap() };
    at("expiresAt").as_second() - at("createdAt").as_second()
}

async fn revoke(environment: &TestEnvironment, user: &str, id: &Value) -> (u16, String) {
    let path = format!("tokens/{}", id.as_str().unwrap());
    refused(environment.ask(Method::DELETE, user, &path)).await
}

#[tokio::test]
async fn a_token_is_shown_once_and_lets_its_owner_in() {
    let environment = environment().await;
    let answer = environment
        .token("alice", &json!({"name": " laptop ", "agent": "prod"}))
        .await;
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let made: Value = answer.json().await.unwrap();
    let secret = made["secret"].as_str().unwrap();
    assert!(tollgate_identity::access::secret::is_token(secret), "{secret}");
    let bearer = made["bearer"].as_str().unwrap();
    assert_eq!(bearer, format!("pat:9999:{secret}"));
    let token = &made["token"];
    assert_eq!(token["name"], "laptop");
    assert_eq!(token["agent"], json!({"id": 9999, "name": "prod"}));
    assert_eq!(token["user"], json!({"id": 101, "username": "alice"}));
    assert_eq!(
        (&token["scopes"], &token["state"]),
        (&json!(["k8s_proxy"]), &json!("active"))
    );
    assert!((30 * DAY - 1..=30 * DAY).contains(&life(token)), "{token}");

    assert_eq!(environment.enter(bearer).await, 200);
    let seen = environment.api.seen();
    // The gateway itself may have sent requests before.
    let entered = seen.iter().find(|seen| seen.target == "/api/v1/namespaces").unwrap();
    assert_eq!(entered.value("impersonate-user"), Some("gitlab:user:alice"));
    assert_eq!(environment.enter(&format!("pat:9998:{secret}")).await, 401);
    assert_eq!(environment.enter(&format!("{bearer}A")).await, 401);

    // The secret is shown only once and appears nowhere else.
    let listed = environment.items("alice", "tokens").await;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["id"], token["id"]);
    let audit = environment.items("alice", "audit").await;
    assert!(
        audit.iter().any(|event| event["action"] == "token.created"),
        "{audit:?}"
    );
    let log = environment.world.admin("/decisions?most=100").await;
    assert!(log.contains("/api/v1/tokens"), "{log}");
    let database = std::fs::read(environment.world.path("tollgate.db")).unwrap();
    let random = secret.get(10..30).unwrap();
    for text in [json!(listed).to_string(), json!(audit).to_string(), log] {
        assert!(!text.contains(random), "{text}");
    }
    assert!(!database.windows(random.len()).any(|part| part == random.as_bytes()));
}

#[tokio::test]
async fn token_lifetimes_are_bounded() {
    let environment = environment().await;
    for (content, expected) in [
        (json!({"lifetime": "48h"}), Ok(2 * DAY)),
        (json!({"lifetime": "2160h"}), Ok(90 * DAY)),
        (json!({"lifetime": "2161h"}), Err("bad_lifetime")),
        (json!({"lifetime": "0"}), Err("bad_lifetime")),
        (json!({"lifetime": "-1h"}), Err("bad_content")),
        (json!({"expiresAt": "2020-01-01T00:00:00Z"}), Err("bad_lifetime")),
        (json!({"expiresAt": "2999-01-01T00:00:00Z"}), Err("bad_lifetime")),
        (json!({"expiresAt": "soon"}), Err("bad_content")),
    ] {
        let mut asked = json!({"name": "n", "agent": 9999});
        asked
            .as_object_mut()
            .unwrap()
            .extend(content.as_object().unwrap().clone());
        let answer = environment.token("alice", &asked).await;
        let status = answer.status().as_u16();
        let body: Value = answer.json().await.unwrap();
        match expected {
            Ok(seconds) => {
                assert_eq!(status, 201, "{asked} {body}");
                assert!((seconds - 1..=seconds).contains(&life(&body["token"])), "{body}");
            }
            Err(reason) => assert_eq!((status, &body["reason"]), (400, &json!(reason)), "{asked}"),
        }
    }
}

#[tokio::test]
async fn content_is_read_strictly() {
    let environment = environment().await;
    for (content, reason) in [
        (json!({"name": "n", "agent": 9999, "scopes": ["api"]}), "bad_content"),
        (json!({"name": "", "agent": 9999}), "bad_content"),
        (json!({"name": "n"}), "bad_content"),
        (json!([]), "bad_content"),
    ] {
        let post = environment.ask(Method::POST, "alice", "tokens").json(&content);
        assert_eq!(refused(post).await, no(400, reason), "{content}");
    }
    let good = json!({"name": "n", "agent": 9999}).to_string();
    let post = || environment.ask(Method::POST, "alice", "tokens");
    let form = post().header("content-type", "text/plain").body(good.clone());
    assert_eq!(refused(form).await, no(415, "bad_content_type"));
    let long = json!({"name": "n".repeat(20_000), "agent": 9999});
    assert_eq!(refused(post().json(&long)).await, no(413, "content_too_large"));
    assert_eq!(environment.items("alice", "tokens").await, Vec::<Value>::new());
}

#[tokio::test]
async fn tokens_are_for_agents_shared_with_their_owner() {
    let environment = environment().await;
    for (user, agent) in [
        ("bob", json!("prod")),
        ("alice", json!("stage")),
        ("alice", json!("shut")),
        ("alice", json!(1)),
        ("alice", json!("none")),
        ("alice", json!(-1)),
    ] {
        let post = environment.ask(Method::POST, user, "tokens");
        let answer = post.json(&json!({"name": "n", "agent": agent})).send().await.unwrap();
        let body: Value = answer.json().await.unwrap();
        // The text is the same whether or not the agent exists.
        let name = agent.to_string();
        let expected = format!(
            "there is no agent `{}` that is shared with `{user}`",
            name.trim_matches('"')
        );
        assert_eq!(
            (&body["reason"], &body["error"]),
            (&json!("agent_not_found"), &json!(expected))
        );
    }
    let post = |user, agent: Value| {
        environment
            .ask(Method::POST, user, "tokens")
            .json(&json!({"name": "n", "agent": agent}))
    };
    assert_eq!(refused(post("bob", json!("mapped"))).await, no(409, "id_tokens_only"));
    assert_eq!(refused(post("carol", json!("prod"))).await, no(403, "user_not_linked"));
    assert_eq!(refused(post("eve", json!("prod"))).await, no(403, "user_blocked"));
    for number in [json!("9999"), json!(9999)] {
        let answer = post("alice", number).send().await.unwrap();
        assert_eq!(answer.status(), 201);
        let made: Value = answer.json().await.unwrap();
        assert_eq!(made["token"]["agent"], json!({"id": 9999, "name": "prod"}));
    }
    assert_eq!(refused(post("alice", json!(9995))).await, no(404, "agent_not_found"));
}

#[tokio::test]
async fn tokens_for_others_need_a_right() {
    let environment = environment().await;
    let for_user = |user: &str, agent: &str| json!({"name": "n", "agent": agent, "user": user});
    let post = |by: &str, content: Value| environment.ask(Method::POST, by, "tokens").json(&content);
    for by in ["carol", "dora", "alice"] {
        let answer = post(by, for_user("alice", "prod")).send().await.unwrap();
        assert_eq!(answer.status(), 201, "{by}");
        let made: Value = answer.json().await.unwrap();
        assert_eq!(made["token"]["user"]["username"], "alice");
        assert_eq!(environment.enter(made["bearer"].as_str().unwrap()).await, 200);
    }
    let actors: Vec<Value> = environment
        .items("carol", "audit?user=*&action=token.created")
        .await
        .iter()
        .map(|event| event["user"].clone())
        .collect();
    assert_eq!(actors, ["alice", "dora", "carol"]);
    let denied = no(403, "permission_denied");
    assert_eq!(refused(post("bob", for_user("alice", "prod"))).await, denied);
    assert_eq!(refused(post("bob", for_user("nobody", "none"))).await, denied);
    assert_eq!(refused(post("dora", for_user("bob", "stage"))).await, denied);
    assert_eq!(
        refused(post("carol", for_user("nobody", "prod"))).await,
        no(404, "user_not_found")
    );
    assert_eq!(
        refused(post("carol", for_user("bob", "prod"))).await,
        no(404, "agent_not_found")
    );
    assert_eq!(
        refused(post("carol", for_user("eve", "prod"))).await,
        no(403, "user_blocked")
    );
}

#[tokio::test]
async fn lists_show_what_one_may_see() {
    let environment = environment().await;
    environment.made().await;
    let bobs = environment.token("bob", &json!({"name": "ci", "agent": 9998})).await;
    assert_eq!(bobs.status(), 201);
    let names = |items: Vec<Value>| -> Vec<String> {
        items
            .iter()
            .map(|item| item["name"].as_str().unwrap().to_owned())
            .collect()
    };
    for (user, query, expected) in [
        ("alice", "tokens", &["laptop"][..]),
        ("alice", "tokens?agent=prod", &["laptop"]),
        ("alice", "tokens?agent=9999", &["laptop"]),
        ("alice", "tokens?agent=stage", &[]),
        ("alice", "tokens?agent=none", &[]),
        ("bob", "tokens?user=bob", &["ci"]),
        ("carol", "tokens?user=*", &["ci", "laptop"]),
        ("carol", "tokens?user=alice", &["laptop"]),
        ("carol", "tokens?user=nobody", &[]),
        ("carol", "tokens?user=*&agent=stage", &["ci"]),
        ("dora", "tokens?user=*", &["laptop"]),
        ("dora", "tokens?user=*&agent=prod", &["laptop"]),
    ] {
        assert_eq!(names(environment.items(user, query).await), expected, "{user} {query}");
    }
    for (user, query) in [
        ("alice", "tokens?user=bob"),
        ("alice", "tokens?user=nobody"),
        ("alice", "tokens?user=*"),
        ("dora", "tokens?user=bob"),
        ("dora", "tokens?user=*&agent=stage"),
    ] {
        assert_eq!(
            refused(environment.get(user, query)).await,
            no(403, "permission_denied"),
            "{user} {query}"
        );
    }
    assert_eq!(
        refused(environment.get("carol", "tokens")).await,
        no(403, "user_not_linked")
    );
    assert_eq!(
        refused(environment.get("alice", "tokens?before=1")).await,
        no(400, "bad_query")
    );
}

/// Gets the token names of each page. The cursors between pages must not reveal other tokens.
async fn pages(environment: &TestEnvironment, user: &str, query: &str) -> Vec<Vec<String>> {
    let (mut pages, mut next) = (Vec::new(), String::new());
    loop {
        let answer = environment.get(user, &format!("{query}{next}")).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{user} {query}{next}");
        let page: Value = answer.json().await.unwrap();
        let items = page["items"].as_array().unwrap();
        pages.push(
            items
                .iter()
                .map(|item| item["name"].as_str().unwrap().to_owned())
                .collect(),
        );
        let members = page.as_object().unwrap().keys();
        assert!(
            members.clone().eq(["continue", "items"]) || members.eq(["items"]),
            "{page}"
        );
        let Some(text) = page["continue"].as_str() else {
            return pages;
        };
        let cursor = String::from_utf8(URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap();
        let last = items.last().unwrap();
        let expected = format!("[{},{}]", last["createdAt"], last["id"]);
        assert_eq!(cursor, expected, "the cursor names only the last item");
        next = format!("&continue={text}");
    }
}

/// Creates five old tokens of alice for `prod`, and 1,200 newer ones of others for `stage`.
pub(super) async fn many(environment: &TestEnvironment) {
    let store = &environment.world.running.services().unwrap().store;
    let now = jiff::Timestamp::now();
    let token = |name: String, (id, username): (i64, &str), agent: i64, age: u64| Token {
        id: Uuid::now_v7(),
        name,
        user: User {
            id,
            username: username.to_owned(),
        },
        agent_id: AgentId::new(agent).unwrap(),
        agent: None,
        scopes: vec!["k8s_proxy".to_owned()],
        created_at: now - Duration::from_secs(age),
        expires_at: now + Duration::from_secs(3_600),
        revoked_at: None,
        last_used_at: None,
    };
    let old = (0..5).map(|number| token(format!("old-{number}"), (101, "alice"), 9999, 9_000 + number));
    // Two owners, because one person may have at most 1,000 tokens.
    let new = (0..1_200).map(|number| {
        let owner = if number % 2 == 0 { (102, "bob") } else { (104, "gone") };
        token(format!("new-{number}"), owner, 9998, number)
    });
    let import = old.chain(new).map(async |token| {
        let hash = SecretHash::of(&token.id.to_string().into());
        store.import_token(&token, hash).await.unwrap();
    });
    futures_util::future::join_all(import).await;
}

/// A person who administers only one agent sees all of its tokens, even behind many others.
#[tokio::test]
async fn tokens_of_others_hide_none_of_those_one_may_see() {
    let environment = environment().await;
    many(&environment).await;
    let old = ["old-0", "old-1", "old-2", "old-3", "old-4"];
    for query in [
        "tokens?user=*",
        "tokens?user=*&agent=prod",
        "tokens?user=alice",
        "tokens?user=*&limit=5",
    ] {
        assert_eq!(pages(&environment, "dora", query).await, [old], "{query}");
    }
    let paged = pages(&environment, "dora", "tokens?user=*&limit=2").await;
    assert_eq!(paged, [&old[..2], &old[2..4], &old[4..]]);
    assert_eq!(pages(&environment, "alice", "tokens?limit=5").await, [old]);

    let all = pages(&environment, "carol", "tokens?user=*").await;
    assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [1_000, 205]);
    let mut names = all.concat();
    assert_eq!(names[0], "new-0");
    assert_eq!(names[1_200..], old);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 1_205);
    // This includes tokens of a person who is no longer in the directory.
    let gone = pages(&environment, "carol", "tokens?user=gone").await.concat();
    assert_eq!(gone.len(), 600);
}

/// The twin: lists do not reveal other people's tokens, nor whether and how many there are.
#[tokio::test]
async fn lists_tell_nothing_of_tokens_of_others() {
    let environment = environment().await;
    many(&environment).await;
    let all = environment.get("carol", "tokens?user=*&limit=3").send().await.unwrap();
    let all: Value = all.json().await.unwrap();
    // A cursor after a token of somebody else.
    let text = all["continue"].as_str().unwrap();
    let denied = no(403, "permission_denied");
    for (user, query) in [
        ("dora", "tokens?user=*&agent=stage"),
        ("dora", "tokens?user=bob&agent=stage"),
        ("dora", "tokens?user=bob"),
        ("bob", "tokens?user=*"),
        ("bob", &format!("tokens?user=*&continue={text}")),
        ("bob", "sessions?user=*&limit=1"),
    ] {
        assert_eq!(refused(environment.get(user, query)).await, denied, "{user} {query}");
    }
    let stage = format!("tokens?user=*&agent=stage&continue={text}");
    assert_eq!(pages(&environment, "dora", &stage).await, [[] as [&str; 0]]);
    let behind = format!("tokens?user=*&continue={text}");
    assert_eq!(pages(&environment, "dora", &behind).await.concat().len(), 5);
    let sessions = URL_SAFE_NO_PAD.encode(r#"{"atWork":["oidc:a",9999]}"#);
    let nul = URL_SAFE_NO_PAD.encode(r#"{"atWork":["oidc:\u0000",9999]}"#);
    for wrong in [
        "tokens?continue=1",
        "tokens?continue=",
        &format!("tokens?continue={text}%3D"),
        &format!("tokens?continue={sessions}"),
        &format!("sessions?continue={text}"),
        &format!("sessions?continue={nul}"),
        &format!("tokens?continue={}", "x".repeat(2_000)),
        &format!("tokens?continue={text}&continue={text}"),
        &format!("audit?continue={text}"),
        "tokens?limit=1001",
    ] {
        assert_eq!(
            refused(environment.get("alice", wrong)).await,
            no(400, "bad_query"),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn who_revokes_a_token_must_own_or_administer_it() {
    let environment = environment().await;
    let made = environment.made().await;
    let (id, bearer) = (&made["token"]["id"], made["bearer"].as_str().unwrap());
    assert_eq!(environment.enter(bearer).await, 200);
    let unknown = no(404, "token_not_found");
    assert_eq!(revoke(&environment, "bob", id).await, unknown);
    assert_eq!(revoke(&environment, "eve", id).await, no(403, "user_blocked"));
    let other = json!("0190d4a8-1c1c-7000-8000-000000000001");
    assert_eq!(revoke(&environment, "alice", &other).await, unknown);
    assert_eq!(environment.enter(bearer).await, 200);

    // Revoking twice is the same as once. After that, the token is refused despite caches.
    for _ in 0..2 {
        assert_eq!(revoke(&environment, "alice", id).await, no(200, ""));
    }
    assert_eq!(environment.enter(bearer).await, 401);
    let listed = environment.items("alice", "tokens").await;
    assert_eq!(listed[0]["state"], "revoked");
    assert!(listed[0]["revokedAt"].is_string());

    for by in ["carol", "dora"] {
        let made = environment.made().await;
        let bearer = made["bearer"].as_str().unwrap();
        assert_eq!(environment.enter(bearer).await, 200);
        assert_eq!(revoke(&environment, by, &made["token"]["id"]).await, no(200, ""));
        assert_eq!(environment.enter(bearer).await, 401);
    }
    let events = environment.items("carol", "audit?user=*&action=token.revoked").await;
    let actors: Vec<&Value> = events.iter().map(|event| &event["user"]).collect();
    assert_eq!(actors, ["dora", "carol", "alice"]);
}

#[tokio::test]
async fn tokens_of_a_remote_platform_are_not_created_here() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ=").unwrap();
    let remote = json!({"url": "http://127.0.0.1:1", "secretFile": secret});
    let environment = environment_with(json!({"authorizer": {"remote": remote}})).await;
    let post = |path: &str| environment.ask(Method::POST, "alice", path);
    let token = post("tokens").json(&json!({"name": "n", "agent": 9999}));
    assert_eq!(refused(token).await, no(409, "platform_elsewhere"));
    assert_eq!(refused(post("sessions")).await, no(409, "platform_elsewhere"));
}
