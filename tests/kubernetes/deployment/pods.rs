//! Namespaces that enforce the Pod Security Standard `restricted`, and pods in them.

use serde_json::{Value, json};

use test_support::kubernetes::cluster::Cluster;

/// A namespace that enforces the Pod Security Standard `restricted`.
pub(super) async fn restricted_namespace(cluster: &Cluster) -> String {
    let namespace = cluster.namespace("deployed").await;
    let labels = ["enforce", "warn"].map(|mode| format!("pod-security.kubernetes.io/{mode}=restricted"));
    let label = ["label", "namespace", &namespace, &labels[0], &labels[1]];
    cluster.admin().succeed(&label).await;
    namespace
}

/// A field of a pod's `spec`, a value that the standard refuses, and its reason.
const PRIVILEGES: [(&str, &str, &str); 3] = [
    (
        "/containers/0/securityContext/allowPrivilegeEscalation",
        "true",
        "allowPrivilegeEscalation != false (container \"tollgate\" must set \
         securityContext.allowPrivilegeEscalation=false)",
    ),
    (
        "/securityContext/runAsNonRoot",
        "false",
        "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)",
    ),
    (
        "/securityContext/runAsUser",
        "0",
        "runAsUser=0 (pod must not set runAsUser=0)",
    ),
];

/// A [`restricted_namespace`] accepts pods of a Deployment's template, and refuses them with one more
/// privilege.
pub(super) async fn only_restricted_pods_are_created(cluster: &Cluster, namespace: &str, template: &Value) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "pod", "namespace": namespace, "labels": template["metadata"]["labels"]},
        "spec": template["spec"],
    });
    let create = async |pod: &Value| {
        let create = ["create", "--dry-run=server", "--filename=-"];
        cluster.admin().run_with(&create, &pod.to_string()).await
    };
    let run = create(&pod).await;
    assert!(run.status.success(), "{run:?}");
    assert_eq!(run.stderr, "", "kubectl printed a warning");
    for (pointer, value, reason) in PRIVILEGES {
        let mut more = pod.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        more["spec"].pointer_mut(parent).unwrap()[key] = serde_json::from_str(value).unwrap();
        let run = create(&more).await;
        assert!(!run.status.success(), "{pointer}");
        let whole = format!("pods \"pod\" is forbidden: violates PodSecurity \"restricted:latest\": {reason}");
        assert!(run.stderr.contains(&whole), "{}", run.stderr);
    }
}
