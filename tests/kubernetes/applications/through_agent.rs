//! Applications whose cluster the gateway cannot dial: what it asks the cluster for itself, discovery, objects
//! and its own rights, goes through the agent as what people send does.

use serde_json::{Value, json};

use super::fixture::{Fixture, FixtureBuilder, Source, guestbook, run_apply, user};
use test_support::kubernetes::agent::{AgentProcess, ApiServer, make_key};
use test_support::kubernetes::eventually;

/// What the gateway knows about its rights in the cluster.
async fn rights(fixture: &Fixture) -> Option<Value> {
    let report = fixture.gateway.admin("/applications").await;
    report["clusters"].as_array()?.first().cloned()
}

#[tokio::test]
async fn the_gateway_learns_of_a_cluster_through_its_agent() {
    let files = tempfile::tempdir().unwrap();
    let mut builder = FixtureBuilder::new(Source::Directory).await;
    let there = builder.guestbook.clone();
    builder.deployer(&there, "deployer", &[&there]);
    builder.project(
        "shop",
        &json!({
            "destinationServiceAccounts": [builder.acts(&there, "deployer")],
            "namespaceResourceBlacklist": [{"group": "", "kind": "Service"}],
        }),
    );
    builder.application("guestbook", "shop", &builder.to(&there));
    builder.agent_key = Some(make_key(files.path()).await);
    let fixture = builder.start().await;
    let kubectl = fixture.kubectl("alice", "guestbook");
    let absent = eventually("the gateway asked", async || {
        let rights = rights(&fixture).await?;
        rights.get("problem").is_some().then_some(rights)
    })
    .await;
    let problem = absent["problem"].as_str().unwrap();
    assert_eq!(
        problem,
        "it cannot be reached now: the cluster's connector is not connected"
    );

    let server = ApiServer {
        url: fixture.cluster.url(),
        authority: fixture.cluster.authority(),
        token: &fixture.token,
    };
    let accounts = [format!("{there}:deployer")];
    let more = json!({"impersonate": {"serviceAccounts": accounts}});
    let _agent = AgentProcess::with_key(files.path(), &fixture.gateway, server, &more);
    // Discovery: kinds are the project's, and requests name resources.
    let refused = eventually("the cluster is there", async || {
        let run = run_apply(&kubectl, &guestbook(&there, "guestbook")).await;
        run.stderr.contains("Service").then_some(run)
    })
    .await;
    assert!(refused.stderr.contains("is not permitted in project"), "{refused:?}");
    fixture.wrote(&there, "guestbook", &user(&there, "deployer")).await;
    let known = eventually("the gateway knows its rights", async || {
        rights(&fixture).await.filter(|rights| rights.get("problem").is_none())
    })
    .await;
    let granted = json!({"granted": 1, "missing": 0, "unknown": 0});
    assert_eq!(known["impersonation"], granted, "{known}");
    let extra = known["extra"].as_array().unwrap();
    assert!(extra.iter().all(|key| key["state"] == "missing"), "{known}");
}
