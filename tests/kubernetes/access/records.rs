//! Audit rows of requests, and the kubeconfig that the command line prints.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use super::fixture::{AccessAs, Fixture};
use test_support::kubernetes::kubectl::Kubectl;

/// The rows of alice's audit log for which `is` holds, newest first.
async fn rows(fixture: &Fixture, is: impl Fn(&Value) -> bool) -> Vec<Value> {
    let answer = fixture.api(Method::GET, "/api/v1/audit?limit=1000", &json!({})).await;
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

/// Reads are counted in buckets. Each shell, change and refusal has a row.
#[tokio::test]
async fn each_shell_change_and_refusal_is_a_row_and_reads_are_counted() {
    let fixture = Fixture::start().await;
    let token = fixture.token(AccessAs::User).await;
    let kubectl = fixture.kubectl(&token.bearer);
    let here = format!("--namespace={}", fixture.home);
    for name in ["one", "two"] {
        kubectl.succeed(&["create", "configmap", name, &here]).await;
        kubectl.succeed(&["exec", &here, "pod", "--", "true"]).await;
        kubectl.fail(&["delete", "configmap", name, &here, "--as=bob"]).await;
    }
    let path = format!("/api/v1/namespaces/{}/configmaps", fixture.home);
    let client = fixture.gateway.plain_client();
    for _ in 0..50 {
        let url = format!("{}/k8s-proxy{path}", fixture.gateway.url());
        let answer = client.get(url).bearer_auth(&token.bearer).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }

    let created = rows(&fixture, |row| about(row, "create", "configmaps")).await;
    let shells = rows(&fixture, |row| about(row, "create", "pods/exec")).await;
    let refused = rows(&fixture, |row| row["action"] == "access.denied").await;
    for (rows, count, action) in [(&created, 2, "access.allowed"), (&shells, 2, "access.allowed")] {
        assert_eq!(rows.len(), count, "{rows:?}");
        for row in rows {
            assert_eq!((&row["action"], &row["count"]), (&json!(action), &json!(1)), "{row}");
            assert_eq!(row["details"]["impersonated_user"], "gitlab:user:alice", "{row}");
            let id = row["details"]["audit_id"].as_str().unwrap();
            let event = fixture.cluster.audit().of(id).await;
            assert_eq!(event["impersonatedUser"]["username"], "gitlab:user:alice");
        }
    }
    // kubectl may repeat a refused request.
    assert!(refused.len() >= 2, "{refused:?}");
    assert!(refused.iter().all(|row| row["count"] == 1), "{refused:?}");
    // Rows of reads are written later.
    let listed = test_support::kubernetes::eventually("the reads are counted", async || {
        let rows = rows(&fixture, |row| about(row, "list", "configmaps")).await;
        let count: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
        (count == 50).then_some(rows)
    })
    .await;
    assert!(listed.len() <= 2, "more than two buckets: {listed:?}");
    assert_eq!(rows(&fixture, |row| row["action"] == "token.created").await.len(), 1);

    // The secret is in no file of the gateway.
    let secret = token.bearer.rsplit(':').next().unwrap();
    assert_nowhere(&fixture.gateway.path(""), secret.as_bytes());
}

/// Asserts that no file below `folder` contains `secret`.
fn assert_nowhere(folder: &Path, secret: &[u8]) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_nowhere(&path, secret);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let found = bytes.windows(secret.len()).any(|window| window == secret);
        assert!(!found, "{}", path.display());
    }
}

/// Two commands are enough to list the pods of a namespace.
#[tokio::test]
async fn kubectl_works_with_the_printed_kubeconfig() {
    let fixture = Fixture::start().await;
    let agents = fixture.tollgate(&["agent", "list"]).await;
    for name in ["agent-people", "agent-robots"] {
        assert!(agents.contains(name), "{agents}");
    }
    for (agent, username) in [
        ("9999", "gitlab:user:alice".to_owned()),
        ("agent-robots", fixture.account(AccessAs::Agent)),
    ] {
        let kubeconfig = fixture
            .tollgate(&["kubeconfig", "--agent", agent, "--namespace", &fixture.home])
            .await;
        let kubectl = Kubectl::with_kubeconfig(&kubeconfig);
        let whoami = kubectl.json(&["auth", "whoami"]).await;
        assert_eq!(whoami["status"]["userInfo"]["username"], username);
        assert_eq!(kubectl.succeed(&["get", "pods", "--output=name"]).await, "pod/pod\n");
    }
}
