//! What the policy `controlplane` refuses, although accounts and projects permit it.

use serde_json::{Value, json};

use super::{COMPONENT, Scene};
use test_support::kubernetes::eventually;

const FROZEN: &str = "the application is frozen";

#[tokio::test]
async fn a_frozen_application_is_compared_and_not_changed() {
    let scene = Scene::start().await;
    let kubectl = scene.kubectl(COMPONENT);
    let acting = format!("--as={}", Scene::account(&scene.home, "deployer"));
    let namespace = format!("--namespace={}", scene.home);
    let create = ["create", "--filename=-", &acting];
    let run = kubectl.run_with(&create, &scene.tracked("before", "shop")).await;
    assert!(run.status.success(), "{}", run.stderr);

    scene
        .gateway
        .rewrite(&scene.changed("Application", "shop", |application| {
            application["metadata"]["labels"] = json!({"tollgate.dev/frozen": "true"});
        }));
    // It stores nothing while the gateway still has the Application without the label.
    let probe = ["delete", "configmap", "no-such", &namespace, &acting];
    eventually("the label is known", async || {
        kubectl.run(&probe).await.stderr.contains(FROZEN).then_some(())
    })
    .await;
    let refused = kubectl.run_with(&create, &scene.tracked("after", "shop")).await;
    assert!(
        !refused.status.success() && refused.stderr.contains(FROZEN),
        "{}",
        refused.stderr
    );
    let is_denied =
        |record: &Value| record["outcome"] == "denied" && record["kubernetes"]["attributes"]["verb"] == "create";
    let record = scene.gateway.decision("the denied creation", is_denied).await;
    assert_eq!(record["reason"], "permission_denied", "{record}");
    assert!(record["policy_sha256"].is_string(), "{record}");
    let id = record["decision_id"].as_str().unwrap();
    let shown = scene.gateway.admin(&format!("/decisions/{id}/input")).await;
    let input = &shown["input"];
    let acted = [
        &shown["front"],
        &input["access"],
        &input["request"]["verb"],
        &input["application"]["name"],
    ];
    assert_eq!(acted, ["controlplane", "write", "create", "shop"], "{shown}");
    assert_eq!(
        input["identity"]["username"],
        Scene::account(&scene.home, "deployer"),
        "{shown}"
    );
    assert_eq!(input["time"], record["timestamp"]);
    let created: Vec<_> = scene
        .writes()
        .into_iter()
        .filter(|(_, verb, _, _)| verb == "create")
        .collect();
    assert!(
        matches!(created.as_slice(), [(_, _, name, false)] if name == "before"),
        "{created:?}"
    );

    // Argo CD still compares it: by reads, and by dry runs for a server-side diff.
    kubectl.succeed(&["get", "configmap", "before", &namespace]).await;
    let diff = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--filename=-",
        &acting,
    ];
    let run = kubectl.run_with(&diff, &scene.tracked("before", "shop")).await;
    assert!(run.status.success(), "{}", run.stderr);
}
