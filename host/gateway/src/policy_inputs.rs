//! What fronts send to policies, compared with the schemas.

use std::collections::BTreeMap;

use serde_json::Value;
use strum::{VariantArray, VariantNames};

use tollgate_applicationset::plan::Action;
use tollgate_applicationset_rights::Operation;
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
