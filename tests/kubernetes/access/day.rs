//! One day of alice, by real kubectl.

use std::time::Duration;

use serde_json::{Value, json};

use super::world::{As, With, World};
use crate::kubelet::{enter, spoken};
use test_support::kubernetes::kubectl::{Kubectl, Protocol};

/// Everything, with one credential through one agent.
async fn day(with: With, agent: As) {
    let mut world = World::start().await;
    let bearer = world.bearer(with, agent).await;
    let kubectl = world.kubectl(&bearer);
    let here = format!("--namespace={}", world.home);
    objects(&kubectl, &here).await;
    watching(&kubectl, &here).await;
    large(&kubectl, &here).await;
    discovery(&world, &kubectl, agent).await;
    refused(&world, &kubectl, agent).await;
    logs(&kubectl, &here).await;
    // The second protocol in a second namespace: what was spoken is asked of it.
    enter(&kubectl, &world.home).await;
    spoken(world.cluster, &world.home, Protocol::WebSocket).await;
    audited(&world, &bearer, (with, agent)).await;
}

/// get, apply, server-side apply, delete.
async fn objects(kubectl: &Kubectl, here: &str) {
    let config_map = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"key": value}})
            .to_string()
    };
    let get = ["get", "configmap", "settings", here, "--output=jsonpath={.data.key}"];
    for (arguments, value) in [
        (["apply", here, "--filename=-"].as_slice(), "first"),
        (&["apply", here, "--filename=-"], "second"),
        (
            &["apply", here, "--filename=-", "--server-side", "--force-conflicts"],
            "third",
        ),
    ] {
        let run = kubectl.run_with(arguments, &config_map(value)).await;
        assert!(run.status.success(), "{arguments:?}: {run:?}");
        assert_eq!(kubectl.succeed(&get).await, value);
    }
    let patch = [
        "patch",
        "configmap",
        "settings",
        here,
        r#"--patch={"data":{"key":"fourth"}}"#,
    ];
    kubectl.succeed(&patch).await;
    assert_eq!(kubectl.succeed(&get).await, "fourth");
    kubectl.succeed(&["delete", "configmap", "settings", here]).await;
    let gone = kubectl.fail(&get).await;
    assert!(gone.contains(r#"configmaps "settings" not found"#), "{gone}");
}

/// An event is seen when it happens, not when the stream ends.
async fn watching(kubectl: &Kubectl, here: &str) {
    let mut watch = kubectl.start(&["get", "configmaps", here, "--watch", "--output=name"]);
    for name in ["one", "two"] {
        kubectl.succeed(&["create", "configmap", name, here]).await;
        assert!(watch.line(&format!("configmap/{name}")).await.is_some());
    }
    assert!(watch.runs());
}

/// A megabyte both ways.
async fn large(kubectl: &Kubectl, here: &str) {
    let text = "0123456789".repeat(100_000);
    let path = kubectl.home().join("large");
    std::fs::write(&path, &text).unwrap();
    let from = format!("--from-file=text={}", path.display());
    kubectl.succeed(&["create", "configmap", "large", here, &from]).await;
    let back = kubectl
        .succeed(&["get", "configmap", "large", here, "--output=jsonpath={.data.text}"])
        .await;
    assert!(back == text, "{} bytes came back", back.len());
}

/// Who I am, what I may, what there is.
async fn discovery(world: &World, kubectl: &Kubectl, agent: As) {
    let info = kubectl.json(&["auth", "whoami"]).await["status"]["userInfo"].clone();
    match agent {
        As::User => {
            assert_eq!(info["username"], "gitlab:user:alice");
            let groups: Vec<&str> = strings(&info["groups"]);
            for group in [
                "gitlab:user",
                "gitlab:group_role:2:reporter",
                "gitlab:group_role:2:developer",
                "system:authenticated",
            ] {
                assert!(groups.contains(&group), "{info}");
            }
            assert_eq!(groups.len(), 4, "{info}");
            let extra = &info["extra"];
            assert_eq!(extra["agent.gitlab.com/id"], json!([(agent as i64).to_string()]));
            assert_eq!(extra["agent.gitlab.com/username"], json!(["alice"]));
            assert_eq!(extra["agent.gitlab.com/config_project_id"], json!(["1234"]));
        }
        As::Agent => assert_eq!(info["username"], world.account(agent)),
    }
    for (namespace, may) in [(&world.home, "yes\n"), (&world.other, "no\n")] {
        let namespace = format!("--namespace={namespace}");
        let run = kubectl.run(&["auth", "can-i", "create", "pods", &namespace]).await;
        assert_eq!(run.stdout, may, "{run:?}");
    }
    let resources = kubectl.succeed(&["api-resources", "--output=name"]).await;
    for resource in ["configmaps", "deployments.apps", "roles.rbac.authorization.k8s.io"] {
        assert!(
            resources.lines().any(|line| line == resource),
            "{resource}: {resources}"
        );
    }
    assert_eq!(kubectl.json(&["version"]).await["serverVersion"]["major"], "1");
    let none = kubectl
        .fail(&["top", "pods", &format!("--namespace={}", world.home)])
        .await;
    assert!(none.contains("Metrics API not available"), "{none}");
}

/// The cluster's own RBAC decides, and speaks for itself.
async fn refused(world: &World, kubectl: &Kubectl, agent: As) {
    let there = format!("--namespace={}", world.other);
    let said = kubectl.fail(&["get", "pods", &there]).await;
    let username = match agent {
        As::User => "gitlab:user:alice".to_owned(),
        As::Agent => world.account(agent),
    };
    let text = format!(
        r#"Error from server (Forbidden): pods is forbidden: User "{username}" cannot list resource "pods" in API group "" in the namespace "{}""#,
        world.other
    );
    assert_eq!(said.trim_end(), text);

    let here = format!("--namespace={}", world.home);
    for flag in [
        "--as=bob",
        "--as-uid=1",
        "--as-group=system:masters",
        "--as=system:admin",
    ] {
        let mut arguments = vec!["get", "pods", &here, flag];
        if !flag.starts_with("--as=") {
            arguments.push("--as=bob");
        }
        let said = kubectl.fail(&arguments).await;
        assert!(
            said.contains("Impersonat") || said.contains("impersonat"),
            "{flag}: {said}"
        );
        assert!(said.contains("BadRequest"), "{flag}: {said}");
    }
}

/// A log is read line by line, as it grows.
async fn logs(kubectl: &Kubectl, here: &str) {
    let past = kubectl.succeed(&["logs", here, "pod", "--tail=1"]).await;
    assert!(past.starts_with("line 10 "), "{past}");
    let mut follow = kubectl.start(&["logs", "-f", here, "pod"]);
    for line in ["line 10 ", "line 12 "] {
        follow.line(line).await.unwrap();
    }
    assert!(follow.runs());
}

/// The cluster wrote down who it was told it is, under the number of the decision.
async fn audited(world: &World, bearer: &str, (with, agent): (With, As)) {
    // A name with an escaped slash arrives as it was sent.
    let path = format!("/api/v1/namespaces/{}/configmaps/a%2Fb?x=%2F&y=a+b", world.home);
    let url = format!("{}/k8s-proxy{path}", world.gateway.url());
    let answer = world.gateway.plain_client().get(&url).bearer_auth(bearer).send().await;
    let answer = answer.unwrap();
    let id = answer.headers()["audit-id"].to_str().unwrap().to_owned();
    assert_eq!(answer.status(), 404, "{}", answer.text().await.unwrap());

    let event = world.cluster.audit().of(&id).await;
    assert_eq!(event["requestURI"], path);
    assert_eq!(event["user"]["username"], world.account(agent));
    let decision = world.gateway.admin(&format!("/decisions/{id}")).await;
    assert_eq!(
        (&decision["outcome"], &decision["front"]),
        (&json!("allowed"), &json!("kubernetes"))
    );
    let note = &decision["kubernetes"];
    assert_eq!(
        (&note["user"]["username"], &note["agent"]),
        (&json!("alice"), &json!(agent as i64))
    );
    let access_type = match with {
        With::Pat => "personal_access_token",
        With::IdToken => "oidc_id_token",
    };
    assert_eq!(note["access_type"], access_type);
    match agent {
        As::User => {
            let whom = &event["impersonatedUser"];
            assert_eq!(whom["username"], "gitlab:user:alice");
            assert_eq!(
                whom["groups"],
                json!([
                    "gitlab:user",
                    "gitlab:group_role:2:reporter",
                    "gitlab:group_role:2:developer",
                    "system:authenticated",
                ])
            );
            assert_eq!(
                whom["extra"],
                json!({
                    "agent.gitlab.com/id": ["9999"],
                    "agent.gitlab.com/username": ["alice"],
                    "agent.gitlab.com/access_type": [access_type],
                    "agent.gitlab.com/config_project_id": ["1234"],
                })
            );
            assert_eq!(note["impersonated"]["username"], "gitlab:user:alice");
        }
        As::Agent => {
            assert_eq!(event.get("impersonatedUser"), None, "{event}");
            assert_eq!(note.get("impersonated"), None, "{note}");
        }
    }
    // Nothing of the credential is anywhere.
    let secret = bearer.rsplit(':').next().unwrap();
    for text in [event.to_string(), decision.to_string()] {
        assert!(!text.contains(secret), "{text}");
    }
}

fn strings(values: &Value) -> Vec<&str> {
    let values = values.as_array().unwrap().iter();
    values.map(|value| value.as_str().unwrap()).collect()
}

#[tokio::test]
async fn with_a_personal_token_as_herself() {
    day(With::Pat, As::User).await;
}

#[tokio::test]
async fn with_an_id_token_as_herself() {
    day(With::IdToken, As::User).await;
}

#[tokio::test]
async fn with_a_personal_token_as_the_agent() {
    day(With::Pat, As::Agent).await;
}

#[tokio::test]
async fn with_an_id_token_as_the_agent() {
    day(With::IdToken, As::Agent).await;
}

/// What kubectl does when WebSockets do not get through.
#[tokio::test]
async fn pods_are_entered_with_spdy() {
    let world = World::start().await;
    for agent in [As::User, As::Agent] {
        let kubectl = world.kubectl(&world.token(agent).await.bearer).speak(Protocol::Spdy);
        enter(&kubectl, &world.home).await;
    }
    spoken(world.cluster, &world.home, Protocol::Spdy).await;
}

/// How long a watch without events is watched here.
const IDLE: Duration = Duration::from_secs(600);

pub(super) async fn idle_watch() {
    let world = World::start().await;
    let kubectl = world.kubectl(&world.token(As::User).await.bearer);
    let here = format!("--namespace={}", world.home);
    let mut watch = kubectl.start(&["get", "secrets", &here, "--watch-only", "--output=name"]);
    let mut follow = kubectl.start(&["exec", "-i", &here, "pod", "--", "cat"]);
    tokio::time::sleep(IDLE).await;
    assert!(watch.runs() && follow.runs());
    kubectl.succeed(&["create", "secret", "generic", "late", &here]).await;
    assert_eq!(watch.line("secret/").await.as_deref(), Some("secret/late\n"));
    follow.say("still there\n").await;
    assert_eq!(follow.line("still").await.as_deref(), Some("still there\n"));
    // It was one watch all the time.
    let is = |event: &Value| {
        let object = &event["objectRef"];
        event["verb"] == "watch" && object["resource"] == "secrets" && object["namespace"] == world.home.as_str()
    };
    let stage = |event: &Value| event["stage"] == "ResponseStarted";
    world.cluster.audit().find(|event| is(event)).await;
    let events = world.cluster.audit().events();
    assert_eq!(events.iter().filter(|event| is(event) && stage(event)).count(), 1);
}
