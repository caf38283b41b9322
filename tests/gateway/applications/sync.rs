//! Sources and sync windows of the project.

use reqwest::Method;
use serde_json::{Value, json};

use super::{CART, api, asked, good, setup, shop, status_message};
use crate::clusters::ask;
use test_support::world::World;

const CONFIGMAPS: &str = "/api/v1/namespaces/cart/configmaps";

async fn send(world: &World, method: Method) -> (u16, String, Value) {
    let path = format!("{CART}{CONFIGMAPS}");
    let answer = ask(world, method.clone(), "alice", &path)
        .body("{}")
        .send()
        .await
        .unwrap();
    let record = world.decision(&answer).await;
    match answer.status().as_u16() {
        403 => {
            let (status, message) = status_message(answer).await;
            (status, message, record["reason"].clone())
        }
        status => (status, String::new(), record["reason"].clone()),
    }
}

fn always(kind: &str, more: &Value) -> Value {
    let mut window = json!({"kind": kind, "schedule": "* * * * *", "duration": "24h", "applications": ["ca*"]});
    window
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"syncWindows": [window]})
}

#[tokio::test]
async fn a_closed_sync_window_refuses_changes_and_no_reads() {
    for windows in [
        always("deny", &json!({})),
        // It is open for a minute of every fourth year.
        always("allow", &json!({"schedule": "0 0 29 2 *", "duration": "1m"})),
        always("deny", &json!({"applications": ["other"], "namespaces": ["cart"]})),
        always("allow", &json!({"timeZone": "Mars/Olympus"})),
    ] {
        let api = api(good).await;
        let world = setup(&api, "true", shop(&windows)).start().await;
        let (status, message, reason) = send(&world, Method::POST).await;
        assert_eq!(
            (status, &reason),
            (403, &json!("sync_window_closed")),
            "{windows} {message}"
        );
        let schedule = windows["syncWindows"][0]["schedule"].as_str().unwrap();
        assert!(
            message.contains("sync window") && message.contains(schedule),
            "{message}"
        );
        assert!(asked(&api).is_empty(), "{:?}", asked(&api));
        let (status, _, _) = send(&world, Method::GET).await;
        assert_eq!(status, 200);
        let seen = asked(&api);
        assert_eq!(seen.iter().map(|seen| &*seen.method).collect::<Vec<_>>(), ["GET"]);
    }
}

#[tokio::test]
async fn open_sync_windows_let_changes_pass() {
    for windows in [
        always("allow", &json!({})),
        always("deny", &json!({"manualSync": true})),
        always(
            "allow",
            &json!({"schedule": "0 0 29 2 *", "duration": "1m", "manualSync": true}),
        ),
        always("deny", &json!({"applications": ["other"]})),
        always("deny", &json!({"clusters": ["other"], "andOperator": true})),
    ] {
        let api = api(good).await;
        let world = setup(&api, "true", shop(&windows)).start().await;
        let (status, message, _) = send(&world, Method::POST).await;
        assert_eq!(status, 200, "{windows} {message}");
        let seen = asked(&api);
        let [seen] = seen.as_slice() else { panic!("{seen:?}") };
        let account = Some("system:serviceaccount:cart:deployer");
        assert_eq!((&*seen.method, seen.value("impersonate-user")), ("POST", account));
    }
}

#[tokio::test]
async fn a_source_that_the_project_does_not_permit_closes_the_application() {
    let api = api(good).await;
    let world = setup(
        &api,
        "true",
        shop(&json!({"sourceRepos": ["https://git.example/other"]})),
    )
    .start()
    .await;
    for method in [Method::POST, Method::GET] {
        let (status, message, reason) = send(&world, method).await;
        assert_eq!((status, reason), (403, json!("source_refused")), "{message}");
        let expected = "the project does not permit the application's source repository `https://git.example/cart`";
        assert!(message.contains(expected), "{message}");
    }
    assert!(asked(&api).is_empty(), "{:?}", asked(&api));
}
