//! What kubectl makes of the gateway's own refusals.

use serde_json::{Value, json};

use super::world::{As, World};

/// Requests of the gateway for one person that reached the cluster in a namespace
/// other than its own discovery.
fn arrived(world: &World, verb: &str) -> usize {
    let events = world.cluster.audit().events();
    let is = |event: &&Value| event["objectRef"]["namespace"] == world.home.as_str() && event["verb"] == verb;
    let of_gateway = |event: &&Value| event["user"]["username"] == world.account(As::User);
    events.iter().filter(is).filter(of_gateway).count()
}

/// An agent that a policy narrows to looking: everything else is refused by the
/// gateway, in words that kubectl prints as the cluster's.
#[tokio::test]
async fn a_read_only_agent_lets_nobody_write() {
    let world = World::start_with(|layout| {
        let file = layout.root().join("policies/kubernetes/data/agents.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let narrowed = "agent-people:\n  verbs: [get, list, watch]\n";
        std::fs::write(&file, format!("{text}{narrowed}")).unwrap();
    })
    .await;
    let kubectl = world.kubectl(&world.token(As::User).await.bearer);
    let here = format!("--namespace={}", world.home);
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
        let said = kubectl.fail(arguments).await;
        for word in ["orbidden", "the agent does not allow this verb", "Trace ID"] {
            assert!(said.contains(word), "{arguments:?}, no {word}: {said}");
        }
        assert_eq!(arrived(&world, verb), 0, "{arguments:?}");
    }
    // The other agent is not narrowed.
    let robot = world.kubectl(&world.token(As::Agent).await.bearer);
    robot.succeed(&["create", "configmap", "mine", &here]).await;
}

/// Refusals of credentials say the same, whatever was wrong.
#[tokio::test]
async fn nobody_learns_why_a_credential_is_refused() {
    let world = World::start().await;
    let token = world.token(As::User).await;
    let secret = token.bearer.rsplit(':').next().unwrap();
    let mut answers = Vec::new();
    for bearer in [
        "pat:9999:unknown".to_owned(),
        format!("pat:10000:{secret}"),
        format!("pat:1:{secret}"),
        format!("pat:9999:{secret}x"),
        "unknown".to_owned(),
    ] {
        let said = world.kubectl(&bearer).fail(&["get", "pods"]).await;
        assert!(
            said.contains("Unauthorized") || said.contains("You must be logged in"),
            "{said}"
        );
        let url = format!("{}/k8s-proxy/version", world.gateway.url());
        let answer = world.gateway.plain_client().get(&url).bearer_auth(&bearer).send().await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 401, "{bearer}");
        assert_eq!(answer.headers()["gitlab-unauthorized"], "true");
        let mut content: Value = answer.json().await.unwrap();
        let message = content["message"].as_str().unwrap();
        content["message"] = message.split("Trace ID").next().unwrap().into();
        answers.push(content);
    }
    // A kind of credential that is none is told apart by its form, which is no secret.
    answers.pop();
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0]["reason"], json!("Unauthorized"));
}
