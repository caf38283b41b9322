//! ApplicationSets in a real cluster: which reads the gateway makes for which caller.

use serde_json::{Value, json};

use crate::applications::fixture::{FixtureBuilder, Source, apply};
use test_support::kubernetes::gateway::Gateway;

const API: &str = "/api/v1/applicationsets";

/// alice may do everything, mallory nothing.
const POLICY: &str = "p, alice, applicationsets, *, */*, allow\np, alice, applications, *, */*, allow\n";

fn set(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"generators": [{"list": {"elements": [{"name": "a"}]}}], "template": {
            "metadata": {"name": "{{name}}"},
            "spec": {
                "project": "dev", "destination": {"name": "home", "namespace": "a"},
                "source": {"repoURL": "https://git.example.org/r", "path": "."},
            },
        }},
    })
}

/// The statuses of 50 concurrent requests.
async fn fifty(gateway: &Gateway, who: &str, rest: &str) -> Vec<u16> {
    let client = gateway.client(who);
    let url = format!("{}{API}{rest}", gateway.url());
    let asked = (0..50).map(|_| client.get(&url).send());
    let answers = futures_util::future::join_all(asked).await;
    let status = |answer: Result<reqwest::Response, reqwest::Error>| answer.unwrap().status().as_u16();
    answers.into_iter().map(status).collect()
}

/// Anybody who is signed in may send requests. Reading all Applications of a namespace for each of
/// 50 concurrent requests would fill memory.
#[tokio::test]
async fn who_is_refused_has_nothing_read() {
    let mut builder = FixtureBuilder::new(Source::Kubernetes).await;
    builder.layout.settings(json!({"applicationSets": {}}));
    builder.layout.policies("applicationsets");
    builder.layout.object(
        "ConfigMap",
        "argocd-rbac-cm",
        &json!({}),
        &json!({"policy.csv": POLICY}),
    );
    builder.project("dev", &json!({"sourceRepos": ["*"]}));
    let namespace = builder.control.clone();
    apply(builder.cluster, &[set(&namespace, "shop")]).await;
    let fixture = builder.start().await;
    let reader = format!("system:serviceaccount:{namespace}:reader");
    // Reads a set as alice and waits for the event. Earlier requests are in the log by then.
    let client = fixture.gateway.client("alice");
    let read = async |name: &str| {
        let url = format!("{}{API}/{name}", fixture.gateway.url());
        let answer = client.get(url).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        let path = format!("/{namespace}/applicationsets/{name}");
        let is_it = |event: &Value| {
            let uri = event["requestURI"].as_str().unwrap_or_default();
            event["stage"] == "ResponseComplete" && uri.ends_with(&path) && event["user"]["username"] == *reader
        };
        fixture.cluster.audit().find_with(&namespace, is_it).await;
    };
    let asked = || {
        let events = fixture.cluster.audit().events_with(&namespace);
        let of_sets = events.into_iter().filter(|event| {
            let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
            event["user"]["username"] == *reader
                && event["stage"] == "ResponseComplete"
                && ["applications", "applicationsets"].contains(&resource)
                && event["verb"] != "watch"
        });
        of_sets.count()
    };
    read("shop").await;
    let before = asked();
    for (who, rest, status) in [
        ("mallory", "/none", 404),
        ("mallory", "/shop", 404),
        ("mallory", "/shop/resource-tree", 404),
        ("mallory", "", 200),
        ("alice", "/none", 404),
    ] {
        assert_eq!(fifty(&fixture.gateway, who, rest).await, [status; 50], "{who} {rest}");
    }
    apply(fixture.cluster, &[set(&namespace, "other")]).await;
    // alice may read the set, and this reads no Application.
    let seen = async || {
        let url = format!("{}{API}/other", fixture.gateway.url());
        let answer = client.get(url).send().await.unwrap();
        (answer.status().as_u16() == 200).then_some(())
    };
    test_support::kubernetes::eventually("the snapshot has it", seen).await;
    let events = fixture.cluster.audit().events_with(&namespace);
    let reads_application = events.iter().any(|event| {
        event["user"]["username"] == *reader
            && event["objectRef"]["resource"] == "applications"
            && event["verb"] == "get"
    });
    assert!(!reads_application);
    let is_other = |event: &Value| {
        let uri = event["requestURI"].as_str().unwrap_or_default();
        event["stage"] == "ResponseComplete" && uri.ends_with("/applicationsets/other") && event["verb"] == "get"
    };
    fixture.cluster.audit().find_with(&namespace, is_other).await;
    assert_eq!(
        asked(),
        before + 1,
        "the gateway read more than the set that alice may see"
    );
}

/// Argo CD's controller writes statuses all the time.
#[tokio::test]
async fn a_status_that_is_written_alone_is_sent_to_watchers_and_causes_no_load() {
    let mut builder = FixtureBuilder::new(Source::Kubernetes).await;
    builder
        .layout
        .settings(json!({"applicationSets": {"controllerTimeout": "1h"}}));
    builder.layout.policies("applicationsets");
    let rbac = json!({"policy.csv": POLICY});
    builder.layout.object("ConfigMap", "argocd-rbac-cm", &json!({}), &rbac);
    let namespace = builder.control.clone();
    apply(builder.cluster, &[set(&namespace, "reported")]).await;
    let fixture = builder.start().await;
    let open = async |who: &str| {
        let url = format!("{}/api/v1/stream/applicationsets?name=reported", fixture.gateway.url());
        let answer = fixture.gateway.client(who).get(url).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        answer
    };
    let (mut alice, mut mallory) = (open("alice").await, open("mallory").await);
    let next = async |answer: &mut reqwest::Response| -> Value {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            line.extend_from_slice(&answer.chunk().await.unwrap().expect("an event"));
        }
        serde_json::from_slice(&line).unwrap()
    };
    assert_eq!(next(&mut alice).await["result"]["type"], "ADDED");
    let generation = async || {
        let metrics = fixture.gateway.admin_text("/metrics").await;
        let line = metrics
            .lines()
            .find(|line| line.starts_with("tollgate_snapshot_generation "));
        line.unwrap().to_owned()
    };
    let before = generation().await;
    for message in ["one", "two"] {
        let condition = json!({
            "type": "ResourcesUpToDate", "status": "True", "reason": "Tests", "message": message,
        });
        let patch = json!({"status": {"conditions": [condition]}}).to_string();
        let patch = [
            "patch",
            "applicationsets.argoproj.io",
            "reported",
            "--type=merge",
            "-p",
            &patch,
        ];
        let at = ["--namespace", &namespace, "--subresource=status"];
        fixture.cluster.admin().succeed(&[&patch[..], &at].concat()).await;
        let event = next(&mut alice).await;
        assert_eq!(event["result"]["type"], "MODIFIED");
        let shown = &event["result"]["applicationSet"];
        assert_eq!(shown["status"]["conditions"][0]["message"], message);
        let stored = [
            "get",
            "applicationsets.argoproj.io",
            "reported",
            "--namespace",
            &namespace,
        ];
        let stored = fixture.cluster.admin().json(&stored).await;
        assert_eq!(
            shown["metadata"]["resourceVersion"],
            stored["metadata"]["resourceVersion"]
        );
    }
    assert_eq!(generation().await, before);
    let nothing = tokio::time::timeout(std::time::Duration::from_millis(50), mallory.chunk()).await;
    assert!(nothing.is_err(), "mallory may see no set");
}
