//! Authorizes an operation on a set as it is stored, for all who are asked about one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{Error, Operation, ResolvedInputs, SetAuthorizer, SetPermit, SetRequest};
use tollgate_applicationset::generate::{self, static_inputs};
use tollgate_applicationset::{ApplicationSet, ClusterInput};
use tollgate_objects::{Application, ObjectName, Resources};
use tollgate_proxy::record::CheckRecord;
use tollgate_state::write::WritableKind;

/// Why an operation is refused.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The generators of the set are wrong.
    #[error(transparent)]
    Generate(#[from] generate::Error),
    /// The caller may not do it.
    #[error(transparent)]
    Denied(#[from] Error),
}

/// An operation, the name of its set, and the set that was sent, if any.
#[derive(Clone, Copy, Debug)]
pub struct SetOperation<'a> {
    /// What is done with it.
    pub operation: Operation,
    /// The set's name.
    pub name: &'a ObjectName,
    /// The set as it is sent; `None` if nothing is.
    pub sent: Option<&'a ApplicationSet>,
}

/// Authorizes an operation with the inputs that the generators of the set are known to read.
///
/// - `stored`: the stored set.
/// - `owned`: its stored Applications.
pub fn authorize_set(
    authorizer: &SetAuthorizer<'_>,
    resources: &Resources,
    set_operation: SetOperation<'_>,
    stored: Option<&Value>,
    owned: &[&Value],
    checks: &mut Vec<CheckRecord>,
) -> Result<SetPermit, OperationError> {
    let SetOperation { operation, name, sent } = set_operation;
    let clusters = ClusterInput::all(resources);
    let statics = match sent {
        Some(set) => static_inputs(&set.spec)?,
        None => Default::default(),
    };
    let repositories: Vec<&str> = statics.repositories.iter().map(String::as_str).collect();
    let selected: Vec<&ClusterInput> = statics.clusters.iter().flat_map(|one| one.of(&clusters)).collect();
    let set_request = SetRequest {
        operation,
        name,
        sent,
        stored,
        owned,
        reads: ResolvedInputs {
            repositories: &repositories,
            clusters: &selected,
            plugin_kinds: &statics.plugin_kinds,
        },
    };
    Ok(authorizer.authorize_operation(&set_request, checks)?)
}

/// The Applications that name a set as their owner.
pub fn owned_by<'r>(resources: &'r Resources, set: &ObjectName) -> impl Iterator<Item = &'r Application> {
    let first = ObjectName {
        namespace: set.namespace.clone(),
        name: String::new(),
    };
    // Names are sorted by namespace first, and the empty name is before all others of it.
    let all = resources.applications.range(first..);
    let here = all.take_while(|(other, _)| other.namespace == set.namespace);
    let owned = here.filter(|(_, one)| one.application_set.as_ref().is_some_and(|owner| owner.name == set.name));
    owned.map(|(_, one)| &**one)
}

/// The same, with no more than permissions depend on.
pub fn owned_objects(resources: &Resources, set: &ObjectName) -> Vec<Value> {
    let owned = owned_by(resources, set);
    owned
        .map(|one| application_of(set, &one.name.name, &one.project))
        .collect()
}

/// The parts of a set's Application that decide permissions.
pub fn application_of(set: &ObjectName, name: &str, project: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "namespace": set.namespace,
            "ownerReferences": [{
                "apiVersion": WritableKind::ApplicationSet.api_version(), "kind": WritableKind::ApplicationSet.as_str(),
                "name": set.name, "controller": true,
            }],
        },
        "spec": {"project": project},
    })
}

/// A stored set's labels. Values that are not text are left out.
pub fn labels(set: &Value) -> BTreeMap<String, String> {
    let labels = set.pointer("/metadata/labels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten();
    let texts = pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    texts.collect()
}
