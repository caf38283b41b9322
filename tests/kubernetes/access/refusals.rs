//! How kubectl shows the gateway's own refusals.

use serde_json::{Value, json};

use super::fixture::{AccessAs, Fixture};

/// The number of requests of the gateway with this verb that reached the cluster in the home
/// namespace.
fn arrived(fixture: &Fixture, verb: &str) -> usize {
    let events = fixture.cluster.audit().events_with(&fixture.home);
    let is = |event: &&Value| event["objectRef"]["namespace"] == fixture.home.as_str() && event["verb"] == verb;
    let of_gateway = |event: &&Value| event["user"]["username"] == fixture.account(AccessAs::User);
    events.iter().filter(is).filter(of_gateway).count()
}

/// The policy limits the agent to reads. The gateway refuses everything else, and kubectl shows its
/// message as if it were the cluster's.
#[tokio::test]
async fn a_read_only_agent_lets_nobody_write() {
    let fixture = Fixture::start_with(|layout| {
        let file = layout.root().join("policies/kubernetes/data/agents.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let narrowed = "agent-people:\n  verbs: [get, list, watch]\n";
        std::fs::write(&file, format!("{text}{narrowed}")).unwrap();
    })
    .await;
    let kubectl = fixture.kubectl(&fixture.token(AccessAs::User).await.bearer);
    let here = format!("--namespace={}", fixture.home);
    kubectl.succeed(&["get", "pods", &here]).await;
    assert!(
        kubectl
            .succeed(&["logs", &here, "pod", "--tail=1"])
            .await
            .contains("line 10")
    );

    for (arguments, verb) in [
        (["create", "configmap", "mine", &here].as_slice(), "create"),
        (&["delete", "pod", "pod", &here], "delete"),
        (&["delete", "pods", "--all", &here], "deletecollection"),
        (&["label", "pod", "pod", "a=b", &here], "patch"),
        (&["exec", &here, "pod", "--", "true"], "create"),
        (&["port-forward", &here, "pod/pod", ":80"], "create"),
    ] {
        let error = kubectl.fail(arguments).await;
        for word in ["orbidden", "the agent does not allow this verb", "Trace ID"] {
            assert!(error.contains(word), "{arguments:?}, no {word}: {error}");
        }
        assert_eq!(arrived(&fixture, verb), 0, "{arguments:?}");
    }
    // The other agent is not limited.
    let robot = fixture.kubectl(&fixture.token(AccessAs::Agent).await.bearer);
    robot.succeed(&["create", "configmap", "mine", &here]).await;
}

/// All refusals of credentials have the same text.
#[tokio::test]
async fn refused_credentials_are_indistinguishable() {
    let fixture = Fixture::start().await;
    let token = fixture.token(AccessAs::User).await;
    let secret = token.bearer.rsplit(':').next().unwrap();
    let mut answers = Vec::new();
    for bearer in [
        "pat:9999:unknown".to_owned(),
        format!("pat:10000:{secret}"),
        format!("pat:1:{secret}"),
        format!("pat:9999:{secret}x"),
        "unknown".to_owned(),
    ] {
        let error = fixture.kubectl(&bearer).fail(&["get", "pods"]).await;
        assert!(
            error.contains("Unauthorized") || error.contains("You must be logged in"),
            "{error}"
        );
        let url = format!("{}/k8s-proxy/version", fixture.gateway.url());
        let answer = fixture
            .gateway
            .plain_client()
            .get(&url)
            .bearer_auth(&bearer)
            .send()
            .await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 401, "{bearer}");
        assert_eq!(answer.headers()["gitlab-unauthorized"], "true");
        let mut content: Value = answer.json().await.unwrap();
        let message = content["message"].as_str().unwrap();
        content["message"] = message.split("Trace ID").next().unwrap().into();
        answers.push(content);
    }
    // An unknown kind of credential has another text. Its form is no secret.
    answers.pop();
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0]["reason"], json!("Unauthorized"));
}
