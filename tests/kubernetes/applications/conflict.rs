//! Projects that several people change at once, in a folder and in the cluster: no
//! change is lost, and none is made of an older version.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::world::{Plan, Source, World, role, user};
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::session;

/// A world with a project that has no accounts, which the gateway may change.
async fn start(source: Source) -> World {
    let mut plan = Plan::new(source).await;
    let (there, control) = (plan.guestbook.clone(), plan.control.clone());
    plan.deployer(&there, "deployer", &[&there]);
    plan.deployer(&there, "default", &[]);
    // As deploy/kubernetes/components/write-projects grants it.
    let writes = json!([{"apiGroups": ["argoproj.io"], "resources": ["appprojects"], "verbs": ["get", "patch"]}]);
    plan.objects(role(&control, "write-projects", &writes, (&control, "reader")));
    plan.project("shop", &json!({"description": "the shop"}));
    plan.application("guestbook", "shop", &plan.to(&there));
    plan.start().await
}

/// How a command reaches the project.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// By the gateway's settings, where the state is.
    Settings,
    /// By the gateway that runs.
    Gateway,
}

/// Runs `tollgate project …-destination-service-account`; gives its output, or its
/// complaint.
async fn change(world: &World, way: Way, command: &str, namespace: &str, account: &str) -> Result<String, String> {
    let mut line = tokio::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
    line.args(["project", command, "shop", world.cluster.url(), namespace, account]);
    match way {
        Way::Settings => line.arg("--config").arg(world.gateway.path("tollgate.yaml")),
        Way::Gateway => line
            .args(["--server", &world.gateway.url(), "--auth-token", &session("alice")])
            .arg("--certificate-authority")
            .arg(world.gateway.path("gateway-ca.pem")),
    };
    let output = line.output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    }
}

/// Asks the gateway's API about the project.
async fn api(world: &World, who: &str, method: Method, content: Option<&Value>) -> (StatusCode, Value) {
    let url = format!("{}/api/v1/projects/shop", world.gateway.url());
    let mut request = world.gateway.client(who).request(method, url);
    if let Some(content) = content {
        request = request.json(content);
    }
    let answer = request.send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

/// Namespaces of the project's entries, as they are stored.
async fn entries(world: &World) -> Vec<String> {
    let (status, project) = api(world, "alice", Method::GET, None).await;
    assert_eq!(status, StatusCode::OK, "{project}");
    let entries = project["spec"]["destinationServiceAccounts"].as_array();
    let of = |entry: &Value| entry["namespace"].as_str().unwrap().to_owned();
    entries.into_iter().flatten().map(of).collect()
}

async fn nothing_is_lost(source: Source) {
    let world = start(source).await;
    let kubectl = world.kubectl("alice", "guestbook");
    let whoami = ["auth", "whoami", "--output=jsonpath={.status.userInfo.username}"];
    assert_eq!(kubectl.succeed(&whoami).await, user(&world.guestbook, "default"));

    // Two at once, again and again, by both ways.
    let add = "add-destination-service-account";
    let mut wanted = Vec::new();
    for round in 0..3 {
        let names = [format!("one-{round}"), format!("two-{round}")];
        let (one, two) = tokio::join!(
            change(&world, Way::Settings, add, &names[0], "deployer"),
            change(&world, Way::Gateway, add, &names[1], "deployer"),
        );
        let said = one.unwrap();
        let there = format!(
            "added service account deployer for server {}, namespace one-{round}",
            world.cluster.url()
        );
        assert!(said.contains(&there), "{said}");
        two.unwrap();
        wanted.extend(names);
    }
    let mut found = entries(&world).await;
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);

    // What is there cannot be added, what is not cannot be removed.
    for (command, namespace, told) in [
        (add, "one-0", "already"),
        ("remove-destination-service-account", "never", "does not exist"),
    ] {
        for way in [Way::Settings, Way::Gateway] {
            let complaint = change(&world, way, command, namespace, "deployer").await.unwrap_err();
            assert!(complaint.contains(told), "{way:?} {command}: {complaint}");
        }
    }
    // It takes effect by itself.
    change(&world, Way::Gateway, add, &world.guestbook, "deployer")
        .await
        .unwrap();
    let wanted = user(&world.guestbook, "deployer");
    eventually("the added account acts", async || {
        (kubectl.run(&whoami).await.stdout == wanted).then_some(())
    })
    .await;
    let remove = "remove-destination-service-account";
    change(&world, Way::Settings, remove, &world.guestbook, "deployer")
        .await
        .unwrap();
    let wanted = user(&world.guestbook, "default");
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

/// Who changes an older version is told so, and nothing is stored.
async fn older_versions(source: Source) {
    let world = start(source).await;
    let (_, first) = api(&world, "alice", Method::GET, None).await;
    let changed = |project: &Value, namespace: &str| {
        let mut project = project.clone();
        let entry = json!({"server": world.cluster.url(), "namespace": namespace, "defaultServiceAccount": "deployer"});
        project["spec"]["destinationServiceAccounts"] = json!([entry]);
        json!({"project": project})
    };
    let (status, _) = api(&world, "bob", Method::PUT, Some(&changed(&first, "bob"))).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, stored) = api(&world, "alice", Method::PUT, Some(&changed(&first, "second"))).await;
    assert_eq!(status, StatusCode::OK, "{stored}");
    let (status, told) = api(&world, "alice", Method::PUT, Some(&changed(&first, "third"))).await;
    assert_eq!(status, StatusCode::CONFLICT, "{told}");
    assert!(told.to_string().contains("conflict"), "{told}");
    let (_, now) = api(&world, "alice", Method::GET, None).await;
    assert_eq!(now["spec"]["destinationServiceAccounts"][0]["namespace"], "second");
    assert_eq!(
        now["metadata"]["resourceVersion"],
        stored["metadata"]["resourceVersion"]
    );

    // The same when it was changed behind the gateway's back.
    let behind = super::world::project(&world.control, "shop", &json!({"description": "behind"}));
    world.put(&behind).await;
    let (status, told) = api(&world, "alice", Method::PUT, Some(&changed(&stored, "late"))).await;
    assert_eq!(status, StatusCode::CONFLICT, "{told}");
}

#[tokio::test]
async fn an_older_version_is_not_stored_over_a_newer_one() {
    let ((), ()) = tokio::join!(older_versions(Source::Directory), older_versions(Source::Kubernetes));
}
