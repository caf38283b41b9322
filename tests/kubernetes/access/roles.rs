//! The roles that `tollgate rbac manifest` prints are sufficient for exec, attach and port-forward.

use super::fixture::{AccessAs, Fixture};
use crate::kubelet::use_pod;
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::kubectl::Protocol;

/// In KEP-5284, a WebSocket needs `get` and `create`. The role has both.
#[tokio::test]
async fn the_constrained_roles_open_shells_and_tunnels() {
    // The names of the roles are fixed, so a shared cluster would grant them to other tests.
    let cluster = Box::leak(Box::new(Cluster::start().await));
    let fixture = Fixture::start_in(cluster, |_| String::new(), |_| ()).await;
    let kubectl = fixture.kubectl(&fixture.token(AccessAs::User).await.bearer);
    let look = ["get", "pods", &format!("--namespace={}", fixture.home)];
    let error = kubectl.fail(&look).await;
    // kubectl starts with discovery, and does not show why that is refused.
    assert!(error.contains("(Forbidden)"), "{error}");

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
        .arg(fixture.gateway.path("tollgate.yaml"))
        .args(["--subject", &format!("serviceaccount:{}:gateway", fixture.home)])
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    cluster.admin().apply(&String::from_utf8(output.stdout).unwrap()).await;
    // The API server applies roles with a delay.
    eventually("alice may list pods", async || {
        kubectl.run(&look).await.status.success().then_some(())
    })
    .await;
    use_pod(&kubectl, &fixture.home).await;
    use_pod(&kubectl.speak(Protocol::Spdy), &fixture.home).await;
}
