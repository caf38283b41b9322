use serde_json::{Value, json};

use super::ConfigurationReporter;
use crate::access::Agents;
use crate::access::remote::tests::remote;
use crate::access::tests::fixture::{agent, people_and};
use crate::access::tests::platform_stub::Stub;

const FIRST: &str = "user_access: {access_as: {agent: {}}, groups: [{id: Group-2}]}, observability: {a: [1, true]}";

/// The bodies that came after the first requests, which are `before` many.
fn bodies(stub: &Stub, before: usize) -> Vec<Value> {
    let requests = stub.requests();
    let line = "POST /gitlab/api/v4/internal/kubernetes/agent_configuration";
    assert!(requests.iter().all(|request| request.line == line), "{requests:?}");
    requests[before..].iter().map(|request| request.body.clone()).collect()
}

fn told(id: i64, configuration: &Value) -> Value {
    json!({"agent_id": id, "agent_config": configuration})
}

#[tokio::test]
async fn each_configuration_is_told_once_and_after_each_change() {
    let (fixture, stub) = remote().await;
    let mut reporter: ConfigurationReporter = fixture.authorizer.reporter().unwrap();
    stub.respond_with(204, "");
    let two = |one: &str, other: &str| people_and(&[agent(1, "one", one), agent(2, "other", other)]);
    let agents = Agents::build(&two(FIRST, ""), None);
    reporter.report(&agents).await.unwrap();
    let first = json!({
        "user_access": {"access_as": {"agent": {}}, "groups": [{"id": "Group-2"}]},
        "observability": {"a": [1, true]},
    });
    assert_eq!(bodies(&stub, 0), [told(1, &first), told(2, &json!({}))]);
    let request = stub.requests().remove(0);
    let secret = crate::access::gateway_token::SharedSecret::read(&fixture.secret_file()).unwrap();
    let proof = request.headers.get("gitlab-kas-api-request").unwrap();
    assert!(secret.is_valid_token(proof, fixture.clock.unix_seconds()));

    // Nothing changed, and then one did.
    reporter.report(&agents).await.unwrap();
    let jobs = "ci_access: {projects: [{id: group-1/project-1}]}";
    let agents = Agents::build(&two(FIRST, jobs), Some(&agents));
    reporter.report(&agents).await.unwrap();
    let changed = json!({"ci_access": {"projects": [{"id": "group-1/project-1"}]}});
    assert_eq!(bodies(&stub, 2), [told(2, &changed)]);

    // The platform keeps the last good one, and receives an empty one when there is none any more.
    let agents = Agents::build(&two("user_access: {access_as: {root: {}}}", jobs), Some(&agents));
    reporter.report(&agents).await.unwrap();
    assert_eq!(stub.requests().len(), 3);
    let agents = Agents::build(&two("", jobs), Some(&agents));
    reporter.report(&agents).await.unwrap();
    assert_eq!(bodies(&stub, 3), [told(1, &json!({}))]);

    // The configuration of an agent that comes back is sent anew.
    let agents = Agents::build(&people_and(&[agent(2, "other", jobs)]), Some(&agents));
    reporter.report(&agents).await.unwrap();
    let agents = Agents::build(&two(FIRST, jobs), Some(&agents));
    reporter.report(&agents).await.unwrap();
    assert_eq!(bodies(&stub, 4), [told(1, &first)]);
}

#[tokio::test]
async fn what_the_platform_refuses_is_not_repeated_and_what_it_missed_is() {
    let (fixture, stub) = remote().await;
    let mut reporter = fixture.authorizer.reporter().unwrap();
    let agents = people_and(&[agent(1, "one", FIRST), agent(2, "other", "")]);
    let agents = Agents::build(&agents, None);
    let mut before = 0;
    for (status, expected, count) in [
        (500, "the platform answered 500", 2),
        (429, "the platform answered 429", 2),
        (302, "the platform answered 302", 2),
        // Nobody of them would be heard.
        (401, "`authorizer.remote.secretFile` does not hold its secret", 1),
    ] {
        stub.respond_with(status, "");
        let error = reporter.report(&agents).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(bodies(&stub, before).len(), count, "{status}");
        before += count;
    }
    stub.respond_with(404, "");
    reporter.report(&agents).await.unwrap();
    reporter.report(&agents).await.unwrap();
    assert_eq!(bodies(&stub, before).len(), 2);
}

#[tokio::test]
async fn there_is_nobody_to_tell_without_a_remote_platform() {
    let fixture = crate::access::tests::fixture::Fixture::new().await;
    assert!(fixture.authorizer.reporter().is_none());
}
