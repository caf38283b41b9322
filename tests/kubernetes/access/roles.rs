//! The roles `tollgate rbac manifest` prints let people into pods, too.

use super::world::{As, World};
use crate::kubelet::enter;
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::kubectl::Protocol;

/// KEP-5284 knows a WebSocket's `get` and its `create`: both are in the role.
#[tokio::test]
async fn the_constrained_roles_open_shells_and_tunnels() {
    // The roles have names of their own: others of this cluster would get them too.
    let cluster = Box::leak(Box::new(Cluster::start().await));
    let world = World::start_in(cluster, |_| String::new(), |_| ()).await;
    let kubectl = world.kubectl(&world.token(As::User).await.bearer);
    let look = ["get", "pods", &format!("--namespace={}", world.home)];
    let said = kubectl.fail(&look).await;
    // kubectl asks what there is first, and does not read why it may not.
    assert!(said.contains("(Forbidden)"), "{said}");

    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args([
            "rbac",
            "manifest",
            "--mode",
            "constrained",
            "--agent",
            "agent-people",
            "--config",
        ])
        .arg(world.gateway.path("tollgate.yaml"))
        .args(["--subject", &format!("serviceaccount:{}:gateway", world.home)])
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    cluster.admin().apply(&String::from_utf8(output.stdout).unwrap()).await;
    // The server reads roles in its own time.
    eventually("alice may look", async || {
        kubectl.run(&look).await.status.success().then_some(())
    })
    .await;
    enter(&kubectl, &world.home).await;
    enter(&kubectl.speak(Protocol::Spdy), &world.home).await;
}
