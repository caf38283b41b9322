//! Credentials that the API returns to callers, and its list of clusters.

use serde_json::{Value, json};

use super::minted::{ROBOT, cluster_of, issuer, world};
use super::{bearer, cluster, get, refusal, setup};

#[tokio::test]
async fn a_credential_is_given_to_those_granted_it_alone() {
    let (issuer, api) = (issuer().await, cluster_of(|_| true).await);
    let (setup, _folder) = world(&issuer, &api);
    let world = setup.start().await;
    let path = "/api/v1/clusters/prod/credential";
    for user in ["bob", "carol"] {
        let answer = get(&world, user, path).send().await.unwrap();
        assert_eq!(
            refusal(answer).await,
            (403, "permission_denied".into(), String::new()),
            "{user}"
        );
    }
    assert!(issuer.seen().is_empty());
    let answer = get(&world, "alice", path).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let record = world.decision(&answer).await;
    let body: Value = answer.json().await.unwrap();
    assert_eq!(body["apiVersion"], "client.authentication.k8s.io/v1");
    assert_eq!(
        (&body["kind"], &body["status"]["token"]),
        (&json!("ExecCredential"), &json!("minted-1"))
    );
    let until: jiff::Timestamp = body["status"]["expirationTimestamp"].as_str().unwrap().parse().unwrap();
    let left = until.duration_since(jiff::Timestamp::now()).as_secs();
    assert!((3500..=3570).contains(&left), "30 s before its end: {left}");
    let checks = record["checks"].as_array().unwrap();
    assert_eq!(
        (&checks[1]["resource"], &checks[1]["action"]),
        (&json!("credentials"), &json!("get"))
    );
    assert!(!record.to_string().contains("minted-1"));
}

#[tokio::test]
async fn credentials_that_clients_cannot_present_are_refused() {
    let api = cluster_of(|_| true).await;
    let config = json!({"username": "u", "password": "p4ss"});
    let world = setup(vec![cluster("prod", &api.url(), &config, &[])]).start().await;
    let answer = get(&world, "alice", "/api/v1/clusters/prod/credential")
        .send()
        .await
        .unwrap();
    let (status, reason, _) = refusal(answer).await;
    assert_eq!((status, &*reason), (409, "credential_not_portable"));
}

#[tokio::test]
async fn clusters_are_listed_to_those_who_may_see_them() {
    let (issuer, api) = (issuer().await, cluster_of(|_| true).await);
    let (mut setup, _folder) = world(&issuer, &api);
    setup
        .objects
        .push(cluster("other", "https://other.example", &bearer(&api, "s3cret"), &[]));
    let policy = format!(
        "p, alice, clusters, get, *, allow\np, carol, clusters, get, {0}, allow\n\
         p, carol, clusters, connect, {0}, allow\n",
        api.url()
    );
    setup.rbac_cm.insert("policy.csv".into(), policy);
    let world = setup.start().await;
    let list = async |user: &str| -> Vec<Value> {
        let answer = get(&world, user, "/api/v1/clusters").send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let text = answer.text().await.unwrap();
        assert!(!text.contains("s3cret") && !text.contains("minted-") && !text.contains(ROBOT));
        let body: Value = serde_json::from_str(&text).unwrap();
        body["items"].as_array().unwrap().clone()
    };
    assert!(list("bob").await.is_empty());
    let seen = list("carol").await;
    assert_eq!(
        (seen.len(), &seen[0]["name"], &seen[0]["credential"]["standing"]),
        (1, &json!("prod"), &json!("idle"))
    );
    assert_eq!(
        get(&world, "carol", "/clusters/prod/k8s/api")
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    let seen = list("carol").await;
    assert_eq!(seen[0]["credential"]["standing"], "usable");
    assert_eq!(seen[0]["credential"]["generation"], 1);
    assert!(seen[0]["credential"]["expiresAt"].is_string());
    let names: Vec<Value> = list("alice").await.into_iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}
