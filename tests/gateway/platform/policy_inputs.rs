//! The input of a decision about a request through an agent.

use reqwest::Method;
use serde_json::{Value, json};

use super::environment;
use crate::policy_inputs::{id, input_of, policy, text};

const AGENTS: &str = "policies/kubernetes/data/agents.yaml";

#[tokio::test]
async fn a_decision_about_an_agent_is_made_again_from_its_id() {
    let environment = environment().await;
    let world = &environment.world;
    let made = environment.made().await;
    let bearer = made["bearer"].as_str().unwrap();
    let enter = async |method: Method| {
        let url = format!("http://{}/k8s-proxy/api/v1/namespaces/shop/pods", world.address());
        let request = reqwest::Client::new().request(method, url).bearer_auth(bearer);
        request.send().await.unwrap()
    };
    // Only reads pass.
    let agents = std::fs::read_to_string(world.path(AGENTS)).unwrap();
    std::fs::write(world.path(AGENTS), agents + "\nprod: {verbs: [get, list, watch]}\n").unwrap();
    world
        .until("the policy is in force", async || {
            enter(Method::POST).await.status() == 403
        })
        .await;
    for (method, verb, status, decision) in [
        (Method::GET, "list", 200, json!({"allow": true, "reason": "allowed"})),
        (
            Method::POST,
            "create",
            403,
            json!({"allow": false, "reason": "the agent does not allow this verb"}),
        ),
    ] {
        let answer = enter(method).await;
        assert_eq!(answer.status(), status);
        let id = id(&answer);
        let record: Value = serde_json::from_str(&world.admin(&format!("/decisions/{id}")).await).unwrap();
        let shown = input_of(world, &id).await;
        let role = json!({"id": 7, "path": "group-1/project-1", "roles": ["reporter", "developer"]});
        let identity = &shown["input"]["identity"];
        assert_eq!(identity["username"], "gitlab:user:alice");
        let expected = json!({
            "decision_id": id,
            "front": "kubernetes",
            "policy_sha256": record["policy_sha256"],
            "input": {
                "agent": {"id": 9999, "name": "prod", "config_project": 1, "cluster": "production"},
                "user": {"id": 101, "username": "alice"},
                "access": {
                    "type": "personal_access_token", "as": "user", "projects": [role], "groups": [],
                },
                "identity": identity,
                "request": {
                    "verb": verb, "verbs": [verb], "resourceRequest": true, "apiGroup": "", "apiVersion": "v1",
                    "resource": "pods", "namespace": "shop", "path": "/api/v1/namespaces/shop/pods",
                },
                "time": record["timestamp"],
            },
            "left_out": [],
        });
        assert_eq!(shown, expected);
        assert!(!shown.to_string().contains(bearer));
        let output = policy(world, ["eval", "kubernetes", &id], &["-o", "json"]).await;
        assert_eq!(
            serde_json::from_slice::<Value>(&output.stdout).unwrap(),
            decision,
            "{output:?}"
        );
        assert_eq!(text(&output.stderr), "");
        // Another request of the same person.
        let other = ["--request", "GET /api/v1/nodes", "-o", "json"];
        let output = policy(world, ["explain", "kubernetes", &id], &other).await;
        let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(explained["decision"], json!({"allow": true, "reason": "allowed"}));
        assert_eq!(explained["input"]["request"]["resource"], "nodes");
        assert_eq!(&explained["input"]["identity"], identity);
    }
}
