//! What the gateway keeps of a day, and how one begins.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use super::world::{As, World};
use test_support::kubernetes::kubectl::Kubectl;

/// Rows of the audit log that are alice's own, newest first.
async fn rows(world: &World, is: impl Fn(&Value) -> bool) -> Vec<Value> {
    let answer = world.api(Method::GET, "/api/v1/audit?limit=1000", &json!({})).await;
    let rows = answer["items"].as_array().unwrap().iter();
    rows.filter(|row| is(row)).cloned().collect()
}

/// Whether a row is about this verb and resource, with its subresource.
fn about(row: &Value, verb: &str, resource: &str) -> bool {
    let details = &row["details"];
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    details["verb"] == verb
        && details["resource"] == resource
        && details["subresource"].as_str().unwrap_or_default() == subresource
}

/// Reads are counted together; shells, changes and refusals are not.
#[tokio::test]
async fn each_shell_change_and_refusal_is_a_row_and_reads_are_counted() {
    let world = World::start().await;
    let token = world.token(As::User).await;
    let kubectl = world.kubectl(&token.bearer);
    let here = format!("--namespace={}", world.home);
    for name in ["one", "two"] {
        kubectl.succeed(&["create", "configmap", name, &here]).await;
        kubectl.succeed(&["exec", &here, "pod", "--", "true"]).await;
        kubectl.fail(&["delete", "configmap", name, &here, "--as=bob"]).await;
    }
    let path = format!("/api/v1/namespaces/{}/configmaps", world.home);
    let client = world.gateway.plain_client();
    for _ in 0..50 {
        let url = format!("{}/k8s-proxy{path}", world.gateway.url());
        let answer = client.get(url).bearer_auth(&token.bearer).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }

    let created = rows(&world, |row| about(row, "create", "configmaps")).await;
    let shells = rows(&world, |row| about(row, "create", "pods/exec")).await;
    let refused = rows(&world, |row| row["action"] == "access.denied").await;
    for (rows, count, action) in [(&created, 2, "access.allowed"), (&shells, 2, "access.allowed")] {
        assert_eq!(rows.len(), count, "{rows:?}");
        for row in rows {
            assert_eq!((&row["action"], &row["count"]), (&json!(action), &json!(1)), "{row}");
            assert_eq!(row["details"]["impersonated_user"], "gitlab:user:alice", "{row}");
            let id = row["details"]["audit_id"].as_str().unwrap();
            let event = world.cluster.audit().of(id).await;
            assert_eq!(event["impersonatedUser"]["username"], "gitlab:user:alice");
        }
    }
    // kubectl may ask more than once before it gives up.
    assert!(refused.len() >= 2, "{refused:?}");
    assert!(refused.iter().all(|row| row["count"] == 1), "{refused:?}");
    // Nothing waits for rows of reads: they come when they come.
    let listed = test_support::kubernetes::eventually("the reads are counted", async || {
        let rows = rows(&world, |row| about(row, "list", "configmaps")).await;
        let count: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
        (count == 50).then_some(rows)
    })
    .await;
    assert!(listed.len() <= 2, "one bucket, or two at its border: {listed:?}");
    assert_eq!(rows(&world, |row| row["action"] == "token.created").await.len(), 1);

    // The secret is in no file of the gateway's.
    let secret = token.bearer.rsplit(':').next().unwrap();
    nowhere(&world.gateway.path(""), secret.as_bytes());
}

/// No file below `folder` has `secret`.
fn nowhere(folder: &Path, secret: &[u8]) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            nowhere(&path, secret);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let found = bytes.windows(secret.len()).any(|window| window == secret);
        assert!(!found, "{}", path.display());
    }
}

/// From nothing to a namespace's pods with two commands.
#[tokio::test]
async fn a_kubeconfig_of_the_command_line_is_all_that_kubectl_needs() {
    let world = World::start().await;
    let agents = world.tollgate(&["agent", "list"]).await;
    for name in ["agent-people", "agent-robots"] {
        assert!(agents.contains(name), "{agents}");
    }
    for (agent, username) in [
        ("9999", "gitlab:user:alice".to_owned()),
        ("agent-robots", world.account(As::Agent)),
    ] {
        let kubeconfig = world
            .tollgate(&["kubeconfig", "--agent", agent, "--namespace", &world.home])
            .await;
        let kubectl = Kubectl::with_kubeconfig(&kubeconfig);
        let whoami = kubectl.json(&["auth", "whoami"]).await;
        assert_eq!(whoami["status"]["userInfo"]["username"], username);
        assert_eq!(kubectl.succeed(&["get", "pods", "--output=name"]).await, "pod/pod\n");
    }
}
