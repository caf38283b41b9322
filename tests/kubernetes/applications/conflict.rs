//! Concurrent changes of a project, in a folder and in the cluster: no change is lost, and a change
//! of an outdated version is refused.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::fixture::{Fixture, FixtureBuilder, Source, role, user};
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::session;

/// A project without `destinationServiceAccounts`, which the gateway may change.
async fn start(source: Source) -> Fixture {
    let mut builder = FixtureBuilder::new(source).await;
    let (there, control) = (builder.guestbook.clone(), builder.control.clone());
    builder.deployer(&there, "deployer", &[&there]);
    builder.deployer(&there, "default", &[]);
    // The right of `deploy/kubernetes/components/write-projects`.
    let writes = json!([{"apiGroups": ["argoproj.io"], "resources": ["appprojects"], "verbs": ["get", "patch"]}]);
    builder.objects(role(&control, "write-projects", &writes, (&control, "reader")));
    builder.project("shop", &json!({"description": "the shop"}));
    builder.application("guestbook", "shop", &builder.to(&there));
    builder.start().await
}

/// How a command reaches the project.
#[derive(Clone, Copy, Debug)]
enum CommandTarget {
    /// Directly in the state, by the gateway's settings.
    Settings,
    /// Through the running gateway.
    Gateway,
}

/// Runs `tollgate project …-destination-service-account`. Returns standard output, or standard
/// error if it fails.
async fn change(
    fixture: &Fixture,
    target: CommandTarget,
    command: &str,
    namespace: &str,
    account: &str,
) -> Result<String, String> {
    let mut line = tokio::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
    line.args(["project", command, "shop", fixture.cluster.url(), namespace, account]);
    match target {
        CommandTarget::Settings => line.arg("--config").arg(fixture.gateway.path("tollgate.yaml")),
        CommandTarget::Gateway => line
            .args(["--server", &fixture.gateway.url(), "--auth-token", &session("alice")])
            .arg("--certificate-authority")
            .arg(fixture.gateway.path("gateway-ca.pem")),
    };
    let output = line.output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    }
}

/// Sends a request about the project to the gateway's API.
async fn api(fixture: &Fixture, who: &str, method: Method, content: Option<&Value>) -> (StatusCode, Value) {
    let url = format!("{}/api/v1/projects/shop", fixture.gateway.url());
    let mut request = fixture.gateway.client(who).request(method, url);
    if let Some(content) = content {
        request = request.json(content);
    }
    let answer = request.send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

/// The namespaces of the stored entries.
async fn entries(fixture: &Fixture) -> Vec<String> {
    let (status, project) = api(fixture, "alice", Method::GET, None).await;
    assert_eq!(status, StatusCode::OK, "{project}");
    let entries = project["spec"]["destinationServiceAccounts"].as_array();
    let of = |entry: &Value| entry["namespace"].as_str().unwrap().to_owned();
    entries.into_iter().flatten().map(of).collect()
}

async fn nothing_is_lost(source: Source) {
    let fixture = start(source).await;
    let kubectl = fixture.kubectl("alice", "guestbook");
    let whoami = ["auth", "whoami", "--output=jsonpath={.status.userInfo.username}"];
    assert_eq!(kubectl.succeed(&whoami).await, user(&fixture.guestbook, "default"));

    // Two concurrent changes in each round, one for each target.
    let add = "add-destination-service-account";
    let mut wanted = Vec::new();
    for round in 0..3 {
        let names = [format!("one-{round}"), format!("two-{round}")];
        let (one, two) = tokio::join!(
            change(&fixture, CommandTarget::Settings, add, &names[0], "deployer"),
            change(&fixture, CommandTarget::Gateway, add, &names[1], "deployer"),
        );
        let output = one.unwrap();
        let there = format!(
            "added service account deployer for server {}, namespace one-{round}",
            fixture.cluster.url()
        );
        assert!(output.contains(&there), "{output}");
        two.unwrap();
        wanted.extend(names);
    }
    let mut found = entries(&fixture).await;
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);

    // An existing entry cannot be added, and an absent one cannot be removed.
    for (command, namespace, expected) in [
        (add, "one-0", "already"),
        ("remove-destination-service-account", "never", "does not exist"),
    ] {
        for target in [CommandTarget::Settings, CommandTarget::Gateway] {
            let complaint = change(&fixture, target, command, namespace, "deployer")
                .await
                .unwrap_err();
            assert!(complaint.contains(expected), "{target:?} {command}: {complaint}");
        }
    }
    // A change takes effect without a restart.
    change(&fixture, CommandTarget::Gateway, add, &fixture.guestbook, "deployer")
        .await
        .unwrap();
    let wanted = user(&fixture.guestbook, "deployer");
    eventually("the added account acts", async || {
        (kubectl.run(&whoami).await.stdout == wanted).then_some(())
    })
    .await;
    let remove = "remove-destination-service-account";
    change(
        &fixture,
        CommandTarget::Settings,
        remove,
        &fixture.guestbook,
        "deployer",
    )
    .await
    .unwrap();
    let wanted = user(&fixture.guestbook, "default");
    eventually("the removed account acts no more", async || {
        (kubectl.run(&whoami).await.stdout == wanted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn no_change_is_lost_with_objects_in_a_folder() {
    nothing_is_lost(Source::Directory).await;
}

#[tokio::test]
async fn no_change_is_lost_with_objects_in_the_cluster() {
    nothing_is_lost(Source::Kubernetes).await;
}

/// A change of an outdated version gets 409, and nothing is stored.
async fn older_versions(source: Source) {
    let fixture = start(source).await;
    let (_, first) = api(&fixture, "alice", Method::GET, None).await;
    let changed = |project: &Value, namespace: &str| {
        let mut project = project.clone();
        let entry =
            json!({"server": fixture.cluster.url(), "namespace": namespace, "defaultServiceAccount": "deployer"});
        project["spec"]["destinationServiceAccounts"] = json!([entry]);
        json!({"project": project})
    };
    let (status, _) = api(&fixture, "bob", Method::PUT, Some(&changed(&first, "bob"))).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, stored) = api(&fixture, "alice", Method::PUT, Some(&changed(&first, "second"))).await;
    assert_eq!(status, StatusCode::OK, "{stored}");
    let (status, error) = api(&fixture, "alice", Method::PUT, Some(&changed(&first, "third"))).await;
    assert_eq!(status, StatusCode::CONFLICT, "{error}");
    assert!(error.to_string().contains("conflict"), "{error}");
    let (_, now) = api(&fixture, "alice", Method::GET, None).await;
    assert_eq!(now["spec"]["destinationServiceAccounts"][0]["namespace"], "second");
    assert_eq!(
        now["metadata"]["resourceVersion"],
        stored["metadata"]["resourceVersion"]
    );

    // The same applies to a change that bypassed the gateway.
    let bypassing = super::fixture::project(&fixture.control, "shop", &json!({"description": "behind"}));
    fixture.put(&bypassing).await;
    let (status, error) = api(&fixture, "alice", Method::PUT, Some(&changed(&stored, "late"))).await;
    assert_eq!(status, StatusCode::CONFLICT, "{error}");
}

#[tokio::test]
async fn an_older_version_is_not_stored_over_a_newer_one() {
    let ((), ()) = tokio::join!(older_versions(Source::Directory), older_versions(Source::Kubernetes));
}
