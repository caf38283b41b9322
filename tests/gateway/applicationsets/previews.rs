//! Previews: dry runs and `generate`.

use reqwest::Method;
use serde_json::json;

use super::{API, actions, made, names, post, send, set, setup, start, stored};
use crate::clusters::ask;
use test_support::world::Setup;

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let world = start().await;
    let wanted = set("shop", "dev", &["a", "b"]);
    for user in ["alice", "dave"] {
        let (status, body) = post(&world, user, "?dryRun=true", &wanted).await;
        assert_eq!(status, 200, "{user}: {body}");
        let resources = body["status"]["resources"].as_array().unwrap();
        let resources: Vec<_> = resources.iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(resources, ["a", "b"]);
        assert_eq!(actions(&body), ["a: create", "b: create"]);
        assert!(
            body["changes"][0]["diff"].as_str().unwrap().contains("+  name: a"),
            "{body}"
        );
    }
    // A caller who may only preview learns what would refuse the write.
    let (_, body) = post(&world, "dave", "?dryRun=true", &wanted).await;
    assert!(body["refusals"].as_array().is_some_and(|all| !all.is_empty()), "{body}");
    let (_, body) = post(&world, "alice", "?dryRun=true", &wanted).await;
    assert!(body.get("refusals").is_none(), "{body}");
    for user in ["bob", "carol"] {
        let (status, _) = post(&world, user, "?dryRun=true", &wanted).await;
        assert_eq!(status, 403, "{user}");
    }
    let (status, _) = post(&world, "dave", "", &wanted).await;
    assert_eq!(status, 403);
    assert!(stored(&world, "ApplicationSet").is_empty());
    assert!(stored(&world, "Application").is_empty());
}

#[tokio::test]
async fn generate_takes_json_and_yaml() {
    let world = start().await;
    made(&world, &set("shop", "dev", &["cart", "till"])).await;
    let wanted = set("shop", "dev", &["cart", "desk"]);
    let (status, body) = post(&world, "alice", "/generate", &json!({"applicationSet": wanted})).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(names(body["applications"].as_array().unwrap()), ["cart", "desk"]);
    assert_eq!(actions(&body), ["cart: unchanged", "desk: create", "till: delete"]);
    assert_eq!(body["applications"][1]["spec"]["destination"]["namespace"], "desk");
    let text = serde_saphyr::to_string(&wanted).unwrap();
    let request = ask(&world, Method::POST, "alice", &format!("{API}/generate"));
    let (status, again) = send(request.header("content-type", "application/yaml").body(text)).await;
    assert_eq!((status, again), (200, body));
    let (status, _) = post(&world, "carol", "/generate", &json!({"applicationSet": wanted})).await;
    assert_eq!(status, 403);
    assert_eq!(names(&stored(&world, "Application")), ["cart", "till"]);
}

#[tokio::test]
async fn a_set_that_is_too_large_is_refused_by_its_bound() {
    let world = Setup {
        settings: json!({"applicationSets": {"limits": {"applications": 3, "parameters": 100}}}),
        ..setup()
    };
    let world = world.start().await;
    let (status, body) = post(&world, "alice", "", &set("shop", "dev", &["a", "b", "c", "d"])).await;
    assert_eq!(
        (status, body["code"].as_u64(), body["reason"].as_str()),
        (400, Some(8), Some("too_large"))
    );
    let text = "the set generates 4 applications or more, at most 3 are allowed";
    assert_eq!(body["error"], text);
    let list = |key: &str| {
        let elements: Vec<_> = (0..20).map(|number| json!({key: number.to_string()})).collect();
        json!({"list": {"elements": elements}})
    };
    let mut matrix = set("shop", "dev", &[]);
    matrix["spec"]["generators"] = json!([{"matrix": {"generators": [list("name"), list("stage")]}}]);
    let (status, body) = post(&world, "alice", "", &matrix).await;
    assert_eq!((status, body["reason"].as_str()), (400, Some("too_large")), "{body}");
    assert!(stored(&world, "Application").is_empty());
}
