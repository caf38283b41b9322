//! Checks whether two sets of inputs share a cache entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tollgate_credential::cache::key::{CredentialKey, KeyInputs, SecretVersion, Tenancy};

use super::harness::{Harness, MintResult};
use crate::suite::same;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pair {
    a: Inputs,
    b: Inputs,
    expect: Expected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    same_entry: bool,
}

/// Inputs of a credential's cache key.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Inputs {
    pub(super) plugin: String,
    #[serde(default, alias = "digest")]
    plugin_digest: Value,
    #[serde(default, alias = "abi_version")]
    abi: Value,
    pub(super) config: Value,
    #[serde(default)]
    pub(super) secret: BTreeMap<String, String>,
    /// The version of the Kubernetes Secret, if the case has one.
    #[serde(default, alias = "secret_version")]
    resource_version: Value,
    cluster: String,
    #[serde(default)]
    shareable: bool,
    #[serde(default, alias = "granted_policy", alias = "grant")]
    pub(super) policy: Value,
}

impl Inputs {
    /// Arbitrary inputs, for cases about changes that reset failures.
    pub(super) fn some() -> Self {
        Self {
            plugin: "p".to_owned(),
            plugin_digest: Value::Null,
            abi: Value::Null,
            config: serde_json::json!({"field": "1"}),
            secret: BTreeMap::from([("token".to_owned(), "1".to_owned())]),
            resource_version: Value::Null,
            cluster: "c".to_owned(),
            shareable: false,
            policy: Value::Null,
        }
    }

    pub(super) fn key(&self) -> CredentialKey {
        let version = self.resource_version.to_string();
        let secrets: Vec<_> = self
            .secret
            .iter()
            .map(|(name, value)| match self.resource_version {
                Value::Null => SecretVersion::Bytes {
                    name,
                    bytes: value.as_bytes(),
                },
                _ => SecretVersion::Version {
                    name,
                    version: &version,
                },
            })
            .collect();
        CredentialKey::from_inputs(&KeyInputs {
            abi: &self.abi.to_string(),
            plugin: &format!("{} {}", self.plugin, self.plugin_digest),
            config: &self.config,
            secrets: &secrets,
            tenancy: if self.shareable {
                Tenancy::Shareable
            } else {
                Tenancy::Cluster(&self.cluster)
            },
            policy: &self.policy.to_string(),
        })
    }
}

pub(super) async fn pair(case: Pair) -> Result<(), String> {
    let harness = Harness::new(MintResult::New(None));
    let (a, b) = (harness.slot_of(case.a.key()), harness.slot_of(case.b.key()));
    same(&case.expect.same_entry, &Arc::ptr_eq(&a, &b))
}
