//! Builds the input of the policy of the Kubernetes front, `data.tollgate.kubernetes.decision`: the
//! caller, the agent, the impersonated identity and the request.
//!
//! Security: the input contains no credential and no header.

use regorus::Value;
use regorus::value::Object;
use serde_json::json;

use super::{insert, object, optional, reusable, texts};
use tollgate_core::attributes::Attributes;
use tollgate_core::user::Identity;
use tollgate_policy::impersonate::{AccessInput, Impersonation};

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

pub(crate) fn identity_json(identity: &Identity) -> serde_json::Value {
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
/// [`Front::input_schema`](crate::Front::input_schema); docs/policies.md explains it.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::{KubernetesFacts, KubernetesInput};
    use crate::front::Front;
    use tollgate_core::access::AccessFacts;
    use tollgate_core::agent::{Agent, AgentId};
    use tollgate_core::attributes::Attributes;
    use tollgate_core::session::{AccessType, SessionId};
    use tollgate_core::user::{AccessAs, User};
    use tollgate_policy::impersonate::{AccessInput, Impersonation};

    #[test]
    fn groups_that_are_not_known_are_absent() {
        let schema = jsonschema::validator_for(Front::Kubernetes.input_schema()).unwrap();
        for groups in [None, Some(vec!["oidc:contractors".to_owned()])] {
            let facts = AccessFacts {
                agent: Arc::new(Agent {
                    id: AgentId::parse("7").unwrap(),
                    name: "production".to_owned(),
                    config_project: 1,
                    cluster: "in-cluster".to_owned(),
                }),
                user: User {
                    id: 102,
                    username: "bob".to_owned(),
                },
                issuer_groups: groups.clone().map(Into::into),
                access_as: AccessAs::Agent,
                session: SessionId::new(AccessType::Login, "1"),
            };
            let facts = KubernetesFacts::new(AccessInput::from_facts(&facts), &Impersonation::Nobody);
            let input = KubernetesInput {
                facts: &facts,
                attributes: &Attributes::read(&http::Method::GET, "/version", None, None),
                time: None,
            };
            let input = serde_json::to_value(input.to_value()).unwrap();
            assert_eq!(
                input.pointer("/user/groups"),
                groups.map(|groups| json!(groups)).as_ref()
            );
            assert!(schema.is_valid(&input), "{input}");
        }
    }
}
