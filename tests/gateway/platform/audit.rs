//! `GET /api/v1/audit`.

use reqwest::Method;
use serde_json::{Value, json};

use super::{environment, no, refused};
use test_support::kubernetes::eventually;

fn actions(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["action"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn events_are_for_those_they_concern() {
    let environment = environment().await;
    let made = environment.made().await;
    let bobs = environment.token("bob", &json!({"name": "ci", "agent": 9998})).await;
    assert_eq!(bobs.status(), 201);
    assert_eq!(environment.enter(made["bearer"].as_str().unwrap()).await, 200);
    assert_eq!(environment.enter("pat:9999:tgpat-wrong").await, 401);

    let mine = environment.items("alice", "audit?action=token.created").await;
    assert_eq!(actions(&mine), ["token.created"]);
    assert_eq!((&mine[0]["user"], &mine[0]["userId"]), (&json!("alice"), &json!(101)));
    assert_eq!(mine[0]["agent"], json!({"id": 9999, "name": "prod"}));
    assert_eq!(
        mine[0]["session"],
        format!("pat:{}", made["token"]["id"].as_str().unwrap())
    );
    for (user, query, expected) in [
        ("carol", "audit?user=*&action=token.created", vec!["bob", "alice"]),
        ("carol", "audit?user=bob&action=token.created", vec!["bob"]),
        ("carol", "audit?user=*&agent=prod&action=token.created", vec!["alice"]),
        ("dora", "audit?user=*&action=token.created", vec!["alice"]),
        (
            "dora",
            "audit?user=alice&agent=9999&action=token.created",
            vec!["alice"],
        ),
        ("alice", "audit?agent=stage", vec![]),
        ("alice", "audit?agent=none", vec![]),
        ("dora", "audit?user=*&action=access.denied", vec![""]),
    ] {
        let items = environment.items(user, query).await;
        let users: Vec<&str> = items.iter().map(|item| item["user"].as_str().unwrap()).collect();
        assert_eq!(users, expected, "{user} {query}");
    }
    for (user, query) in [
        ("alice", "audit?user=bob"),
        ("alice", "audit?user=*"),
        ("alice", "audit?user=*&agent=prod"),
        ("alice", "audit?user=*&agent=none"),
        ("dora", "audit?user=*&agent=stage"),
    ] {
        assert_eq!(
            refused(environment.get(user, query)).await,
            no(403, "permission_denied"),
            "{user} {query}"
        );
    }
    assert_eq!(
        refused(environment.get("carol", "audit?user=nobody")).await,
        no(404, "user_not_found")
    );
    assert_eq!(
        refused(environment.get("alice", "audit?user=nobody")).await,
        no(403, "permission_denied")
    );
    assert_eq!(
        refused(environment.get("carol", "audit")).await,
        no(403, "user_not_linked")
    );
}

#[tokio::test]
async fn events_come_in_pages() {
    let environment = environment().await;
    for _ in 0..3 {
        environment.made().await;
    }
    let all = environment.items("alice", "audit").await;
    assert_eq!(actions(&all), ["token.created"; 3]);
    let first = environment.items("alice", "audit?limit=2").await;
    assert_eq!(json!(first), json!(all[..2]));
    let before = first[1]["id"].as_str().unwrap();
    let second = environment
        .items("alice", &format!("audit?limit=2&before={before}"))
        .await;
    assert_eq!(json!(second), json!(all[2..]));
    for query in [
        "audit?limit=0",
        "audit?limit=1001",
        "audit?before=1",
        "audit?since=1",
        "audit?user-agent=x",
    ] {
        assert_eq!(
            refused(environment.get("alice", query)).await,
            no(400, "bad_query"),
            "{query}"
        );
    }
}

/// A query may hold secrets, so only the cluster gets it.
#[tokio::test]
async fn queries_are_recorded_nowhere() {
    const SECRET: &str = "in-the-query";
    let environment = environment().await;
    let made = environment.made().await;
    let bearer = made["bearer"].as_str().unwrap();
    let list = format!("/api/v1/namespaces?labelSelector={SECRET}");
    let create = format!("/api/v1/namespaces/web/configmaps?fieldManager={SECRET}");
    assert_eq!(environment.enter_with(Method::GET, bearer, &list).await, 200);
    assert_eq!(environment.enter_with(Method::POST, bearer, &create).await, 200);
    assert_eq!(
        environment.enter_with(Method::GET, "pat:9999:tgpat-wrong", &list).await,
        401
    );
    let seen = environment.api.seen();
    for target in [&list, &create] {
        assert!(seen.iter().any(|seen| seen.target == *target), "{target}");
    }

    let queries = [
        ("alice", "audit?action=access.allowed"),
        ("dora", "audit?user=*&action=access.denied"),
    ];
    for (user, query) in queries {
        let rows = eventually("rows of the audit log", async || {
            let rows = environment.items(user, query).await;
            (!rows.is_empty()).then_some(rows)
        })
        .await;
        assert!(!json!(rows).to_string().contains(SECRET), "{rows:?}");
    }
    let log = environment.world.admin("/decisions?most=100").await;
    assert!(log.contains("/api/v1/namespaces/web/configmaps"), "{log}");
    let metrics = environment.world.admin("/metrics").await;
    assert!(!log.contains(SECRET) && !metrics.contains(SECRET), "{log}\n{metrics}");
    for file in ["tollgate.db", "tollgate.db-wal"] {
        let content = std::fs::read(environment.world.path(file)).unwrap();
        let mut parts = content.windows(SECRET.len());
        assert!(!parts.any(|part| part == SECRET.as_bytes()), "{file}");
    }
}
