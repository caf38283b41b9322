//! Keys differ exactly if one of their inputs differs.

use serde_json::json;

use super::{CredentialKey, KeyInputs, SecretVersion, Tenancy, Value, fingerprint};

fn check(change: impl FnOnce(&mut KeyInputs<'_>), same: bool) {
    let config = json!({"a": 1, "b": {"d": [1, 2], "c": "x"}});
    let secrets = [
        SecretVersion::Bytes { name: "k", bytes: b"1" },
        SecretVersion::Version {
            name: "v",
            version: "7",
        },
    ];
    let parts = KeyInputs {
        abi: "tollgate:plugin@0.1.0",
        plugin: "sha256:aa",
        config: &config,
        secrets: &secrets,
        tenancy: Tenancy::Cluster("c1"),
        policy: "p",
    };
    let mut changed = parts;
    change(&mut changed);
    assert_eq!(
        CredentialKey::from_inputs(&parts) == CredentialKey::from_inputs(&changed),
        same
    );
}

#[test]
fn the_same_inputs_give_the_same_key() {
    check(|_| {}, true);
}

#[test]
fn every_input_changes_the_key() {
    check(|parts| parts.abi = "tollgate:plugin@0.2.0", false);
    check(|parts| parts.plugin = "sha256:ab", false);
    check(|parts| parts.policy = "q", false);
    check(|parts| parts.tenancy = Tenancy::Cluster("c2"), false);
    check(|parts| parts.tenancy = Tenancy::Shareable, false);
    check(|parts| parts.secrets = &[], false);
}

#[test]
fn adjacent_inputs_do_not_run_together() {
    check(
        |parts| {
            parts.abi = "tollgate:plugin@0.1.0s";
            parts.plugin = "ha256:aa";
        },
        false,
    );
}

fn with_config(config: &Value, same: bool) {
    let other = json!({"a": 1, "b": {"d": [1, 2], "c": "x"}});
    let parts = |config| KeyInputs {
        abi: "1",
        plugin: "p",
        config,
        secrets: &[],
        tenancy: Tenancy::Shareable,
        policy: "",
    };
    assert_eq!(
        CredentialKey::from_inputs(&parts(config)) == CredentialKey::from_inputs(&parts(&other)),
        same,
        "{config}"
    );
}

#[test]
fn field_order_does_not_matter_but_item_order_does() {
    with_config(&json!({"b": {"c": "x", "d": [1, 2]}, "a": 1}), true);
    with_config(&json!({"b": {"c": "x", "d": [2, 1]}, "a": 1}), false);
    with_config(&json!({"b": {"c": "x", "d": [1, 2]}, "a": "1"}), false);
    with_config(&json!({"b": {"c": "x", "d": [1, 2]}, "a": true}), false);
    with_config(&json!({"b": {"c": "x"}, "a": 1, "d": [1, 2]}), false);
    with_config(&json!({"b": {"c": "x", "d": [1, 2]}, "a": null}), false);
}

#[test]
fn secrets_are_identified_by_name_and_version_in_any_order() {
    let config = json!({});
    let key = |secrets: &[SecretVersion<'_>]| {
        CredentialKey::from_inputs(&KeyInputs {
            abi: "1",
            plugin: "p",
            config: &config,
            secrets,
            tenancy: Tenancy::Cluster("c"),
            policy: "",
        })
    };
    let version = |name, version| SecretVersion::Version { name, version };
    let bytes = |name, bytes| SecretVersion::Bytes { name, bytes };
    assert_eq!(
        key(&[version("a", "1"), version("b", "2")]),
        key(&[version("b", "2"), version("a", "1")])
    );
    assert_ne!(
        key(&[version("a", "1"), version("b", "2")]),
        key(&[version("a", "2"), version("b", "1")])
    );
    assert_ne!(key(&[bytes("a", b"1")]), key(&[bytes("a", b"2")]));
    assert_ne!(key(&[bytes("a", b"1")]), key(&[version("a", "1")]));
    assert_ne!(key(&[bytes("a", b"b\nc")]), key(&[bytes("a", b"b"), bytes("c", b"")]));
}

#[test]
fn names_in_logs_show_no_secret() {
    assert_eq!(fingerprint("t").len(), 8);
    assert_eq!(fingerprint("t"), fingerprint("t"));
    assert_ne!(fingerprint("t"), fingerprint("u"));
    let secret = SecretVersion::Bytes {
        name: "k",
        bytes: b"hidden",
    };
    assert_eq!(format!("{secret:?}"), "SecretVersion(k)");
}
