//! An open exchange ends when a reload no longer permits it.

use reqwest::Method;
use serde_json::json;

use super::{CART, api, good, setup, shop};
use crate::clusters::{ask, bearer, cluster};
use test_support::client::Client;
use test_support::token;
use test_support::world::{SESSION_KEY, World};

fn rewrite(world: &World, name: &str, from: &str, to: &str) {
    let file = world.path("state").join(name);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(world.path("state/next"), text.replace(from, to)).unwrap();
    std::fs::rename(world.path("state/next"), &file).unwrap();
}

/// Answers a watch with a very long body.
fn endless(seen: &test_support::api_server::Seen) -> test_support::api_server::Answer {
    match seen.target.contains("watch") {
        // Long enough that the cluster is still sending when the configuration changes.
        true => (
            200,
            vec![("content-type", "application/json".to_owned())],
            "x".repeat(64 << 20),
        ),
        false => good(seen),
    }
}

async fn watch(world: &World) -> reqwest::Response {
    let path = format!("{CART}/api/v1/namespaces/cart/configmaps?watch=true");
    ask(world, Method::GET, "alice", &path).send().await.unwrap()
}

/// Reads slowly until the answer ends: for some seconds, much longer than a reload takes. Whether it ended
/// before it was complete.
async fn is_cut(mut answer: reqwest::Response) -> bool {
    let mut read = 0;
    loop {
        match answer.chunk().await {
            Ok(Some(bytes)) => read += bytes.len(),
            Ok(None) => return read < 64 << 20,
            Err(_) => return true,
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
}

#[tokio::test]
async fn a_watch_ends_with_the_right_to_it() {
    let api = api(endless).await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    let answer = watch(&world).await;
    assert_eq!(answer.status(), 200);
    rewrite(&world, "001.yaml", "p, alice, applications, get, shop/*, allow", "");
    assert!(is_cut(answer).await);
    assert_eq!(watch(&world).await.status(), 403);
}

#[tokio::test]
async fn a_watch_ends_when_another_account_acts() {
    let api = api(endless).await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    let answer = watch(&world).await;
    rewrite(&world, "004.yaml", "\"deployer\"", "\"another\"");
    assert!(is_cut(answer).await);
}

#[tokio::test]
async fn a_watch_ends_when_its_account_is_disabled() {
    let api = api(endless).await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    let answer = watch(&world).await;
    assert_eq!(answer.status(), 200);
    let enabled = "\"accounts.alice\":\"login\"";
    let disabled = "\"accounts.alice\":\"login\",\"accounts.alice.enabled\":\"false\"";
    rewrite(&world, "000.yaml", enabled, disabled);
    assert!(is_cut(answer).await);
    assert_eq!(watch(&world).await.status(), 401);
}

#[tokio::test]
async fn a_watch_goes_on_through_a_reload_that_is_not_about_it() {
    let api = api(endless).await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    let answer = watch(&world).await;
    rewrite(&world, "001.yaml", "p, carol, applications, get, shop/*, allow", "");
    let path = format!("{CART}/version");
    world
        .until("carol is out", || async {
            ask(&world, Method::GET, "carol", &path).send().await.unwrap().status() == 403
        })
        .await;
    assert!(!is_cut(answer).await);
}

#[tokio::test]
async fn a_watch_ends_when_the_application_moves_to_another_cluster() {
    let (here, there) = (api(endless).await, api(endless).await);
    let mut setup = setup(&here, "true", shop(&json!({})));
    setup
        .objects
        .push(cluster("other", &there.url(), &bearer(&there, "other-token"), &[]));
    let world = setup.start().await;
    let answer = watch(&world).await;
    rewrite(&world, "005.yaml", &here.url(), &there.url());
    assert!(is_cut(answer).await);
    assert_eq!(watch(&world).await.status(), 200);
    let moved = there.seen().iter().filter(|seen| seen.target.contains("watch")).count();
    assert_eq!(moved, 1);
}

#[tokio::test]
async fn a_watch_ends_when_the_project_no_longer_permits_the_source() {
    let api = api(endless).await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    let answer = watch(&world).await;
    assert_eq!(answer.status(), 200);
    rewrite(&world, "004.yaml", "https://git.example/*", "https://other.example/*");
    assert!(is_cut(answer).await);
    assert_eq!(watch(&world).await.status(), 403);
}

/// The value of a metric without labels.
async fn metric(world: &World, name: &str) -> u64 {
    let metrics = world.admin("/metrics").await;
    let value = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// The gateway reads short content if the project's lists depend on the object's name. The client decides
/// when the content comes.
#[tokio::test]
async fn content_that_is_awaited_keeps_no_snapshot_and_is_judged_by_the_newest() {
    let api = api(good).await;
    let by_name = json!({"clusterResourceWhitelist": [{"group": "", "kind": "Namespace", "name": "cart"}]});
    let world = setup(&api, "true", shop(&by_name)).start().await;
    let content = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cart"}}"#;
    let token = token::session(SESSION_KEY, "alice");
    let head = format!(
        "POST {CART}/api/v1/namespaces HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        content.len()
    );
    let open = async || {
        let mut client = Client::connect(world.address()).await;
        client.send(head.as_bytes()).await;
        let awaited = client.head().await.expect("a head");
        assert_eq!(awaited.status, 100, "{}", awaited.head);
        client
    };
    let (mut permitted, mut withdrawn) = (open().await, open().await);
    let reload = async |from: &str, to: &str| {
        let before = metric(&world, "tollgate_snapshot_generation").await;
        rewrite(&world, "001.yaml", from, to);
        let is_newer = async || metric(&world, "tollgate_snapshot_generation").await > before;
        world.until("another generation", is_newer).await;
    };
    reload("p, mallory, applications, *, other/*, allow", "").await;
    let only_the_newest = async || metric(&world, "tollgate_snapshots_in_memory").await == 1;
    world.until("older snapshots to be gone", only_the_newest).await;
    permitted.send(content.as_bytes()).await;
    assert_eq!(permitted.answer().await.unwrap().status, 200);

    reload("p, alice, applications, override, shop/*, allow", "").await;
    let before = api.seen().len();
    withdrawn.send(content.as_bytes()).await;
    assert_eq!(withdrawn.answer().await.unwrap().status, 403);
    assert!(
        api.seen()[before..]
            .iter()
            .all(|seen| seen.method != "POST" || !seen.target.contains("/namespaces"))
    );
}
