//! Decodes ApplicationSets, as JSON for the code that interprets them. One without a `spec` is left
//! out with a warning, and everything else loads. Managed fields are dropped.

use serde_json::Value;

use super::read::Object;
use crate::SetReference;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::yaml::Node;
use tollgate_core::yaml::to_json;

/// Tenants write ApplicationSets, so one without a `spec` is only a warning and is left out.
pub(super) fn application_set(object: &Object<'_>) -> Option<Value> {
    let has_spec = object.fields.node("spec").is_some_and(|spec| spec.entries().is_some());
    if !has_spec {
        let (fields, name) = (&object.fields, &object.name.name);
        let message = format!("the object is left out: ApplicationSet `{name}` has no `spec`");
        let finding = Diagnostic::warning(fields.location(), message);
        fields.report(finding.with_hint("a file cut short looks like this"));
        return None;
    }
    let mut set = to_json(object.fields.node);
    let members = set.as_object_mut()?;
    // Items of a typed list (`ApplicationSetList`) have neither.
    members.insert("apiVersion".to_owned(), "argoproj.io/v1alpha1".into());
    members.insert("kind".to_owned(), "ApplicationSet".into());
    let metadata = members.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("managedFields");
    metadata.insert("namespace".to_owned(), object.name.namespace.as_str().into());
    Some(set)
}

/// The ApplicationSet that is the controller of an object.
///
/// Source: Kubernetes, `GetControllerOf`; Argo CD, `appControllerIndexer`.
pub(super) fn controller(metadata: &Node) -> Option<SetReference> {
    let text = |reference: &Node, key: &str| Some(reference.get(key)?.scalar()?.text.to_string());
    let mut references = metadata.get("ownerReferences")?.items()?.iter();
    let controller = references.find(|reference| text(reference, "controller").as_deref() == Some("true"))?;
    let is_set = text(controller, "kind").as_deref() == Some("ApplicationSet")
        && text(controller, "apiVersion").is_some_and(|version| version.starts_with("argoproj.io/"));
    let name = text(controller, "name").filter(|_| is_set)?;
    let uid = text(controller, "uid").unwrap_or_default();
    Some(SetReference { name, uid })
}
