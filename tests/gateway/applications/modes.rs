//! Which identity acts in each mode of impersonation, and that a new mode needs no restart.

use reqwest::Method;
use serde_json::{Value, json};

use super::{CART, api, asked, good, setup, shop, status_message};
use crate::clusters::ask;
use test_support::api_server::{Answer, Api, Seen};
use test_support::world::{Setup, World};

const CONFIGMAPS: &str = "/api/v1/namespaces/cart/configmaps";

/// An API server that answers access reviews with `allowed`.
async fn reviewing(allowed: bool) -> Api {
    api(move |seen: &Seen| -> Answer {
        let review = json!({"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}});
        match seen.target.contains("selfsubjectaccessreviews") {
            true => (201, Vec::new(), review.to_string()),
            false => good(seen),
        }
    })
    .await
}

/// The same, but the gateway may act with its own identity.
fn as_itself(mut setup: Setup) -> Setup {
    setup.settings["applications"]["gatewayIdentity"] = json!("allowed");
    setup
}

async fn write(world: &World) -> reqwest::Response {
    let path = format!("{CART}{CONFIGMAPS}");
    ask(world, Method::POST, "alice", &path)
        .body("{}")
        .send()
        .await
        .unwrap()
}

fn last_user(api: &Api) -> Option<String> {
    let seen = asked(api).pop().unwrap();
    seen.value("impersonate-user").map(str::to_owned)
}

#[tokio::test]
async fn the_switch_counts_without_a_restart() {
    let api = reviewing(true).await;
    let world = as_itself(setup(&api, "false", shop(&json!({})))).start().await;
    assert_eq!(write(&world).await.status(), 200);
    assert_eq!(last_user(&api), None);
    let account = Some("system:serviceaccount:cart:deployer".to_owned());
    for (value, user) in [("true", account), ("audit", None), ("True", None)] {
        let file = world.path("state/000.yaml");
        let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        config["data"]["application.sync.impersonation.enabled"] = json!(value);
        std::fs::write(world.path("state/next"), config.to_string()).unwrap();
        std::fs::rename(world.path("state/next"), &file).unwrap();
        world
            .until("the switch counts", || async {
                let identity = world.admin("/applications").await;
                let mode = match value {
                    "true" => "enforce",
                    "audit" => "audit",
                    _ => "off",
                };
                let report: Value = serde_json::from_str(&identity).unwrap();
                report["mode"] == mode
            })
            .await;
        assert_eq!(write(&world).await.status(), 200);
        assert_eq!(last_user(&api), user, "{value}");
    }
}

#[tokio::test]
async fn audit_writes_down_what_enforce_would_refuse() {
    // The cluster would refuse the account.
    let api = reviewing(false).await;
    let world = as_itself(setup(&api, "audit", shop(&json!({})))).start().await;
    let answer = write(&world).await;
    let record = world.decision(&answer).await;
    assert_eq!((answer.status().as_u16(), last_user(&api)), (200, None));
    let text = record["notes"]["would_refuse"].as_str().unwrap();
    assert!(
        text.contains("`create`") && text.contains("system:serviceaccount:cart:deployer"),
        "{text}"
    );
    let review = api
        .seen()
        .into_iter()
        .find(|seen| seen.target.contains("selfsubjectaccessreviews") && seen.value("impersonate-user").is_some());
    let review = review.expect("the gateway sends a review as the account");
    let spec: Value = serde_json::from_slice(&review.body).unwrap();
    let asked = &spec["spec"]["resourceAttributes"];
    assert_eq!(
        (&asked["resource"], &asked["namespace"]),
        (&json!("configmaps"), &json!("cart"))
    );
    assert!(
        world
            .admin("/metrics")
            .await
            .contains("tollgate_applications_would_refuse_total 1")
    );

    // The entry is invalid, so there is no account to review.
    let api = reviewing(true).await;
    let broken =
        json!({"destinationServiceAccounts": [{"server": "*", "namespace": "*", "defaultServiceAccount": "a*"}]});
    let world = as_itself(setup(&api, "audit", shop(&broken))).start().await;
    let record = world.decision(&write(&world).await).await;
    let text = record["notes"]["would_refuse"].as_str().unwrap();
    assert!(
        text.contains("default service account contains invalid chars"),
        "{text}"
    );

    // The twin: enforcement would not refuse the request.
    let api = reviewing(true).await;
    let world = as_itself(setup(&api, "audit", shop(&json!({})))).start().await;
    let record = world.decision(&write(&world).await).await;
    assert_eq!(record["notes"]["would_refuse"], Value::Null);
}

#[tokio::test]
async fn without_a_matching_entry_the_fallback_acts() {
    let none = json!({"destinationServiceAccounts": []});
    let api = reviewing(true).await;
    let world = setup(&api, "true", shop(&none)).start().await;
    assert_eq!(write(&world).await.status(), 200);
    assert_eq!(last_user(&api).as_deref(), Some("system:serviceaccount:cart:default"));

    let mut setup_of_argocd = setup(&api, "true", shop(&none));
    setup_of_argocd.settings = json!({"applications": {"compat": "argocd"}});
    let world = setup_of_argocd.start().await;
    let (status, message) = status_message(write(&world).await).await;
    assert_eq!(status, 403, "{message}");
    let server = api.url();
    let wanted = format!("no matching service account found for destination server {server} and namespace cart");
    assert!(message.ends_with(&wanted), "{message}");

    let mut unenforced = setup(&api, "true", shop(&none));
    let key = "application.sync.impersonation.enforced";
    unenforced.argocd_cm.insert(key.to_owned(), "false".to_owned());
    let (status, message) = status_message(write(&unenforced.clone().start().await).await).await;
    assert_eq!(status, 403, "{message}");
    let world = as_itself(unenforced).start().await;
    assert_eq!(write(&world).await.status(), 200);
    assert_eq!(last_user(&api), None);
}

#[tokio::test]
async fn where_the_gateway_acts_itself_reads_are_held_to_the_project() {
    let api = reviewing(true).await;
    let world = as_itself(setup(&api, "false", shop(&json!({})))).start().await;
    for (rest, allowed) in [
        (CONFIGMAPS, true),
        ("/version", true),
        ("/api/v1/namespaces/cart/secrets", false),
        ("/api/v1/namespaces/kube-system/configmaps", false),
        ("/api/v1/configmaps", false),
        ("/metrics", false),
    ] {
        let answer = ask(&world, Method::GET, "alice", &format!("{CART}{rest}"))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status() == 200, allowed, "{rest}: {}", answer.status());
    }
}

#[tokio::test]
async fn the_gateway_acts_in_its_own_name_only_where_the_settings_say_so() {
    let api = reviewing(true).await;
    for mode in ["false", "audit"] {
        let before = asked(&api).len();
        let world = setup(&api, mode, shop(&json!({}))).start().await;
        let (status, message) = status_message(write(&world).await).await;
        assert_eq!(status, 403, "{mode}");
        assert!(message.contains("`applications.gatewayIdentity`"), "{message}");
        let read = ask(&world, Method::GET, "alice", &format!("{CART}/version"))
            .send()
            .await
            .unwrap();
        let record = world.decision(&read).await;
        assert_eq!(
            (read.status().as_u16(), &record["reason"]),
            (403, &json!("unusable_identity")),
            "{mode}"
        );
        assert_eq!(asked(&api).len(), before, "{mode}");

        let world = as_itself(setup(&api, mode, shop(&json!({})))).start().await;
        assert_eq!(write(&world).await.status(), 200, "{mode}");
        assert_eq!(last_user(&api), None, "{mode}");
    }
}
