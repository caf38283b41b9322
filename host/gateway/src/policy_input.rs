//! What the fronts share that keep the inputs of their policies.

use jiff::Timestamp;
use serde_json::Value;

use tollgate_core::attributes::Attributes;

/// Bytes of what is kept beside the facts of a caller, approximately: attributes of the request, and
/// references.
pub(crate) const ATTRIBUTE_BYTES: usize = 1_024;

/// Bytes that a request to a cluster keeps alive, approximately. Callers choose its path, and what is read
/// from it.
pub(crate) fn attributes_size(attributes: &Attributes) -> usize {
    attributes.path.len().saturating_mul(2).saturating_add(ATTRIBUTE_BYTES)
}

/// An input as JSON.
pub(crate) fn json(input: &regorus::Value) -> Value {
    // Inputs have nothing that JSON has not.
    serde_json::to_value(input).unwrap_or_default()
}

/// The time for an input: that of the decision, and without one the time of the record. A policy that
/// does not read the time is not given any, but the one that is tried may read it.
pub(crate) fn json_time(judged: Option<&str>, at: Option<Timestamp>) -> Option<String> {
    judged.map(str::to_owned).or_else(|| at.map(|at| at.to_string()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;
    use strum::{VariantArray, VariantNames};

    use crate::applicationsets::permit::Operation;
    use tollgate_applicationset::plan::Action;
    use tollgate_config::ImpersonationMode;
    use tollgate_core::principal::Kind;
    use tollgate_core::session::AccessType;
    use tollgate_core::upgrade::Protocol;
    use tollgate_core::user::{AccessAs, Role};
    use tollgate_objects::extensions::Scope;
    use tollgate_policy::application_request::{ActingIdentity, ObjectOperation, ReadOrWrite};
    use tollgate_policy::impersonate::service_account::AccountSource;
    use tollgate_policy::rbac::Effect;
    use tollgate_rego::{ApplicationSetStage, Front};

    fn texts<T: VariantArray>(text: impl Fn(&'static T) -> &'static str) -> Vec<&'static str> {
        let mut texts: Vec<&str> = T::VARIANTS.iter().map(text).collect();
        texts.dedup();
        texts
    }

    /// Every `enum` of a schema with its path.
    fn enums<'s>(schema: &'s Value, path: &str, found: &mut BTreeMap<String, Vec<&'s str>>) {
        match schema {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| match (key.as_str(), value) {
                ("enum", Value::Array(values)) => {
                    let values = values.iter().map(|value| value.as_str().unwrap());
                    found.insert(path.to_owned(), values.collect());
                }
                ("properties" | "items" | "$defs", value) => enums(value, path, found),
                (key, value) => enums(value, &format!("{path}.{key}"), found),
            }),
            Value::Array(items) => items.iter().for_each(|item| enums(item, path, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// A value that the gateway can send and a schema lacks is one that no case can have.
    #[test]
    fn the_schemas_list_the_values_that_the_gateway_sends() {
        let sent: BTreeMap<&str, Vec<&str>> = BTreeMap::from([
            ("*.principal.kind", texts::<Kind>(Into::into)),
            ("*.request.upgrade", texts::<Protocol>(Into::into)),
            ("extensions.extension.scope", texts::<Scope>(AsRef::as_ref)),
            ("extensions.rbac.candidates.effect", texts::<Effect>(Into::into)),
            ("kubernetes.access.type", texts::<AccessType>(Into::into)),
            ("kubernetes.access.as", AccessAs::VARIANTS.to_vec()),
            ("kubernetes.memberships.roles", texts::<Role>(Into::into)),
            ("*.access", texts::<ReadOrWrite>(AsRef::as_ref)),
            ("applications.operation", texts::<ObjectOperation>(AsRef::as_ref)),
            ("applications.identity.mode", texts::<ImpersonationMode>(Into::into)),
            ("applications.identity.acts", ActingIdentity::VARIANTS.to_vec()),
            ("applications.identity.acting.by", AccountSource::VARIANTS.to_vec()),
            ("applicationsets.operation", texts::<Operation>(Into::into)),
            ("applicationsets.stage", ApplicationSetStage::VARIANTS.to_vec()),
            ("applicationsets.application.action", texts::<Action>(Into::into)),
        ]);
        let mut seen = 0;
        for front in Front::VARIANTS {
            let mut listed = BTreeMap::new();
            enums(front.input_schema(), front.as_ref(), &mut listed);
            for (path, mut values) in listed {
                let any_front = format!("*{}", path.trim_start_matches(front.as_ref()));
                let sent = sent.get(path.as_str()).or_else(|| sent.get(any_front.as_str()));
                let mut sent = sent
                    .unwrap_or_else(|| panic!("nothing says what the gateway sends as {path}"))
                    .clone();
                values.sort_unstable();
                sent.sort_unstable();
                assert_eq!(values, sent, "{path}");
                seen += 1;
            }
        }
        assert_eq!(seen, 22);
    }
}
