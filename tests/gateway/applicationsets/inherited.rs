//! The setting `permissions: inherited`, through the whole gateway.

use reqwest::Method;
use serde_json::{Value, json};

use super::{API, about, get, names, post, send, set, stored};
use crate::clusters::ask;
use test_support::world::{World, map};

/// In `dev`, alice may do everything with Applications, dave with `cart` alone, and carol may see
/// `cart`. frank may do everything with sets, and nothing with Applications.
const POLICY: &str = "\
p, alice, applications, *, dev/*, allow
p, carol, applications, get, dev/cart, allow
p, dave, applications, *, dev/cart, allow
p, frank, applicationsets, *, dev/*, allow
";

async fn start() -> World {
    let mut setup = super::setup();
    setup.rbac_cm = map(&[("policy.csv", POLICY)]);
    setup.settings["applicationSets"]["permissions"] = json!("inherited");
    setup.start().await
}

async fn listed(world: &World, user: &str) -> Vec<String> {
    let (status, body) = get(world, user, "").await;
    assert_eq!(status, 200, "{body}");
    let sets = body["items"].as_array().unwrap();
    names(sets).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_permissions_on_a_set_are_those_on_its_applications() {
    let world = start().await;
    let both = set("both", "dev", &["shop", "cart"]);
    for (user, expected) in [
        ("dave", vec!["application `dev/shop`".to_owned()]),
        ("frank", vec!["applicationset `dev/both`".to_owned()]),
        ("carol", vec!["applicationset `dev/both`".to_owned()]),
    ] {
        let (status, body) = post(&world, user, "", &both).await;
        assert_eq!((status, about(&body)), (403, expected), "{user}: {body}");
    }
    assert!(stored(&world, "ApplicationSet").is_empty() && stored(&world, "Application").is_empty());
    let (status, body) = post(&world, "alice", "", &set("books", "dev", &["books"])).await;
    assert_eq!(status, 200, "{body}");
    let (status, body) = post(&world, "dave", "", &set("mine", "dev", &["cart"])).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(names(&stored(&world, "Application")), ["books", "cart"]);
    for (user, expected) in [
        ("alice", &["books", "mine"][..]),
        ("carol", &["mine"]),
        ("dave", &["mine"]),
        ("frank", &[]),
    ] {
        let what = format!("the sets of {user}");
        world
            .until(&what, async || listed(&world, user).await == expected)
            .await;
        for name in ["books", "mine"] {
            let status = if expected.contains(&name) { 200 } else { 404 };
            assert_eq!(get(&world, user, &format!("/{name}")).await.0, status, "{user} {name}");
            assert_eq!(
                get(&world, user, &format!("/{name}/resource-tree")).await.0,
                status,
                "{user} {name}"
            );
        }
    }
}

#[tokio::test]
async fn changes_need_the_permissions_on_the_old_and_the_new_applications() {
    let world = start().await;
    let mine = set("mine", "dev", &["cart"]);
    assert_eq!(post(&world, "dave", "", &mine).await.0, 200);
    let upsert = async |user: &str, names: &[&str]| {
        let (status, body) = post(&world, user, "?upsert=true", &set("mine", "dev", names)).await;
        (status, about(&body))
    };
    assert_eq!(
        upsert("dave", &["cart", "shop"]).await,
        (403, vec!["application `dev/shop`".to_owned()])
    );
    assert_eq!(
        upsert("dave", &[]).await,
        (403, vec!["applicationset `dev/mine`".to_owned()])
    );
    assert_eq!(upsert("alice", &["cart", "shop"]).await, (200, Vec::new()));
    // Now the set has an Application that dave has no permission on, and he cannot even see it.
    let (status, _) = upsert("dave", &["cart"]).await;
    assert_eq!(status, 403);
    let delete = async |user: &str| {
        let request = ask(&world, Method::DELETE, user, &format!("{API}/mine"));
        send(request).await.0
    };
    for user in ["dave", "carol", "frank", "bob"] {
        assert_eq!(delete(user).await, 404, "{user}");
    }
    assert_eq!(upsert("alice", &["cart"]).await, (200, Vec::new()));
    let seen = async || get(&world, "carol", "/mine").await.0 == 200;
    world.until("carol sees the set again", seen).await;
    assert_eq!(delete("carol").await, 403);
    assert_eq!(delete("dave").await, 200);
    assert_eq!(stored(&world, "Application"), Vec::<Value>::new());
}

/// `compat: argocd` checks the set alone.
#[tokio::test]
async fn inherited_permissions_and_argo_cds_are_not_combined() {
    let mut setup = super::setup();
    setup.settings["applicationSets"] = json!({"permissions": "inherited", "compat": "argocd"});
    let refused = format!("{:#}", setup.try_start().await.expect_err("a refusal"));
    assert!(refused.contains("applicationSets.permissions"), "{refused}");
}
