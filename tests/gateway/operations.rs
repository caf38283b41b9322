//! The API about the gateway itself: what callers learn of their own decisions and permissions, and what
//! needs a right.

use reqwest::Method;
use serde_json::{Value, json};

use crate::clusters::ask;
use test_support::world::{Setup, World, application, map, project};

/// alice has every right here; bob has a role, and none of these rights.
const POLICY: &str = "p, alice, decisions, get, *, allow\np, alice, rbac, get, *, allow\n\
                      p, alice, plugins, get, *, allow\np, alice, system, get, *, allow\n\
                      p, role:shop, projects, get, shop, allow\np, role:shop, applications, get, shop/cart, allow\n\
                      p, role:ops, applications, sync, shop/*, allow\ng, bob, role:shop\n";

async fn start() -> World {
    let accounts = ["alice", "bob"].map(|name| (format!("accounts.{name}"), "login".to_owned()));
    let setup = Setup {
        argocd_cm: accounts.into_iter().collect(),
        rbac_cm: map(&[("policy.csv", POLICY)]),
        objects: vec![
            project("shop", json!([{"server": "*", "namespace": "*"}])),
            application("cart", "shop"),
            application("hidden", "shop"),
        ],
        settings: json!({"applications": {}}),
        ..Setup::default()
    };
    setup.start().await
}

async fn get(world: &World, user: &str, path: &str) -> (u16, Value) {
    send(ask(world, Method::GET, user, path)).await
}

async fn send(request: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

#[tokio::test]
async fn what_is_about_others_needs_a_right() {
    let world = start().await;
    for (path, resource) in [
        ("/api/v1/decisions?user=*", "decisions"),
        ("/api/v1/decisions?user=alice", "decisions"),
        ("/api/v1/rbac/explain?resource=projects&action=get&user=alice", "rbac"),
        ("/api/v1/plugins", "plugins"),
        ("/api/v1/system", "system"),
    ] {
        let (status, body) = get(&world, "bob", path).await;
        assert_eq!(
            (status, &body["reason"]),
            (403, &json!("permission_denied")),
            "{path}: {body}"
        );
        assert!(
            body["error"].as_str().unwrap().contains(&format!("`{resource}, get`")),
            "{body}"
        );
        let (status, body) = get(&world, "alice", path).await;
        assert_eq!(status, 200, "{path}: {body}");
        // Nobody is let in without a credential.
        let answer = reqwest::get(format!("http://{}{path}", world.address())).await.unwrap();
        assert_eq!(answer.status(), 401, "{path}");
    }
    let (_, system) = get(&world, "alice", "/api/v1/system").await;
    assert_eq!((&system["ready"], &system["findings"]), (&json!(true), &json!([])));
}

#[tokio::test]
async fn own_decisions_are_listed_without_what_operators_know() {
    let world = start().await;
    assert_eq!(get(&world, "bob", "/api/v1/system").await.0, 403);
    assert_eq!(get(&world, "alice", "/api/v1/system").await.0, 200);
    let (_, mine) = get(&world, "bob", "/api/v1/decisions?outcome=denied").await;
    let items = mine["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{mine}");
    let check = json!({"resource": "system", "action": "get", "object": "*", "allowed": false});
    assert_eq!(
        (&items[0]["reason"], &items[0]["checks"]),
        (&json!("permission_denied"), &json!([check]))
    );
    assert_eq!(items[0].get("client"), None, "{mine}");
    let (_, all) = get(&world, "alice", "/api/v1/decisions?user=*&limit=1000").await;
    let all = all["items"].as_array().unwrap().clone();
    assert!(
        all.iter()
            .any(|item| item["principal"]["username"] == "bob" && item.get("client").is_some()),
        "{all:?}"
    );
    let id = items[0]["decision_id"].as_str().unwrap();
    assert_eq!(get(&world, "bob", &format!("/api/v1/decisions/{id}")).await.0, 200);
    assert_eq!(get(&world, "alice", &format!("/api/v1/decisions/{id}")).await.0, 200);
    let own = all
        .iter()
        .find(|item| item["principal"]["username"] == "alice")
        .unwrap();
    let own = own["decision_id"].as_str().unwrap();
    assert_eq!(get(&world, "bob", &format!("/api/v1/decisions/{own}")).await.0, 404);
    for (query, part) in [
        ("limit=0", "a `limit` outside of 1 to 1000"),
        ("pages=maybe", "neither `true` nor `false`"),
        ("since=now", "other than `user`, `outcome`"),
        ("outcome=", "of 0 bytes"),
    ] {
        let (status, body) = get(&world, "bob", &format!("/api/v1/decisions?{query}")).await;
        assert_eq!((status, &body["reason"]), (400, &json!("bad_query")), "{query}");
        assert!(body["error"].as_str().unwrap().contains(part), "{query}: {body}");
    }
}

#[tokio::test]
async fn permissions_are_explained_without_rows_of_others() {
    let world = start().await;
    let question = "/api/v1/rbac/explain?resource=applications&action=sync&object=shop/cart";
    let (status, own) = get(&world, "bob", question).await;
    assert_eq!(
        (status, &own["allowed"], &own["why"]),
        (200, &json!(false), &json!("no_rule")),
        "{own}"
    );
    // bob's role has a row with another action; the row of `role:ops` is not his to see.
    let misses = own["near_misses"].as_array().unwrap();
    assert!(
        misses
            .iter()
            .all(|miss| miss["rule"]["text"].as_str().unwrap().contains("role:shop")),
        "{own}"
    );
    assert!(!own.to_string().contains("role:ops"), "{own}");
    // Nor where the policy is.
    assert!(misses.iter().all(|miss| miss["rule"]["location"] == ""), "{own}");
    let allowed = "/api/v1/rbac/explain?resource=applications&action=get&object=shop/cart";
    let (_, by_row) = get(&world, "bob", allowed).await;
    assert!(
        by_row["allowed"] == true && by_row["rule"]["text"] != "" && !by_row.to_string().contains(".yaml"),
        "{by_row}"
    );
    let (_, by_row) = get(&world, "alice", &format!("{allowed}&user=bob")).await;
    assert!(
        by_row["rule"]["location"].as_str().unwrap().contains(".yaml:"),
        "{by_row}"
    );
    let (_, all) = get(&world, "alice", &format!("{question}&user=bob")).await;
    assert_eq!((&all["user"], &all["allowed"]), (&json!("bob"), &json!(false)));
    assert!(all.to_string().contains("role:ops"), "{all}");
    let (_, with_group) = get(&world, "alice", &format!("{question}&user=x&group=role:ops")).await;
    assert_eq!(with_group["user"], "x");
    for (query, part) in [
        ("resource=projects", "lacks `resource` or `action`"),
        ("resource=projects&action=get&group=a", "a `group` but no `user`"),
    ] {
        let (status, body) = get(&world, "alice", &format!("/api/v1/rbac/explain?{query}")).await;
        assert_eq!(status, 400, "{body}");
        assert!(body["error"].as_str().unwrap().contains(part), "{body}");
    }
}

#[tokio::test]
async fn a_preview_shows_what_the_caller_may_see_and_writes_nothing() {
    let world = start().await;
    let before: Vec<_> = std::fs::read_dir(world.path("state"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let contents = || {
        before
            .iter()
            .map(|file| std::fs::read(file).unwrap())
            .collect::<Vec<_>>()
    };
    let stored = contents();
    let path = "/api/v1/tollgate/projects/shop/preview";
    let (status, now) = get(&world, "bob", path).await;
    assert_eq!(status, 200, "{now}");
    assert_eq!((&now["changing"], &now["unchanged"]), (&json!(0), &json!(1)), "{now}");
    let entries = json!({"destinationServiceAccounts": [
        {"server": "*", "namespace": "other", "defaultServiceAccount": "none"},
        {"server": "*", "namespace": "*", "defaultServiceAccount": "deployer"},
    ]});
    let (status, then) = send(ask(&world, Method::POST, "bob", path).json(&entries)).await;
    assert_eq!((status, &then["changing"]), (200, &json!(1)), "{then}");
    let application = &then["applications"][0];
    assert_eq!(
        (&application["name"], &application["then"]),
        (&json!("cart"), &json!({"account": "cart:deployer", "entry": 1}))
    );
    assert_eq!(
        application["tried"][0],
        json!({"entry": 0, "why": "the namespace does not match"})
    );
    assert!(!then.to_string().contains("hidden"), "{then}");
    let wrong = json!({"destinationServiceAccounts": [{"server": "*", "namespace": "*", "defaultServiceAccount": ""}]});
    let (status, refused) = send(ask(&world, Method::POST, "bob", path).json(&wrong)).await;
    assert_eq!(
        (status, &refused["reason"]),
        (400, &json!("project_invalid")),
        "{refused}"
    );
    let many = json!({"destinationServiceAccounts": vec![&entries["destinationServiceAccounts"][0]; 1_001]});
    let (status, refused) = send(ask(&world, Method::POST, "bob", path).json(&many)).await;
    assert_eq!(status, 400, "{refused}");
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .contains("a list of at most 1,000 entries"),
        "{refused}"
    );
    let (status, refused) = send(ask(&world, Method::POST, "alice", path).json(&entries)).await;
    assert_eq!(
        (status, &refused["reason"]),
        (403, &json!("permission_denied")),
        "{refused}"
    );
    assert_eq!(contents(), stored);
}
