//! Plans the change of one Application, from its stored and its generated form. What others own in
//! it is kept.

use serde_json::{Map, Value, json};

use super::ignore::IgnoreRules;
use super::{
    Action, Owner, PlannedChange, finalizers_of, may_delete, metadata_map, put_map, put_or_remove, with_owner_reference,
};
use crate::{ApplicationSet, ApplicationsSync};
use tollgate_objects::equivalence::APPLICATION;

/// Annotations that the controllers keep for themselves.
///
/// Source: Argo CD, `createOrUpdateInCluster`.
const KEPT_ANNOTATIONS: [&str; 3] = [
    "notified.notifications.argoproj.io",
    "argocd.argoproj.io/refresh",
    "argocd.argoproj.io/hydrate",
];

/// Prefixes of finalizers of hooks, which the controllers add.
const KEPT_FINALIZERS: [&str; 2] = [
    "pre-delete-finalizer.argocd.argoproj.io",
    "post-delete-finalizer.argocd.argoproj.io",
];

fn may_update(sync: ApplicationsSync) -> bool {
    match sync {
        ApplicationsSync::Sync | ApplicationsSync::CreateUpdate => true,
        ApplicationsSync::CreateOnly | ApplicationsSync::CreateDelete => false,
    }
}

pub(super) struct Planner<'a> {
    pub(super) set: &'a ApplicationSet,
    pub(super) owner: Owner,
    pub(super) rules: IgnoreRules,
}

impl Planner<'_> {
    pub(super) fn create(&self, name: String, generated: Value) -> PlannedChange {
        let after = with_owner_reference(with_defaults(generated), &self.owner);
        PlannedChange::new(self.set.application_name(name), Action::Create, None, Some(after))
    }

    pub(super) fn delete(&self, name: String, before: Value) -> PlannedChange {
        let (action, held_back) = match may_delete(self.set.sync()) {
            true => (Action::Delete, None),
            false => (Action::Keep, Some(Action::Delete)),
        };
        PlannedChange {
            held_back,
            ..PlannedChange::new(self.set.application_name(name), action, Some(before), None)
        }
    }

    pub(super) fn update(&self, name: String, before: Value, generated: Value) -> PlannedChange {
        let after = self.wanted(&name, &before, &generated);
        let differs = after.is_some();
        let allowed = may_update(self.set.sync());
        let after = after.filter(|_| allowed);
        let action = if after.is_some() { Action::Update } else { Action::Keep };
        let held_back = (differs && !allowed).then_some(Action::Update);
        // In all other cases the result equals what was generated.
        let may_differ = held_back.is_some() || self.rules.applies_to(&name);
        let stays = after.as_ref().unwrap_or(&before);
        let differs = may_differ && !contains_generated(stays, &generated);
        PlannedChange {
            name: self.set.application_name(name),
            action,
            before: Some(before),
            after,
            held_back,
            generated: differs.then(|| with_defaults(generated)),
        }
    }

    /// The object to store: the stored one with everything the set generates. `None` if that
    /// changes nothing.
    fn wanted(&self, name: &str, before: &Value, generated: &Value) -> Option<Value> {
        // Most Applications of a set do not change, so nothing is copied for them.
        // An ignored field or an operation cannot be judged by the spec alone, so the result is made and compared.
        if !specs_equal(before, generated) || self.rules.applies_to(name) || generated.get("operation").is_some() {
            let after = self.rules.apply(name, before, self.merged(before, generated));
            return (!is_unchanged(before, &after, &self.owner)).then_some(after);
        }
        let is_same = ["annotations", "labels"].iter().all(|part| {
            let kept = Value::Object(self.kept(before, generated, part));
            metadata_equal(part, before, Some(&kept))
        });
        let finalizers = Value::Array(finalizers(before, generated));
        let is_same = is_same
            && metadata_equal("finalizers", before, Some(&finalizers))
            && self.owner.has_exact_reference(before);
        (!is_same).then(|| self.merged(before, generated))
    }

    /// The annotations or labels to store: the generated ones, with the stored values of keys that
    /// are kept.
    fn kept(&self, before: &Value, generated: &Value, part: &str) -> Map<String, Value> {
        let preserved = &self.set.spec.preserved_fields;
        let (preserved, own) = match part {
            "annotations" => (&preserved.annotations, &KEPT_ANNOTATIONS[..]),
            _ => (&preserved.labels, &[][..]),
        };
        let (stored, mut members) = (metadata_map(before, part), metadata_map(generated, part));
        for key in preserved.iter().map(String::as_str).chain(own.iter().copied()) {
            if let Some(value) = stored.get(key) {
                members.insert(key.to_owned(), value.clone());
            }
        }
        members
    }

    fn merged(&self, before: &Value, generated: &Value) -> Value {
        let mut after = before.clone();
        let Some(members) = after.as_object_mut() else {
            return with_defaults(generated.clone());
        };
        let spec = generated.get("spec").cloned().unwrap_or_else(|| json!({}));
        members.insert("spec".to_owned(), spec);
        if let Some(operation) = generated.get("operation").filter(|operation| !operation.is_null()) {
            members.insert("operation".to_owned(), operation.clone());
        }
        let texts = ["annotations", "labels"].map(|part| (part, self.kept(before, generated, part)));
        let metadata = members.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            for (key, members) in texts {
                put_map(metadata, key, members);
            }
            let finalizers = finalizers(before, generated);
            let finalizers = (!finalizers.is_empty()).then_some(Value::Array(finalizers));
            put_or_remove(metadata, "finalizers", finalizers);
        }
        with_owner_reference(with_defaults(after), &self.owner)
    }
}

fn finalizers(before: &Value, generated: &Value) -> Vec<Value> {
    let mut all = finalizers_of(generated).to_vec();
    for finalizer in finalizers_of(before) {
        let text = finalizer.as_str().unwrap_or_default();
        if KEPT_FINALIZERS.iter().any(|kept| text.starts_with(kept)) && !all.contains(finalizer) {
            all.push(finalizer.clone());
        }
    }
    all
}

/// The Application with Argo CD's defaults filled in.
///
/// Source: Argo CD, `NormalizeApplicationSpec`.
fn with_defaults(mut application: Value) -> Value {
    if let Some(spec) = application.get_mut("spec").and_then(Value::as_object_mut) {
        // The checks refuse a project that is not a string.
        let project = spec.get("project");
        if project.is_none_or(|project| project.is_null() || project == "") {
            spec.insert("project".to_owned(), "default".into());
        }
        let policy = spec.get("syncPolicy");
        if policy.is_some_and(|policy| APPLICATION.is_zero_value("syncPolicy", policy)) {
            spec.remove("syncPolicy");
        }
    }
    application
}

/// Whether storing `after` in place of `before` changes nothing.
fn is_unchanged(before: &Value, after: &Value, owner: &Owner) -> bool {
    let part = |key: &str| after.get("metadata").and_then(|metadata| metadata.get(key));
    let parts = ["labels", "annotations", "finalizers"];
    specs_equal(before, after)
        && before.get("operation") == after.get("operation")
        && parts.iter().all(|key| metadata_equal(key, before, part(key)))
        && owner.has_exact_reference(before)
}

/// Whether the stored object contains everything that is generated and checked: the spec is equal
/// and no operation is started.
fn contains_generated(stored: &Value, generated: &Value) -> bool {
    let operation = generated.get("operation").filter(|operation| !operation.is_null());
    let starts = operation.is_some_and(|operation| stored.get("operation") != Some(operation));
    !starts && specs_equal(stored, generated)
}

fn specs_equal(before: &Value, after: &Value) -> bool {
    APPLICATION.fields_equal("spec", before.get("spec"), after.get("spec"))
}

fn metadata_equal(key: &str, before: &Value, after: Option<&Value>) -> bool {
    let before = before.get("metadata").and_then(|metadata| metadata.get(key));
    APPLICATION.fields_equal(key, before, after)
}
