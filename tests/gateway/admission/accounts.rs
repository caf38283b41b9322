//! Service accounts that act for Applications, which are of the control plane's cluster only if that is
//! where the Application deploys.

use super::*;

const DEPLOYER: &str = "system:serviceaccount:team:deployer";

/// `root` deploys to this server as `team/deployer`, or by the fallback as `argocd/default`.
async fn start(server: &str, mode: &str) -> Scene {
    let mut root = application("root", "platform");
    root["spec"]["destination"]["server"] = json!(server);
    let mut platform = project("platform");
    platform["spec"]["destinationServiceAccounts"] =
        json!([{"server": server, "namespace": NAMESPACE, "defaultServiceAccount": "team:deployer"}]);
    let cluster = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "cluster-prod", "namespace": NAMESPACE, "labels": {"argocd.argoproj.io/secret-type": "cluster"},
        },
        "stringData": {"name": "prod", "server": "https://prod.example:6443", "config": "{}"},
    });
    let settings = json!({"application.sync.impersonation.enabled": mode});
    Scene::start_with(&[root, platform, cluster], &settings).await
}

#[tokio::test]
async fn an_account_acts_for_an_application_only_in_the_cluster_that_it_deploys_into() {
    let here = "https://kubernetes.default.svc";
    let evil = tracked(&application("evil", "team-a"), "root");
    let project = tracked(&project("team-a"), "root");
    let scene = start(here, "true").await;
    scene.allows(DEPLOYER, None, Some(&evil), "child_permitted").await;
    scene.allows(DEPLOYER, None, Some(&project), "child_permitted").await;
    // Of another cluster, or with impersonation off, it is somebody else of the same name.
    for (server, mode) in [("https://prod.example:6443", "true"), (here, "false")] {
        let scene = start(server, mode).await;
        scene
            .denies(
                DEPLOYER,
                None,
                Some(&evil),
                "permission_denied",
                "`applications, create`",
            )
            .await;
        scene
            .denies(
                DEPLOYER,
                None,
                Some(&project),
                "permission_denied",
                "`projects, create`",
            )
            .await;
    }
    // `cart` has no entry, and the account `default` is anybody's.
    let fallback = "system:serviceaccount:argocd:default";
    let child = tracked(&application("mine", "shop"), "cart");
    scene
        .denies(
            fallback,
            None,
            Some(&child),
            "permission_denied",
            "`applications, create`",
        )
        .await;
}
