//! Join tokens and keys: one agent joins with one command, and nobody else with a copy of what it has.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::COMPONENT;
use super::site::Site;
use test_support::kubernetes::eventually;

/// The longest time from the answer to a revocation until the gateway ends what is open.
const WITHIN: SignedDuration = SignedDuration::from_secs(1);

#[tokio::test]
async fn a_cluster_joins_with_one_command_and_the_token_works_once() {
    let site = Site::start().await;
    let token = site.join(&[]).await;
    let agent = site.run().await;
    site.until_served().await;
    site.until_token_removed().await;
    assert!(site.joined.member("key.pem").await.is_some());
    let shown = site.agents().await;
    assert_eq!(shown["connections"].as_array().unwrap().len(), 1, "{shown}");
    assert_eq!(
        (&shown["keys"][0]["from"], &shown["keys"][0]["key"]),
        (&json!("joined"), &shown["connections"][0]["key"])
    );
    assert!(
        !agent.log().contains(&token)
            && !site
                .scene
                .gateway
                .log()
                .iter()
                .any(|line| line.to_string().contains(&token))
    );

    // A thief has a copy of the manifests.
    let stolen = site.joined.run_stolen().await;
    stolen.until_logged("token_spent").await;
    assert_eq!(site.agents().await["connections"].as_array().unwrap().len(), 1);
    let metrics = site.scene.gateway.admin_text("/metrics").await;
    assert!(
        metrics.contains(r#"tollgate_connector_events_total{event="agent.refused",reason="token_spent"}"#),
        "{metrics}"
    );
    assert!(metrics.contains("tollgate_connectors_connected 1\n"), "{metrics}");
}

#[tokio::test]
async fn a_revoked_key_ends_what_is_open_and_another_token_brings_the_agent_back() {
    let site = Site::start().await;
    site.join(&[]).await;
    let agent = site.run().await;
    site.until_served().await;
    let namespace = format!("--namespace={}", site.scene.home);
    let kubectl = site.scene.kubectl(COMPONENT);
    let mut watch = kubectl.start(&["get", "configmaps", "--watch-only", "--output=name", &namespace]);
    site.scene.until_watches(1).await;

    let key = site.agents().await["keys"][0]["key"].as_str().unwrap().to_owned();
    let refused = site
        .tollgate(&["cluster", "revoke-key", "destination", &"0".repeat(64)])
        .await;
    assert!(
        !refused.status.success() && refused.stderr.contains("Secret"),
        "{refused:?}"
    );
    assert!(watch.runs());
    let revoked = site.tollgate(&["cluster", "revoke-key", "destination", &key]).await;
    assert!(revoked.status.success(), "{revoked:?}");
    let answered = Timestamp::now();
    assert!(watch.line("no such line").await.is_none());
    // kubectl may notice later on a busy machine.
    let cut = eventually("the gateway logs that it disconnected the agent", async || {
        let lines = site.scene.gateway.log();
        let is_it = |line: &&Value| {
            let message = line["fields"]["message"].as_str().unwrap_or_default();
            message.contains("is not known any more") && line["fields"]["key"] == key.as_str()
        };
        let line = lines.iter().find(is_it)?;
        line["timestamp"].as_str()?.parse::<Timestamp>().ok()
    })
    .await;
    let took = cut.duration_since(answered);
    assert!(took < WITHIN, "it ended after {took:?}");
    agent.until_logged("key_revoked").await;
    assert!(!site.read(&site.scene.gateway).await.status.success());

    // The agent notices the new token by itself, and makes another key.
    site.join(&[]).await;
    site.until_served().await;
    let keys = site.agents().await["keys"].clone();
    let states: Vec<bool> = keys
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["revokedAt"].is_null())
        .collect();
    assert_eq!(states.iter().filter(|is_good| **is_good).count(), 1, "{keys}");
    assert_eq!(states.len(), 2, "{keys}");
}

#[tokio::test]
async fn an_agent_replaces_an_old_key_and_nothing_is_cut() {
    let site = Site::start().await;
    site.join(&[]).await;
    let first = site.run().await;
    site.until_served().await;
    let before = site.agents().await["connections"][0]["key"].clone();
    drop(first);
    // From now on the key is older than a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _agent = site.run_with(&json!({"rotateKeyEvery": "1s"})).await;
    site.until_served().await;
    let namespace = format!("--namespace={}", site.scene.home);
    let kubectl = site.scene.kubectl(COMPONENT);
    let mut watch = kubectl.start(&["get", "configmaps", "--watch-only", "--output=name", &namespace]);
    site.scene.until_watches(1).await;
    let after = eventually("the gateway knows the agent by another key", async || {
        let key = site.agents().await["connections"][0]["key"].clone();
        (key.is_string() && key != before).then_some(key)
    })
    .await;
    assert!(watch.runs());
    let keys = site.agents().await["keys"].clone();
    let of = |key: &Value| {
        keys.as_array()
            .unwrap()
            .iter()
            .find(|one| one["key"] == *key)
            .unwrap()
            .clone()
    };
    assert!(
        of(&before)["expiresAt"].is_string() && of(&after)["expiresAt"].is_null(),
        "{keys}"
    );
    assert!(site.joined.member("next.pem").await.is_none());
}
