use k8s_openapi::api::core::v1::Secret;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::{ClusterSecret, config_patch};

fn read(metadata: &Value) -> ClusterSecret {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata,
        // `https://a/`, `{}`, and bytes that are not text.
        "data": {"server": "aHR0cHM6Ly9hLw==", "config": "e30=", "binary": "/w=="},
    });
    object["metadata"]["name"] = "a".into();
    object["metadata"]["resourceVersion"] = "7".into();
    let secret: Secret = serde_json::from_value(object).unwrap();
    ClusterSecret::of(secret, "argocd")
}

#[test]
fn values_that_are_text_are_read() {
    let secret = read(&json!({}));
    assert_eq!((secret.server(), secret.config()), ("https://a", "{}"));
    assert_eq!(secret.values.len(), 2);
    assert_eq!(secret.values["server"].expose_secret(), "https://a/");
    assert!(!format!("{secret:?}").contains("https://a"));
}

#[test]
fn whoever_would_undo_a_change_is_named() {
    let entry = |manager: &str, operation: &str, key: &str| {
        json!({
            "manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {key: {}}},
        })
    };
    let owner = |kind: &str, controller: bool| json!({"apiVersion": "e/v1", "kind": kind, "name": "a", "uid": "1", "controller": controller});
    for (metadata, expected) in [
        (
            json!({"managedFields": [entry("gitops", "Apply", "f:config")]}),
            &["`gitops`"][..],
        ),
        (
            json!({"ownerReferences": [owner("ExternalSecret", true)]}),
            &["ExternalSecret `a`"],
        ),
        (json!({"managedFields": [entry("kubectl", "Update", "f:config")]}), &[]),
        (json!({"managedFields": [entry("gitops", "Apply", "f:shard")]}), &[]),
        (json!({"managedFields": [entry("tollgate", "Apply", "f:config")]}), &[]),
        (json!({"ownerReferences": [owner("ConfigMap", false)]}), &[]),
    ] {
        assert_eq!(read(&metadata).managers, expected, "{metadata}");
    }
}

/// SECURITY: kubectl's annotation has the credential that was moved away.
#[test]
fn a_change_has_the_version_and_removes_the_copy_of_kubectl() {
    let config = SecretString::from("{}");
    let plain = read(&json!({}));
    let expected = json!({"metadata": {"resourceVersion": "7"}, "data": {"config": "e30="}});
    assert_eq!(config_patch(&plain, &config), expected);

    let last_applied = "kubectl.kubernetes.io/last-applied-configuration";
    let applied = read(&json!({"annotations": {last_applied: "{}", "a": "b"}}));
    assert_eq!(applied.annotations.len(), 1);
    let patch = config_patch(&applied, &config);
    assert_eq!(patch["metadata"]["annotations"], json!({last_applied: null}));
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
}
