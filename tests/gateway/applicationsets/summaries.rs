//! The list of sets of the console, page by page.

use reqwest::Method;
use serde_json::{Value, json};

use super::{post, send, set, setup};
use crate::clusters::ask;
use test_support::world::World;

const SUMMARIES: &str = "/api/v1/tollgate/applicationsets";

async fn list(world: &World, user: &str, query: &str) -> (u16, Value) {
    send(ask(world, Method::GET, user, &format!("{SUMMARIES}{query}"))).await
}

fn names(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().unwrap();
    items.iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn sets_are_summarized_page_by_page() {
    let mut setup = setup();
    let numbered = (0..600).map(|number| set(&format!("set-{number:03}"), "dev", &["a"]));
    setup.objects.extend(numbered.chain([set("hidden", "prod", &["a"])]));
    let mut reported = set("reported", "dev", &["a"]);
    reported["spec"]["generators"] = json!([{"git": {"repoURL": "https://git.example.com/x.git"}, "selector": {}}]);
    reported["status"] = json!({
        "resources": [{"name": "a"}, {"name": "b"}],
        "conditions": [{"type": "ErrorOccurred", "status": "True", "message": format!("no\u{1b}[31m{}", "x".repeat(400))}],
    });
    setup.objects.push(reported);
    let world = setup.start().await;

    let (mut seen, mut query) = (Vec::new(), "?limit=250".to_owned());
    loop {
        let (status, page) = list(&world, "carol", &query).await;
        assert_eq!(status, 200, "{page}");
        seen.extend(names(&page).into_iter().map(str::to_owned));
        let Some(next) = page["continue"].as_str() else { break };
        query = format!("?limit=250&continue={next}");
    }
    let mut expected: Vec<String> = (0..600).map(|number| format!("set-{number:03}")).collect();
    expected.insert(0, "reported".to_owned());
    assert_eq!(seen, expected);
    let (_, found) = list(&world, "carol", "?name=REP&project=dev").await;
    let one = &found["items"][0];
    assert_eq!(
        (
            &one["generators"],
            &one["applications"],
            &one["project"],
            &one["namespace"]
        ),
        (&json!(["git"]), &json!(2), &json!("dev"), &json!("argocd")),
        "{found}"
    );
    assert_eq!(one["error"].as_str().unwrap().chars().count(), 300, "{found}");

    // Nobody learns of sets that they may not see, regardless of the query.
    for query in ["", "?name=hidden", "?project=prod", "?limit=1000"] {
        for user in ["bob", "carol"] {
            let (status, page) = list(&world, user, query).await;
            assert_eq!(status, 200, "{page}");
            assert!(!names(&page).contains(&"hidden"), "{user} {query}");
            assert!(user == "carol" || names(&page).is_empty(), "{user} {query}");
        }
    }
    for query in ["?limit=0", "?continue=x", "?name=", "?other=1", "?name=a&name=b"] {
        let (status, body) = list(&world, "carol", query).await;
        assert_eq!((status, &body["reason"]), (400, &json!("bad_query")), "{query}");
    }
}

#[tokio::test]
async fn a_set_that_is_deleted_or_moved_leaves_the_list_at_once() {
    let mut setup = setup();
    setup.rbac_cm.insert(
        "policy.csv".to_owned(),
        "p, alice, *, *, */*, allow\np, carol, applicationsets, get, dev/*, allow\n".to_owned(),
    );
    setup
        .objects
        .extend(["deleted", "kept", "moved"].map(|name| set(name, "dev", &[])));
    let world = setup.start().await;
    let (_, before) = list(&world, "carol", "").await;
    assert_eq!(names(&before), ["deleted", "kept", "moved"]);
    let (status, answer) = send(ask(&world, Method::DELETE, "alice", "/api/v1/applicationsets/deleted")).await;
    assert_eq!(status, 200, "{answer}");
    let (status, answer) = post(&world, "alice", "?upsert=true", &set("moved", "prod", &[])).await;
    assert_eq!(status, 200, "{answer}");
    let (_, after) = list(&world, "carol", "").await;
    assert_eq!(names(&after), ["kept"]);
    let (_, all) = list(&world, "alice", "").await;
    assert_eq!(names(&all), ["kept", "moved"]);
}

#[tokio::test]
async fn there_is_no_list_where_sets_are_not_served() {
    let mut setup = setup();
    setup.settings = json!({});
    let world = setup.start().await;
    let (status, body) = list(&world, "alice", "").await;
    assert_eq!((status, &body["reason"]), (404, &json!("not_found")), "{body}");
}
