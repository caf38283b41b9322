//! Builds the input of the policy of the Kubernetes front, `data.tollgate.kubernetes.decision`: the
//! caller, the agent, the impersonated identity and the request.
//!
//! Security: the input contains no credential and no header.

use std::sync::LazyLock;

use regorus::Value;
use regorus::value::Object;
use serde_json::json;

use crate::impersonate::{AccessInput, Impersonation};
use tollgate_core::attributes::Attributes;
use tollgate_core::user::Identity;

/// The parts of the input that are the same for all requests of one access.
#[derive(Clone, Debug)]
pub struct KubernetesFacts(Object);

impl KubernetesFacts {
    /// Takes some 10 µs: call it once per access.
    pub fn new(access_input: AccessInput, impersonation: &Impersonation) -> Self {
        let AccessInput {
            agent,
            user,
            access,
            job,
        } = access_input;
        let identity = match impersonation {
            Impersonation::Nobody => serde_json::Value::Null,
            Impersonation::As(identity) => identity_json(identity),
        };
        let mut parts = vec![
            ("agent", agent),
            ("user", user),
            ("access", access),
            ("identity", identity),
        ];
        if !job.is_null() {
            parts.push(("job", job));
        }
        let entries = parts
            .into_iter()
            .map(|(key, value)| (Value::from(key), Value::from(value)));
        Self(entries.collect())
    }
}

/// An identity in the format of the input.
pub(in crate::rego) fn identity_json(identity: &Identity) -> serde_json::Value {
    let Identity {
        username,
        groups,
        uid,
        extra,
    } = identity;
    let values = extra.iter().map(|(key, values)| (key.clone(), json!(values)));
    let values: serde_json::Map<_, _> = values.collect();
    let mut object = json!({"username": username, "groups": groups, "extra": values});
    if let (Some(uid), Some(fields)) = (uid, object.as_object_mut()) {
        fields.insert("uid".to_owned(), json!(uid));
    }
    object
}

keys!(
    also_verb = "alsoVerb",
    api_group = "apiGroup",
    api_version = "apiVersion",
    name,
    namespace,
    path,
    request,
    resource,
    resource_request = "resourceRequest",
    subresource,
    upgrade,
    verb,
    verbs,
);

thread_local! {
    static KEYS: Keys = Keys::new();
}

/// Input of `data.tollgate.kubernetes.decision`. The schema is
/// [`kubernetes_input_schema`]; docs/policies.md explains it.
#[derive(Clone, Copy, Debug)]
pub struct KubernetesInput<'a> {
    /// The caller, the agent and the impersonated identity.
    pub facts: &'a KubernetesFacts,
    /// The request to the cluster.
    pub attributes: &'a Attributes,
}

impl KubernetesInput<'_> {
    /// The value on which a bundle decides. Takes about a microsecond, as all but the request was
    /// built before.
    pub fn to_value(&self) -> Value {
        KEYS.with(|keys| {
            let mut input = self.facts.0.clone();
            input.insert(keys.request.clone(), request(self.attributes));
            input.into_value()
        })
    }
}

/// A request to a cluster in the format of the input.
pub(super) fn request(attributes: &Attributes) -> Value {
    KEYS.with(|keys| {
        let Attributes {
            verb,
            also_verb,
            resource_request,
            api_group,
            api_version,
            resource,
            subresource,
            namespace,
            name,
            path,
            upgrade,
        } = attributes;
        let mut request = Object::new();
        let verbs: Vec<Value> = attributes.verbs().map(Value::from).collect();
        let given = [
            (&keys.verb, Value::from(verb.as_str())),
            (&keys.verbs, Value::from(verbs)),
            (&keys.resource_request, Value::from(*resource_request)),
            (&keys.api_group, Value::from(api_group.as_str())),
            (&keys.api_version, Value::from(api_version.as_str())),
            (&keys.path, Value::from(path.as_str())),
        ];
        for (key, value) in given {
            request.insert(key.clone(), value);
        }
        let optional = [
            (&keys.also_verb, also_verb.as_deref()),
            (&keys.resource, resource.as_deref()),
            (&keys.subresource, subresource.as_deref()),
            (&keys.namespace, namespace.as_deref()),
            (&keys.name, name.as_deref()),
            (&keys.upgrade, *upgrade),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                request.insert(key.clone(), Value::from(value));
            }
        }
        request.into_value()
    })
}

/// JSON Schema (2020-12) of the input of the Kubernetes front.
pub fn kubernetes_input_schema() -> &'static serde_json::Value {
    static SCHEMA: LazyLock<serde_json::Value> = LazyLock::new(|| {
        // If the file in the repository is broken, `false` refuses every input, and the tests fail.
        serde_json::from_str(include_str!("kubernetes.schema.json")).unwrap_or(serde_json::Value::Bool(false))
    });
    &SCHEMA
}
