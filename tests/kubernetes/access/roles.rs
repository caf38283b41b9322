//! The roles `tollgate rbac manifest` prints, in a real cluster: enough, and no more.

use super::world::{As, World};
use crate::support::cluster::Cluster;
use crate::support::eventually;
use crate::support::kubectl::Credential;

/// A world whose gateway has the printed roles and nothing else.
async fn world(arguments: &[&str]) -> World {
    // The roles have names of their own: no two worlds can share a cluster.
    let cluster = Box::leak(Box::new(Cluster::start().await));
    let world = World::start_in(cluster, |_| String::new(), |_| ()).await;
    let kubectl = world.kubectl(&world.token(As::User).await.bearer);
    let here = format!("--namespace={}", world.home);
    let said = kubectl.fail(&["get", "pods", &here]).await;
    assert!(
        said.contains("cannot impersonate") || said.contains("orbidden"),
        "{said}"
    );

    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["rbac", "manifest", "--agent", "agent-people", "--config"])
        .arg(world.gateway.path("tollgate.yaml"))
        .args(["--subject", &format!("serviceaccount:{}:gateway", world.home)])
        .args(arguments)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    cluster.admin().apply(&String::from_utf8(output.stdout).unwrap()).await;
    // The server reads roles in its own time.
    eventually("alice may look", async || {
        kubectl
            .run(&["get", "pods", &here])
            .await
            .status
            .success()
            .then_some(())
    })
    .await;
    world
}

/// The gateway's own token, in wrong hands, as somebody else.
async fn stolen(world: &World, arguments: &[&str]) -> String {
    let namespace = format!("--namespace={}", world.home);
    let token = world
        .cluster
        .admin()
        .succeed(&["create", "token", "gateway", &namespace])
        .await;
    let thief = world.cluster.kubectl(Credential::Token(token.trim().to_owned()));
    thief.fail(arguments).await
}

#[tokio::test]
async fn the_classic_roles_are_enough() {
    let world = world(&["--mode", "classic"]).await;
    let kubectl = world.kubectl(&world.token(As::User).await.bearer);
    let here = format!("--namespace={}", world.home);
    let whoami = kubectl.json(&["auth", "whoami"]).await;
    assert_eq!(whoami["status"]["userInfo"]["username"], "gitlab:user:alice");
    kubectl.succeed(&["create", "configmap", "mine", &here]).await;
    assert_eq!(
        kubectl.succeed(&["exec", &here, "pod", "--", "echo", "in"]).await,
        "in\n"
    );
    // For itself it may nothing.
    let said = stolen(&world, &["get", "pods", &here]).await;
    assert!(said.contains("orbidden"), "{said}");
}

/// KEP-5284: who has the gateway's token has the verbs and resources of its role,
/// whoever they say they are.
#[tokio::test]
async fn the_constrained_roles_are_enough_and_no_more() {
    let world = world(&[
        "--mode",
        "constrained",
        "--verbs",
        "get,list,watch",
        "--resources",
        "pods,pods/log",
    ])
    .await;
    let kubectl = world.kubectl(&world.token(As::User).await.bearer);
    let here = format!("--namespace={}", world.home);
    assert!(
        kubectl
            .succeed(&["logs", &here, "pod", "--tail=1"])
            .await
            .contains("line 10")
    );
    for refused in [
        ["get", "configmaps", &here].as_slice(),
        &["create", "configmap", "mine", &here],
        &["delete", "pod", "pod", &here],
    ] {
        let said = kubectl.fail(refused).await;
        assert!(said.contains("orbidden"), "{refused:?}: {said}");
    }
    let administrator = ["get", "secrets", &here, "--as=root", "--as-group=system:masters"];
    let said = stolen(&world, &administrator).await;
    assert!(said.contains("orbidden"), "{said}");
    let list = |event: &serde_json::Value| {
        event["objectRef"]["resource"] == "pods" && event["impersonatedUser"]["username"] == "gitlab:user:alice"
    };
    let event = world.cluster.audit().find(list).await;
    let constraint = &event["authenticationMetadata"]["impersonationConstraint"];
    assert_eq!(constraint, "impersonate:user-info", "{event}");
}
