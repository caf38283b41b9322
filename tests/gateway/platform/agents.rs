//! `GET /api/v1/agents`.

use serde_json::{Value, json};

use super::{environment, environment_with, no, refused};

fn names(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn people_see_the_agents_shared_with_them() {
    let environment = environment_with(json!({"publicURL": "https://t.example/k8s-proxy/"})).await;
    let seen = environment.items("alice", "agents").await;
    let roles = json!([
        {"kind": "project", "id": 7, "path": "group-1/project-1", "roles": ["reporter", "developer"]},
    ]);
    let expected = json!([{
        "id": 9999, "name": "prod", "cluster": "production", "accessAs": "user", "roles": roles,
        "kubeconfig": {"server": "https://t.example/k8s-proxy/", "context": "prod"},
    }]);
    assert_eq!(json!(seen), expected);
    assert_eq!(names(&environment.items("bob", "agents").await), ["mapped", "stage"]);
    assert_eq!(
        names(&environment.items("bob", "agents?user=bob").await),
        ["mapped", "stage"]
    );
}

#[tokio::test]
async fn unknown_users_learn_which_setting_would_link_them() {
    let environment = environment().await;
    let answer = environment.get("carol", "agents").send().await.unwrap();
    assert_eq!(answer.status(), 403);
    let body: Value = answer.json().await.unwrap();
    assert_eq!(body["reason"], "user_not_linked");
    let text = body["error"].as_str().unwrap();
    assert!(text.contains("`carol`") && text.contains("kubernetes.users"), "{text}");
    assert_eq!(refused(environment.get("eve", "agents")).await, no(403, "user_blocked"));
    assert_eq!(
        refused(environment.get("eve", "agents?user=*")).await,
        no(403, "user_blocked")
    );
    // Without a credential, the answer does not even say that.
    let url = format!("http://{}/api/v1/agents", environment.world.address());
    assert_eq!(refused(reqwest::Client::new().get(url)).await.0, 401);
}

#[tokio::test]
async fn administrators_see_what_they_administer() {
    let environment = environment().await;
    let all = environment.items("carol", "agents?user=*").await;
    assert_eq!(names(&all), ["mapped", "shut", "stage", "prod"]);
    assert!(
        all.iter()
            .all(|item| item["accessAs"].is_null() && item["roles"] == json!([]))
    );
    assert_eq!(names(&environment.items("carol", "agents?user=alice").await), ["prod"]);
    assert_eq!(names(&environment.items("dora", "agents?user=*").await), ["prod"]);
    assert_eq!(names(&environment.items("dora", "agents?user=alice").await), ["prod"]);
    // The twins: without the permission, and with an unknown parameter.
    assert_eq!(names(&environment.items("alice", "agents?user=*").await), ["prod"]);
    let denied = no(403, "permission_denied");
    assert_eq!(refused(environment.get("alice", "agents?user=bob")).await, denied);
    assert_eq!(refused(environment.get("dora", "agents?user=bob")).await, denied);
    assert_eq!(refused(environment.get("alice", "agents?user=nobody")).await, denied);
    assert_eq!(
        refused(environment.get("alice", "agents?all=1")).await,
        no(400, "bad_query")
    );
}
