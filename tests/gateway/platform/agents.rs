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

/// Container runtimes start processes with a low soft limit, and each request has a connection.
#[tokio::test]
async fn the_process_of_an_agent_may_open_as_many_files_as_the_hard_limit_permits() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let authority = test_support::authority::Authority::new("agent");
    write("ca.pem", &authority.pem);
    write("token", "a-token");
    // Nobody listens there.
    let nobody = format!("https://127.0.0.1:{}", test_support::port::free_port());
    let settings = json!({
        "gateway": nobody, "certificateAuthority": "ca.pem", "cluster": "prod", "key": "key.pem",
        "apiServer": {"url": nobody, "certificateAuthority": "ca.pem", "token": "token"},
    });
    write("agent.yaml", &settings.to_string());
    test_support::kubernetes::agent::make_key(folder.path()).await;
    let process = tokio::process::Command::new("sh")
        .args(["-c", "ulimit -Sn 256; exec \"$0\" run --config \"$1\""])
        .arg(test_support::connector())
        .arg(folder.path().join("agent.yaml"))
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let limits = format!("/proc/{}/limits", process.id().unwrap());
    test_support::kubernetes::eventually("the soft limit is the hard one", async || {
        let text = std::fs::read_to_string(&limits).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
        let [soft, hard] = line.unwrap().split_whitespace().take(2).collect::<Vec<_>>()[..] else {
            panic!("{text}");
        };
        (soft == hard && soft != "256").then_some(())
    })
    .await;
}
