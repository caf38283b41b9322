//! Which requests the gateway forwards to the cluster, what exactly the cluster gets, and which
//! requests are refused.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::json;

use super::{CART, api, asked, good, setup, shop, status_message};
use crate::clusters::ask;
use test_support::api_server::Api;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/cart/deployments";

/// Whether the cluster got only access reviews, which the gateway sends for itself.
fn only_its_own(api: &Api) -> bool {
    api.seen()
        .iter()
        .all(|seen| seen.target.contains("selfsubjectaccessreviews"))
}

#[tokio::test]
async fn the_cluster_sees_the_account_and_nothing_of_the_caller() {
    let api = api(good).await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    let path = format!("{CART}{DEPLOYMENTS}/web?fieldManager=a%2Fb&x=%20");
    let answer = ask(&world, Method::PATCH, "alice", &path)
        .header("content-type", "application/apply-patch+yaml")
        .header("cookie", "other=c0okie")
        .header("x-remote-user", "root")
        .body("{}")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let record = world.decision(&answer).await;
    let seen = asked(&api);
    let [seen] = seen.as_slice() else { panic!("{seen:?}") };
    let target = format!("{DEPLOYMENTS}/web?fieldManager=a%2Fb&x=%20");
    assert_eq!((&*seen.method, &*seen.target), ("PATCH", &*target));
    assert_eq!(seen.value("authorization"), Some("Bearer cluster-token"));
    assert_eq!(
        seen.value("impersonate-user"),
        Some("system:serviceaccount:cart:deployer")
    );
    assert_eq!(seen.value("audit-id"), record["decision_id"].as_str());
    let names: BTreeSet<&str> = seen.headers.keys().map(http::HeaderName::as_str).collect();
    let allowed = [
        "accept",
        "audit-id",
        "authorization",
        "content-length",
        "content-type",
        "host",
        "impersonate-user",
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
    ];
    assert_eq!(names, BTreeSet::from(allowed));
    assert_eq!(record["front"], "applications");
    assert_eq!(record["application"], "argocd:cart");
    assert_eq!(record["destination"]["name"], "prod");
    let impersonated = &record["kubernetes"]["impersonated"];
    assert_eq!(impersonated["username"], "system:serviceaccount:cart:deployer");
    assert_eq!(record["kubernetes"]["attributes"]["verb"], "patch");
    let checks = record["checks"].as_array().unwrap();
    let actions: Vec<_> = checks.iter().map(|check| check["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["get", "sync", "override"]);
    assert!(
        checks
            .iter()
            .all(|check| check["object"] == "shop/cart" && check["allowed"] == true)
    );
}

#[tokio::test]
async fn callers_without_permission_get_the_same_refusal_whatever_exists() {
    let api = api(good).await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    let mut messages = BTreeSet::new();
    for application in ["argocd/cart", "argocd/absent", "elsewhere/cart"] {
        for user in ["bob", "mallory"] {
            let path = format!("/applications/{application}/k8s{DEPLOYMENTS}");
            let answer = ask(&world, Method::GET, user, &path).send().await.unwrap();
            let record = world.decision(&answer).await;
            assert_eq!(record["reason"], "permission_denied");
            let (status, message) = status_message(answer).await;
            assert_eq!(status, 403);
            messages.insert(message.replace(user, "USER"));
        }
    }
    assert_eq!(messages.len(), 1, "{messages:?}");
    let message = messages.pop_first().unwrap();
    assert!(message.ends_with("you may not see this application"), "{message}");
    // For such callers, the gateway sends no requests to the cluster.
    assert!(only_its_own(&api));
    let nobody = reqwest::get(format!("http://{}{CART}/version", world.address()))
        .await
        .unwrap();
    assert_eq!(status_message(nobody).await.0, 401);
}

#[tokio::test]
async fn callers_without_permission_learn_nothing_from_their_decision_record() {
    let api = api(good).await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    let mut shown = BTreeSet::new();
    for application in ["cart", "absent"] {
        let path = format!("/applications/argocd/{application}/k8s{DEPLOYMENTS}");
        let answer = ask(&world, Method::GET, "mallory", &path).send().await.unwrap();
        let id = answer.headers()["tollgate-decision-id"].to_str().unwrap().to_owned();
        let own = ask(&world, Method::GET, "mallory", &format!("/api/v1/decisions/{id}"));
        let mut own: serde_json::Value = own.send().await.unwrap().json().await.unwrap();
        let members = own.as_object_mut().unwrap();
        for of_each in ["decision_id", "timestamp", "path"] {
            assert!(members.remove(of_each).is_some(), "{of_each}");
        }
        assert!(!members.contains_key("application"));
        shown.insert(own.to_string());
        // The record for operators has the checks.
        let record = world.decision(&answer).await;
        assert_eq!(record["checks"] == json!([]), application == "absent");
    }
    assert_eq!(shown.len(), 1, "{shown:?}");
}

#[tokio::test]
async fn callers_who_may_only_read_change_nothing() {
    let api = api(good).await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    let send = async |method: Method, user: &str, rest: &str| {
        let path = format!("{CART}{rest}");
        ask(&world, method, user, &path).body("{}").send().await.unwrap()
    };
    let read = send(Method::GET, "carol", "/version").await;
    assert_eq!(read.status(), 200);
    for (method, rest) in [
        (Method::POST, DEPLOYMENTS.to_owned()),
        (Method::POST, format!("{DEPLOYMENTS}?dryRun=All")),
        (Method::PUT, format!("{DEPLOYMENTS}/web")),
        (Method::PATCH, format!("{DEPLOYMENTS}/web/scale")),
        (Method::DELETE, format!("{DEPLOYMENTS}/web")),
        (Method::DELETE, DEPLOYMENTS.to_owned()),
    ] {
        let (status, message) = status_message(send(method.clone(), "carol", &rest).await).await;
        assert_eq!(status, 403, "{method} {rest}");
        assert!(message.ends_with("you may not sync this application"), "{message}");
    }
    assert_eq!(asked(&api).len(), 1);
}

#[tokio::test]
async fn a_projects_lists_stop_writes() {
    let api = api(good).await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    for (method, rest, allowed) in [
        (Method::POST, "/api/v1/namespaces/cart/configmaps", true),
        (Method::POST, "/api/v1/namespaces/cart/secrets", false),
        (Method::PATCH, "/api/v1/namespaces/cart/secrets/a?fieldManager=x", false),
        (Method::DELETE, "/api/v1/namespaces/cart/secrets", false),
        (Method::POST, "/api/v1/namespaces/other/configmaps", false),
        (Method::POST, "/api/v1/namespaces/cart-2/configmaps", true),
        (Method::POST, "/api/v1/namespaces", false),
        (Method::POST, "/healthz", false),
        (
            Method::POST,
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            true,
        ),
    ] {
        let path = format!("{CART}{rest}");
        let answer = ask(&world, method.clone(), "alice", &path)
            .body("{}")
            .send()
            .await
            .unwrap();
        let (status, message) = refusal(answer).await;
        assert_eq!(status == 200, allowed, "{method} {rest}: {status} {message}");
        assert!(allowed || status == 403, "{method} {rest}: {status} {message}");
    }
}

/// The status of a response, and the message unless the status is 200.
async fn refusal(answer: reqwest::Response) -> (u16, String) {
    match answer.status().as_u16() {
        200 => (200, String::new()),
        _ => status_message(answer).await,
    }
}

#[tokio::test]
async fn callers_cannot_impersonate() {
    let api = api(good).await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    for name in [
        "Impersonate-User",
        "Impersonate-Group",
        "Impersonate-Extra-a",
        "Impersonate_User",
    ] {
        let path = format!("{CART}{DEPLOYMENTS}");
        let answer = ask(&world, Method::GET, "alice", &path)
            .header(name, "system:admin")
            .send()
            .await
            .unwrap();
        let (status, message) = status_message(answer).await;
        assert_eq!(status, 400, "{name}: {message}");
    }
    assert!(only_its_own(&api));
}

#[tokio::test]
async fn the_front_is_disabled_by_default() {
    let api = api(good).await;
    let mut setup = setup(&api, "true", shop(&json!({})));
    setup.settings = json!({});
    let world = setup.start().await;
    let answer = ask(&world, Method::GET, "alice", &format!("{CART}/version"));
    assert_eq!(answer.send().await.unwrap().status(), 404);
}
