//! Builds the input of the policy of the Kubernetes front, `data.tollgate.kubernetes.decision`: the
//! caller, the agent, the impersonated identity and the request.
//!
//! Security: the input contains no credential and no header.

use regorus::Value;
use regorus::value::Object;
use serde_json::json;

use super::{insert, object, optional, reusable, texts};
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
        Self(reusable([
            ("agent", agent.into()),
            ("user", user.into()),
            ("access", access.into()),
            ("identity", identity.into()),
            ("job", optional((!job.is_null()).then_some(job))),
        ]))
    }
}

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

/// Input of `data.tollgate.kubernetes.decision`. The schema is
/// [`Front::input_schema`](crate::rego::Front::input_schema); docs/policies.md explains it.
#[derive(Clone, Copy, Debug)]
pub struct KubernetesInput<'a> {
    /// The caller, the agent and the impersonated identity.
    pub facts: &'a KubernetesFacts,
    /// The request to the cluster.
    pub attributes: &'a Attributes,
    /// When it is judged, in UTC as RFC 3339. `None` if the bundle does not read it.
    pub time: Option<&'a str>,
}

impl KubernetesInput<'_> {
    /// The value on which a bundle decides. Takes about a microsecond, as all but the request was
    /// built before.
    pub fn to_value(&self) -> Value {
        let mut input = self.facts.0.clone();
        let parts = [("request", request(self.attributes)), ("time", optional(self.time))];
        insert(&mut input, parts);
        input.into_value()
    }
}

pub(super) fn request(attributes: &Attributes) -> Value {
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
    object([
        ("verb", verb.as_str().into()),
        ("verbs", texts(attributes.verbs())),
        ("resourceRequest", (*resource_request).into()),
        ("apiGroup", api_group.as_str().into()),
        ("apiVersion", api_version.as_str().into()),
        ("path", path.as_str().into()),
        ("alsoVerb", optional(also_verb.as_deref())),
        ("resource", optional(resource.as_deref())),
        ("subresource", optional(subresource.as_deref())),
        ("namespace", optional(namespace.as_deref())),
        ("name", optional(name.as_deref())),
        ("upgrade", optional(*upgrade)),
    ])
}
