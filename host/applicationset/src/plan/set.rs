//! Computes the object to store for the ApplicationSet itself, from the stored one and the one
//! that was sent.
//!
//! Security: the gateway's and the controllers' own annotations are never taken from the sender.

use serde_json::{Map, Value, json};

use super::{
    AUTHOR_ANNOTATION, Action, ApplicationSet, PARENT_ANNOTATION, PROJECTS_ANNOTATION, PlannedChange, finalizers_of,
    metadata_map, put_map, put_or_remove,
};
use crate::transient_annotations;
use tollgate_objects::equivalence::EquivalenceRules;

/// Metadata that only the store sets; values that are sent are ignored.
const SERVER_SET_METADATA: [&str; 5] = [
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// How the specs of two sets are compared. Clients fill in what others omit, so one set comes in
/// several shapes. Elements, values and parameters belong to the user and are compared as they
/// are; a kind of generator is either present or not.
const SPEC: EquivalenceRules = EquivalenceRules {
    significant_zeros: &[
        "automated",
        "awsCodeCommit",
        "clusterDecisionResource",
        "clusters",
        "count",
        "enabled",
        "factor",
        "git",
        "includeSharedProjects",
        "list",
        "matrix",
        "maxUpdate",
        "merge",
        "plugin",
        "pullRequest",
        "requeueAfterSeconds",
        "revisionHistoryLimit",
        "scmProvider",
        "templatePatch",
    ],
    opaque: &[
        "annotations",
        "commonAnnotations",
        "commonLabels",
        "elements",
        "labels",
        "map",
        "matchLabels",
        "parameters",
        "values",
        "valuesObject",
    ],
    // A generator's template with project `default` selects that project; without a project it
    // uses the set's.
    has_default_project: false,
};

/// The object that an upsert stores: the spec and finalizers that were sent, the stored labels and
/// annotations with the sent ones added, and everything else as stored.
///
/// Source: Argo CD, `server/applicationset`, `updateAppSet`.
pub fn upserted(stored: &Value, sent: &Value) -> Value {
    let mut object = stored.clone();
    let Some(members) = object.as_object_mut() else {
        return sent.clone();
    };
    let spec = sent.get("spec").cloned().unwrap_or_else(|| json!({}));
    members.insert("spec".to_owned(), spec);
    let metadata = members.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        for key in ["labels", "annotations"] {
            let mut all = metadata_map(stored, key);
            all.extend(transient_annotations::without_transient(metadata_map(sent, key)));
            put_map(metadata, key, all);
        }
        let finalizers = sent.pointer("/metadata/finalizers").filter(|listed| !listed.is_null());
        put_or_remove(metadata, "finalizers", finalizers.cloned());
    }
    object
}

/// The object that a `PUT` stores: everything that was sent, and of the stored object only the
/// fields that the store sets. The version that was sent is kept, because the write is based on
/// it.
pub fn replaced(stored: &Value, sent: &Value) -> Value {
    let mut object = sent.clone();
    if let Some(members) = object.as_object_mut() {
        put_or_remove(members, "status", stored.get("status").cloned());
    }
    let version = sent.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    let is_sent = version.is_some_and(|version| !version.is_empty());
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        let mut annotations = transient_annotations::without_transient(metadata_map(sent, "annotations"));
        let stored_annotations = metadata_map(stored, "annotations");
        annotations.extend(transient_annotations::only_transient(stored_annotations));
        put_map(metadata, "annotations", annotations);
        let version = (!is_sent).then_some("resourceVersion");
        for key in SERVER_SET_METADATA.into_iter().chain(version) {
            put_or_remove(metadata, key, stored.pointer(&format!("/metadata/{key}")).cloned());
        }
    }
    object
}

/// Whether two sets have equal spec, labels, annotations and finalizers. The gateway's own
/// annotations and those of controllers are ignored. A field that is absent on one side equals an
/// empty one on the other.
///
/// Source: Argo CD, `server/applicationset`, `Create`, which compares them decoded.
pub fn is_equivalent(stored: &Value, sent: &Value) -> bool {
    let annotations = |object: &Value| {
        let mut all = transient_annotations::without_transient(metadata_map(object, "annotations"));
        all.remove(PROJECTS_ANNOTATION);
        all.remove(AUTHOR_ANNOTATION);
        all.remove(PARENT_ANNOTATION);
        all
    };
    SPEC.fields_equal("spec", stored.get("spec"), sent.get("spec"))
        && metadata_map(stored, "labels") == metadata_map(sent, "labels")
        && annotations(stored) == annotations(sent)
        && finalizers_of(stored) == finalizers_of(sent)
}

/// The change of the set itself, including the annotation with the projects of its Applications.
pub(super) fn change(set: &ApplicationSet, before: Option<Value>, projects: Option<&str>) -> PlannedChange {
    let mut after = match &before {
        Some(stored) => replaced(stored, &set.object),
        None => new_object(&set.object),
    };
    if let Some(metadata) = after.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), set.name.namespace.as_str().into());
        let mut annotations = match metadata.remove("annotations") {
            Some(Value::Object(annotations)) => annotations,
            Some(_) | None => Map::new(),
        };
        put_or_remove(&mut annotations, PROJECTS_ANNOTATION, projects.map(Value::from));
        // SECURITY: a statement is about one spec, and the component that signs a new one adds it.
        let kept = before
            .as_ref()
            .filter(|before| before.get("spec") == set.object.get("spec"));
        let statement = kept.and_then(|before| metadata_map(before, "annotations").remove(AUTHOR_ANNOTATION));
        put_or_remove(&mut annotations, AUTHOR_ANNOTATION, statement);
        // It counts again when the Application restores the spec that it deployed.
        let parent = before
            .as_ref()
            .and_then(|before| metadata_map(before, "annotations").remove(PARENT_ANNOTATION));
        put_or_remove(&mut annotations, PARENT_ANNOTATION, parent);
        put_map(metadata, "annotations", annotations);
    }
    let is_kept = before.as_ref().is_some_and(|before| {
        let annotation = |object: &Value| metadata_map(object, "annotations").get(PROJECTS_ANNOTATION).cloned();
        is_equivalent(before, &after) && annotation(before) == annotation(&after)
    });
    let action = match (&before, is_kept) {
        (None, _) => Action::Create,
        (Some(_), true) => Action::Keep,
        (Some(_), false) => Action::Update,
    };
    let after = (action != Action::Keep).then_some(after);
    PlannedChange::new(set.name.clone(), action, before, after)
}

/// A new object must not carry fields that the store set on another one.
fn new_object(sent: &Value) -> Value {
    let mut object = sent.clone();
    if let Some(members) = object.as_object_mut() {
        members.insert("apiVersion".to_owned(), "argoproj.io/v1alpha1".into());
        members.insert("kind".to_owned(), "ApplicationSet".into());
        members.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let others = ["resourceVersion", "managedFields", "selfLink"];
        for key in SERVER_SET_METADATA.into_iter().chain(others) {
            metadata.remove(key);
        }
        let annotations = metadata_map(sent, "annotations");
        put_map(
            metadata,
            "annotations",
            transient_annotations::without_transient(annotations),
        );
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{is_equivalent, new_object, replaced, upserted};

    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    const REFRESH: &str = "argocd.argoproj.io/application-set-refresh";

    fn set(annotations: &Value) -> Value {
        json!({"metadata": {"name": "web", "annotations": annotations}, "spec": {"goTemplate": true}})
    }

    fn annotations(object: &Value) -> Value {
        object.pointer("/metadata/annotations").cloned().unwrap_or_default()
    }

    #[test]
    fn controller_annotations_are_not_taken_from_the_client() {
        let stored = set(&json!({LAST: "{}", "team": "a"}));
        let sent = set(&json!({LAST: "forged", REFRESH: "true", "team": "b", "more": "c"}));
        let wanted = json!({LAST: "{}", "team": "b", "more": "c"});
        assert_eq!(annotations(&upserted(&stored, &sent)), wanted);
        assert_eq!(annotations(&replaced(&stored, &sent)), wanted);
        assert_eq!(annotations(&new_object(&sent)), json!({"team": "b", "more": "c"}));
        let only = set(&json!({LAST: "forged"}));
        assert_eq!(annotations(&new_object(&only)), Value::Null);
        assert_eq!(annotations(&replaced(&set(&json!({})), &only)), Value::Null);
    }

    #[test]
    fn only_controller_annotations_are_ignored_in_comparisons() {
        let stored = set(&json!({"team": "a"}));
        assert!(is_equivalent(
            &stored,
            &set(&json!({LAST: "{}", REFRESH: "true", "team": "a"}))
        ));
        assert!(!is_equivalent(&stored, &set(&json!({"team": "b"}))));
        assert!(!is_equivalent(
            &stored,
            &set(&json!({"team": "a", "argocd.argoproj.io/other": "x"}))
        ));
    }
}
