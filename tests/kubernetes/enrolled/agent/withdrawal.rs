//! The same changes take the same away, whether a cluster is dialed or its agent dials.

use serde_json::json;

use super::super::withdrawal::{ALL, OF_ACCOUNT, check_ends, check_in};
use super::super::{COMPONENT, Scene, project};
use super::site::{Site, secret};
use test_support::kubernetes::agent::AgentProcess;

/// A cluster that joined, and the process of its agent.
async fn joined() -> (Site, AgentProcess) {
    let site = Site::start().await;
    site.join(&[]).await;
    let agent = site.run().await;
    site.until_served().await;
    (site, agent)
}

/// Applies a change in a cluster that joined, and checks what ends.
async fn check(change: impl AsyncFnOnce(&Scene), ends: [bool; 3]) {
    let (site, _agent) = joined().await;
    check_in(&site.scene, change, ends).await;
}

#[tokio::test]
async fn everything_through_an_agent_ends_with_the_session_of_the_component() {
    let disable = async |scene: &Scene| {
        scene.gateway.rewrite(&scene.changed("ConfigMap", "argocd-cm", |map| {
            map["data"][format!("accounts.{COMPONENT}.enabled")] = "false".into();
        }));
    };
    check(disable, ALL).await;
}

#[tokio::test]
async fn what_acts_as_an_account_through_an_agent_ends_when_the_account_acts_no_more() {
    let rename = async |scene: &Scene| {
        scene
            .gateway
            .rewrite(&project("shop", scene.cluster.url(), &scene.home, "another"));
    };
    check(rename, OF_ACCOUNT).await;
}

#[tokio::test]
async fn everything_through_an_agent_ends_when_the_cluster_has_no_agent_any_more() {
    let take = async |scene: &Scene| {
        let mut object = secret(scene.cluster.url(), &json!({}));
        object["stringData"]["config"] = json!({"bearerToken": "unused"}).to_string().into();
        scene.gateway.rewrite(&object);
    };
    let (site, _agent) = joined().await;
    // The agent's connection ends first, so that the records say that it broke.
    check_ends(&site.scene, take, ALL).await;
}
