//! Mode audit sends the writes that fit no Application, and records why mode enforce would refuse them.

use serde_json::{Value, json};

use super::{COMPONENT, Scene};
use test_support::kubernetes::eventually;

impl Scene {
    /// Runs kubectl as a component, with the namespace of the Application. Returns its standard error.
    async fn stderr(&self, arguments: &[&str]) -> String {
        self.stderr_with(arguments, "").await
    }

    /// The same with this standard input.
    async fn stderr_with(&self, arguments: &[&str], input: &str) -> String {
        let namespace = format!("--namespace={}", self.home);
        let arguments = [&[namespace.as_str()], arguments].concat();
        self.kubectl(COMPONENT).run_with(&arguments, input).await.stderr
    }

    /// The notes of the first write, once there is one after `seen` records.
    async fn write_after(&self, seen: usize) -> Value {
        eventually("the write is recorded", async || {
            let mut records = self.gateway.decisions().into_iter().skip(seen);
            records.find(|record| record["kubernetes"]["attributes"]["verb"] == "create")
        })
        .await
    }
}

#[tokio::test]
async fn audit_sends_what_enforce_would_refuse_and_records_why() {
    let scene = Scene::start_in("audit").await;
    let deployer = Scene::account(&scene.home, "deployer");
    let acting = format!("--as={deployer}");
    let gateway = Scene::account(&scene.own, "gateway");
    // The first is of no Application, the second of one by its tracking id, the others of the only one
    // that has the account.
    let tracked = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "tracked", "namespace": scene.home,
            "annotations": {"argocd.argoproj.io/tracking-id": format!("shop:/ConfigMap:{}/tracked", scene.home)},
        },
    });
    let shop = json!(["argocd:shop", "shop"]);
    for (arguments, reason, who, application) in [
        (
            vec!["create", "configmap", "one"],
            "write_without_account",
            &gateway,
            json!([null, null]),
        ),
        (
            vec!["create", "--filename=-", "--validate=false"],
            "write_without_account",
            &gateway,
            shop.clone(),
        ),
        (
            vec!["create", "namespace", "made-by-argocd", &acting],
            "project_refused",
            &deployer,
            shop.clone(),
        ),
        (
            vec!["create", "configmap", "two", "--namespace=default", &acting],
            "project_refused",
            &deployer,
            shop.clone(),
        ),
    ] {
        let seen = scene.gateway.decisions().len();
        // The cluster decides: this gateway may only impersonate, and the account only edits its namespace.
        let refused = scene.stderr_with(&arguments, &tracked.to_string()).await;
        assert!(
            refused.contains(&format!("User \"{who}\" cannot create")),
            "{arguments:?}: {refused}"
        );
        let record = scene.write_after(seen).await;
        assert_eq!(record["notes"]["would_refuse_reason"], reason, "{record}");
        assert!(record["notes"]["would_refuse"].is_string(), "{record}");
        assert_eq!(
            json!([record["application"], record["project"]]),
            application,
            "{record}"
        );
        assert_eq!(
            (&record["outcome"], &record["status"]),
            (&json!("allowed"), &json!(403)),
            "{record}"
        );
    }
    // What fits is not noted.
    let seen = scene.gateway.decisions().len();
    assert_eq!(scene.stderr(&["create", "configmap", "three", &acting]).await, "");
    let record = scene.write_after(seen).await;
    assert_eq!(
        (&record["notes"], &record["status"]),
        (&Value::Null, &json!(201)),
        "{record}"
    );
    let metrics = scene.gateway.admin_text("/metrics").await;
    assert!(
        metrics.contains("tollgate_control_plane_would_refuse_total 4"),
        "{metrics}"
    );

    let noted = async |wanted: bool| {
        let records = scene
            .gateway
            .admin(&format!("/decisions?most=1000&would_refuse={wanted}"))
            .await;
        let records = records.as_array().unwrap().clone();
        assert!(
            records
                .iter()
                .all(|record| record["notes"]["would_refuse"].is_string() == wanted)
        );
        records.len()
    };
    assert_eq!(noted(true).await, 4);
    assert!(noted(false).await > 0);

    // The rest is refused as in mode enforce.
    let other = format!("--as={}", Scene::account(&scene.other, "deployer"));
    for arguments in [
        vec!["create", "configmap", "four", &other],
        vec!["create", "configmap", "four", &acting, "--as-group=system:masters"],
        vec!["create", "token", "deployer", &acting],
    ] {
        let refused = scene.stderr(&arguments).await;
        assert!(
            refused.contains("User \"controller\" cannot create"),
            "{arguments:?}: {refused}"
        );
    }
}
