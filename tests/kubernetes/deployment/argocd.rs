//! The components of `deploy/kubernetes` that belong into the kustomization that deploys Argo CD.

use serde_json::{Value, json};

use super::{kustomize, relative, restricted_namespace, shipped};
use test_support::kubernetes::cluster::Cluster;

/// A workload of Argo CD, as far as our components change it.
fn workload(kind: &str, name: &str) -> Value {
    let labels = json!({"app.kubernetes.io/name": name});
    let restricted = json!({
        "runAsNonRoot": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let mut workload = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "initContainers": [{"name": "another", "image": "another", "securityContext": restricted}],
                    "containers": [{
                        "name": name, "image": "argocd", "securityContext": restricted,
                        "volumeMounts": [{"name": "home", "mountPath": "/home/argocd"}],
                    }],
                    "volumes": [{"name": "home", "emptyDir": {}}],
                    "serviceAccountName": name,
                },
            },
        },
    });
    if kind == "StatefulSet" {
        workload["spec"]["serviceName"] = json!(name);
    }
    workload
}

/// The workloads of Argo CD that enter clusters, with a component of ours. The API server must accept
/// them.
pub(crate) async fn argocd_with(cluster: &Cluster, namespace: &str, component: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let argocd = [
        workload("StatefulSet", "argocd-application-controller"),
        workload("Deployment", "argocd-server"),
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": argocd});
    std::fs::write(folder.path().join("argocd.yaml"), list.to_string()).unwrap();
    let component = relative(folder.path(), &shipped(&format!("components/{component}")));
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": namespace,
        "resources": ["argocd.yaml"],
        "components": [component],
        "images": [{"name": "tollgate", "newName": "registry.example/tollgate", "newTag": "1"}],
    });
    std::fs::write(folder.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let path = folder.path().to_str().unwrap();
    let run = cluster.admin().run(&["apply", "--dry-run=server", "-k", path]).await;
    assert!(run.status.success(), "{run:?}");
    assert_eq!(run.stderr, "", "kubectl printed a warning");

    let objects = kustomize(cluster, path).await;
    assert_eq!(objects.len(), argocd.len());
    objects
}

#[tokio::test]
async fn argo_cd_gets_the_credential_helper() {
    let cluster = Cluster::shared().await;
    let namespace = restricted_namespace(cluster).await;
    for object in argocd_with(cluster, &namespace, "credential-helper").await {
        let pod = &object["spec"]["template"]["spec"];
        let named = |list: &str, name: &str| {
            let items = pod[list].as_array().unwrap();
            items.iter().find(|item| item["name"] == name).cloned().unwrap()
        };
        // What was there before is still there.
        named("initContainers", "another");
        named("volumes", "home");
        let helper = named("initContainers", "tollgate");
        assert_eq!(helper["image"], "registry.example/tollgate:1");
        assert_eq!(helper["args"], json!(["install", "/tollgate"]));
        assert_eq!(
            helper["volumeMounts"],
            json!([{"name": "tollgate", "mountPath": "/tollgate"}])
        );
        assert!(named("volumes", "tollgate")["emptyDir"].is_object());
        let container = named("containers", object["metadata"]["name"].as_str().unwrap());
        assert_eq!(container["image"], "argocd");
        let mounts = container["volumeMounts"].as_array().unwrap();
        let read_only = json!({"name": "tollgate", "mountPath": "/tollgate", "readOnly": true});
        assert!(mounts.contains(&read_only) && mounts.len() == 4, "{mounts:?}");
        let token = &named("volumes", "tollgate-token")["projected"]["sources"][0]["serviceAccountToken"];
        assert_eq!(
            (&token["audience"], &token["path"]),
            (&json!("tollgate"), &json!("token"))
        );
    }
}

#[tokio::test]
async fn argo_cd_looks_for_its_own_cluster_where_the_gateway_can_be() {
    let cluster = Cluster::shared().await;
    let namespace = restricted_namespace(cluster).await;
    for object in argocd_with(cluster, &namespace, "argocd-in-cluster").await {
        let pod = &object["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(
            container["env"],
            json!([{"name": "KUBERNETES_SERVICE_HOST", "value": "kubernetes.default.svc"}])
        );
        let path = "/var/run/secrets/kubernetes.io/serviceaccount";
        let mount = json!({"name": "account", "mountPath": path, "readOnly": true});
        let mounts = container["volumeMounts"].as_array().unwrap();
        assert!(mounts.contains(&mount) && mounts.len() == 2, "{mounts:?}");
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == "account").unwrap();
        let sources = volume["projected"]["sources"].to_string();
        for file in ["\"path\":\"token\"", "\"path\":\"ca.crt\"", "\"path\":\"namespace\""] {
            assert!(sources.contains(file), "{sources}");
        }
        // The token is for the API server.
        assert!(!sources.contains("audience"), "{sources}");
    }
}
