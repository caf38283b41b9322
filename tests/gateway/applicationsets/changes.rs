//! Writes of ApplicationSets: what is stored and what is answered.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd as _;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::{API, about, actions, get, made, names, post, refused, send, set, start, stored};
use crate::clusters::ask;
use test_support::client::Client;
use test_support::token;
use test_support::world::{SESSION_KEY, World};

async fn put(world: &World, user: &str, name: &str, set: &Value) -> (u16, Value) {
    send(ask(world, Method::PUT, user, &format!("{API}/{name}")).json(set)).await
}

async fn delete(world: &World, user: &str, rest: &str) -> (u16, Value) {
    send(ask(world, Method::DELETE, user, &format!("{API}/{rest}"))).await
}

#[tokio::test]
async fn a_set_is_stored_with_all_it_generates() {
    let world = start().await;
    let request = ask(&world, Method::POST, "alice", API).json(&set("shop", "dev", &["cart", "till"]));
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let record = world.decision(&answer).await;
    assert_eq!(record["front"], "applicationsets");
    assert_eq!(record["notes"]["applicationset"], "argocd/shop");
    assert_eq!(record["notes"]["operation"], "create");
    let checks = record["checks"].as_array().unwrap();
    let create = checks
        .iter()
        .find(|check| check["resource"] == "applicationsets" && check["action"] == "create");
    let create = create.unwrap_or_else(|| panic!("{checks:?}"));
    assert_eq!(
        (create["object"].as_str(), create["allowed"].as_bool()),
        (Some("dev/shop"), Some(true))
    );
    let body: Value = answer.json().await.unwrap();
    assert_eq!(
        (body["action"].as_str(), actions(&body)),
        (
            Some("create"),
            vec!["cart: create".to_owned(), "till: create".to_owned()]
        )
    );
    let applications = stored(&world, "Application");
    assert_eq!(names(&applications), ["cart", "till"]);
    for application in &applications {
        let owner = &application["metadata"]["ownerReferences"][0];
        assert_eq!(
            (owner["kind"].as_str(), owner["name"].as_str()),
            (Some("ApplicationSet"), Some("shop"))
        );
    }
    assert_eq!(names(&stored(&world, "ApplicationSet")), ["shop"]);
    let (status, seen) = get(&world, "carol", "/shop").await;
    assert_eq!(status, 200);
    assert_eq!(seen["metadata"]["resourceVersion"], body["metadata"]["resourceVersion"]);
    assert_eq!(seen["metadata"]["annotations"]["tollgate.dev/projects"], "dev");
    let (status, tree) = get(&world, "carol", "/shop/resource-tree").await;
    assert_eq!(status, 200);
    let nodes: Vec<_> = tree["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["name"].as_str().unwrap())
        .collect();
    assert_eq!(nodes, ["cart", "till"]);
    assert_eq!(tree["nodes"][0]["parentRefs"][0]["name"], "shop");
    let (status, events) = get(&world, "carol", "/shop/events").await;
    assert_eq!((status, events["items"].as_array().map(Vec::len)), (200, Some(0)));
}

#[tokio::test]
async fn lists_are_filtered() {
    let world = start().await;
    let mut labeled = set("b", "dev", &["b1"]);
    labeled["metadata"]["labels"] = json!({"tier": "test"});
    made(&world, &labeled).await;
    made(&world, &set("a", "dev", &["a1"])).await;
    for (user, query, expected) in [
        ("carol", "", vec!["a", "b"]),
        ("carol", "?selector=tier%3Dtest", vec!["b"]),
        ("carol", "?selector=tier%21%3Dtest", vec!["a"]),
        ("carol", "?projects=dev&projects=x", vec!["a", "b"]),
        ("carol", "?projects=prod", vec![]),
        ("carol", "?appsetNamespace=argocd", vec!["a", "b"]),
        ("carol", "?appsetNamespace=other", vec![]),
        ("bob", "", vec![]),
        ("dave", "", vec![]),
    ] {
        let (status, list) = get(&world, user, query).await;
        assert_eq!(status, 200, "{list}");
        assert_eq!(list["kind"], "ApplicationSetList");
        assert_eq!(names(list["items"].as_array().unwrap()), expected, "{user} {query}");
    }
    let bad = get(&world, "carol", "?selector=key1%3Evalue1").await;
    let (status, code, reason, text) = refused(&bad);
    assert_eq!((status, code, reason), (400, 3, "bad_selector"));
    assert!(text.starts_with("error parsing the selector"), "{text}");
}

/// Security: a caller who may create a set, but not see it, cannot guess its content.
/// Argo CD's pages send parameters that no server reads.
#[tokio::test]
async fn the_queries_of_argo_cds_pages_are_answered() {
    let world = start().await;
    made(&world, &set("shop", "dev", &["cart"])).await;
    let list = "?selector=&appNamespace=&fields=metadata.resourceVersion,items.metadata.name";
    let names_of = async |user: &str| {
        let (status, listed) = get(&world, user, list).await;
        assert_eq!(status, 200, "{listed}");
        let items = listed["items"].as_array().unwrap().clone();
        items
            .iter()
            .map(|set| set["metadata"]["name"].clone())
            .collect::<Vec<_>>()
    };
    world
        .until("the list", async || names_of("carol").await == ["shop"])
        .await;
    assert_eq!(names_of("bob").await, Vec::<Value>::new());
    for rest in [
        "/shop?appsetNamespace=argocd&refresh=normal",
        "/shop?appsetNamespace=&refresh=hard&refresh=normal",
        "/shop/resource-tree?appsetNamespace=argocd&view=tree",
        "/shop/events?appsetNamespace=argocd&limit=1",
    ] {
        assert_eq!(get(&world, "carol", rest).await.0, 200, "{rest}");
        assert_eq!(get(&world, "bob", rest).await.0, 404, "{rest}");
    }
    // What writes is refused with a parameter that it does not have.
    let (status, body) = delete(&world, "alice", "shop?appsetNamespace=argocd&refresh=normal").await;
    assert_eq!((status, &body["reason"]), (400, &json!("bad_query")), "{body}");
    assert_eq!(stored(&world, "ApplicationSet").len(), 1);
}

#[tokio::test]
async fn a_right_guess_of_a_hidden_set_is_answered_as_a_wrong_one() {
    let mut setup = super::setup();
    setup.argocd_cm.insert("accounts.grace".to_owned(), "login".to_owned());
    let rows = "p, grace, applicationsets, create, dev/*, allow\np, grace, applications, create, dev/*, allow\n";
    setup.rbac_cm.get_mut("policy.csv").unwrap().push_str(rows);
    let world = setup.start().await;
    let hidden = set("shop", "dev", &["cart"]);
    made(&world, &hidden).await;
    let right = post(&world, "grace", "", &hidden).await;
    let wrong = post(&world, "grace", "", &set("shop", "dev", &["till"])).await;
    assert_eq!(refused(&right), refused(&wrong));
    assert_eq!(refused(&right).2, "exists_differently");
    // A caller who may see the set learns that nothing changes.
    let (status, same) = post(&world, "alice", "", &hidden).await;
    assert_eq!((status, same["action"].as_str()), (200, Some("unchanged")));
}

#[tokio::test]
async fn an_upsert_merges_and_nothing_else_changes_a_stored_set() {
    let world = start().await;
    let mut first = set("shop", "dev", &["cart"]);
    first["metadata"]["labels"] = json!({"a": "1", "b": "1"});
    let stored_first = made(&world, &first).await;
    // The same again changes nothing.
    let (status, again) = post(&world, "alice", "", &first).await;
    assert_eq!((status, again["action"].as_str()), (200, Some("unchanged")));
    assert_eq!(
        again["metadata"]["resourceVersion"],
        stored_first["metadata"]["resourceVersion"]
    );
    let mut other = set("shop", "dev", &["cart", "till"]);
    other["metadata"]["labels"] = json!({"b": "2"});
    let denied = post(&world, "alice", "", &other).await;
    let text = "existing ApplicationSet spec is different, use upsert flag to force update";
    assert_eq!(refused(&denied), (400, 3, "exists_differently", text));
    assert_eq!(names(&stored(&world, "Application")), ["cart"]);
    let (status, body) = post(&world, "alice", "?upsert=true", &other).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(
        (body["action"].as_str(), actions(&body)),
        (
            Some("update"),
            vec!["cart: unchanged".to_owned(), "till: create".to_owned()]
        )
    );
    assert_eq!(body["metadata"]["labels"], json!({"a": "1", "b": "2"}));
    assert_eq!(names(&stored(&world, "Application")), ["cart", "till"]);
}

#[tokio::test]
async fn a_put_replaces_what_was_read() {
    let world = start().await;
    let mut first = set("shop", "dev", &["cart", "till"]);
    first["metadata"]["labels"] = json!({"a": "1"});
    made(&world, &first).await;
    let (_, read) = get(&world, "alice", "/shop").await;
    let mut wanted = set("shop", "dev", &["cart"]);
    let unversioned = put(&world, "alice", "shop", &wanted).await;
    let (status, code, reason, _) = refused(&unversioned);
    assert_eq!((status, code, reason), (409, 9, "version_missing"));
    wanted["metadata"]["resourceVersion"] = read["metadata"]["resourceVersion"].clone();
    // Dropping an Application from a set needs the permission to delete it.
    let denied = put(&world, "erin", "shop", &wanted).await;
    assert_eq!((denied.0, denied.1["code"].as_u64()), (403, Some(7)), "{}", denied.1);
    assert!(
        about(&denied.1).contains(&"application `dev/till`".to_owned()),
        "{}",
        denied.1
    );
    assert_eq!(names(&stored(&world, "Application")), ["cart", "till"]);
    let (status, body) = put(&world, "alice", "shop", &wanted).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(actions(&body), ["cart: unchanged", "till: delete"]);
    assert!(body["metadata"].get("labels").is_none(), "{body}");
    assert_eq!(names(&stored(&world, "Application")), ["cart"]);
    // The same change again, based on the old version, is a conflict.
    let stale = put(&world, "alice", "shop", &wanted).await;
    let text = "ApplicationSet `shop` has changed since it was read: read it again and repeat the change";
    assert_eq!(refused(&stale), (409, 10, "conflict", text));
    let renamed = put(&world, "alice", "other", &wanted).await;
    let (status, code, reason, _) = refused(&renamed);
    assert_eq!((status, code, reason), (400, 3, "applicationset_invalid"));
}

#[tokio::test]
async fn deletions_need_a_permission_and_the_right_count() {
    let world = start().await;
    made(&world, &set("shop", "dev", &["a", "b", "c", "d"])).await;
    let denied = delete(&world, "alice", "shop").await;
    assert_eq!(
        (denied.0, denied.1["reason"].as_str()),
        (409, Some("too_many_deletions")),
        "{}",
        denied.1
    );
    let denied = delete(&world, "erin", "shop?deletions=4").await;
    assert_eq!((denied.0, denied.1["code"].as_u64()), (403, Some(7)));
    assert_eq!(about(&denied.1).len(), 4, "{}", denied.1);
    // The permission is needed even if the Applications would stay.
    let denied = delete(&world, "erin", "shop?cascade=orphan").await;
    assert_eq!(denied.0, 403);
    assert_eq!(stored(&world, "Application").len(), 4);
    let (status, body) = delete(&world, "alice", "shop?deletions=4").await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(actions(&body), ["a: delete", "b: delete", "c: delete", "d: delete"]);
    assert!(stored(&world, "Application").is_empty());
    assert!(stored(&world, "ApplicationSet").is_empty());
}

#[tokio::test]
async fn orphans_stay() {
    let world = start().await;
    made(&world, &set("shop", "dev", &["a", "b"])).await;
    let (status, body) = delete(&world, "alice", "shop?cascade=orphan").await;
    assert_eq!(status, 200, "{body}");
    let applications = stored(&world, "Application");
    assert_eq!(names(&applications), ["a", "b"]);
    assert!(
        applications
            .iter()
            .all(|one| one["metadata"].get("ownerReferences").is_none())
    );
    assert!(stored(&world, "ApplicationSet").is_empty());
    let gone = get(&world, "alice", "/shop").await;
    assert_eq!((gone.0, gone.1["code"].as_u64()), (404, Some(5)));
}

/// Waits until the gateway's writer waits for the lock of the state folder. While it waits, it
/// keeps the folder open without a lock. Code that loads or lists the folder does not.
async fn writer_waits(world: &World, held: &std::fs::File) {
    let folder = std::fs::canonicalize(world.path("state")).unwrap();
    let waiting = || -> BTreeSet<String> {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|path| path == folder));
        let names = open.map(|fd| fd.file_name().into_string().unwrap());
        let names = names.filter(|name| *name != held.as_raw_fd().to_string());
        let is_unlocked = |name: &String| {
            let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{name}"));
            about.is_ok_and(|about| !about.contains("lock:"))
        };
        names.filter(is_unlocked).collect()
    };
    let seen = std::cell::Cell::new((0, BTreeSet::new()));
    world
        .until("the writer", || async {
            let now = waiting();
            let (times, before) = seen.take();
            let same: BTreeSet<String> = before.intersection(&now).cloned().collect();
            let times = if same.is_empty() { 0 } else { times + 1 };
            seen.set((times, if same.is_empty() { now } else { same }));
            times >= 10
        })
        .await;
}

/// A write is completed even if the client disconnects meanwhile, and the record has its outcome.
#[tokio::test]
async fn a_write_and_its_record_survive_the_client() {
    let world = start().await;
    // A shared lock on the folder blocks the writer.
    let folder = std::fs::File::open(world.path("state")).unwrap();
    folder.lock_shared().unwrap();
    let content = set("shop", "dev", &["cart", "till"]).to_string();
    let head = format!(
        "POST {API} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        token::session(SESSION_KEY, "alice"),
        content.len()
    );
    let mut client = Client::connect(world.address()).await;
    client.send(format!("{head}{content}").as_bytes()).await;
    writer_waits(&world, &folder).await;
    // The gateway closes its side once it has dropped the request of a client that is gone.
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.rest().await, b"", "the client gets no answer");
    assert!(stored(&world, "ApplicationSet").is_empty(), "nothing is written yet");
    folder.unlock().unwrap();
    let record = async || {
        let page = world.admin("/decisions").await;
        let all: Value = serde_json::from_str(&page).unwrap();
        let all = all
            .as_array()
            .or_else(|| all["items"].as_array())
            .cloned()
            .unwrap_or_default();
        all.into_iter().find(|record| record["notes"]["operation"] == "create")
    };
    world.until("the record", || async { record().await.is_some() }).await;
    let record = record().await.unwrap();
    assert_eq!(
        (
            record["outcome"].as_str(),
            record["status"].as_u64(),
            record["reason"].as_str()
        ),
        (Some("allowed"), Some(499), Some("allowed")),
        "{record}"
    );
    let checks = record["checks"].as_array().unwrap();
    assert!(checks.iter().any(|check| check["action"] == "create"), "{record}");
    assert_eq!(names(&stored(&world, "ApplicationSet")), ["shop"]);
    assert_eq!(names(&stored(&world, "Application")), ["cart", "till"]);
}

/// The twin: a refused request writes nothing.
#[tokio::test]
async fn a_refused_request_writes_nothing() {
    let world = start().await;
    let (status, _) = post(&world, "erin", "", &set("shop", "prod", &["cart"])).await;
    assert_eq!(status, 403);
    assert!(stored(&world, "ApplicationSet").is_empty() && stored(&world, "Application").is_empty());
}
