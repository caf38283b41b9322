//! Annotations that are not part of an object's desired state.
//!
//! Some ask a controller for something once and are removed when it is done; others record what a
//! tool did last. A client that copies an object sends them along.
//!
//! Security: an annotation that a controller keeps for itself is never taken from a caller's
//! object.

use serde_json::{Map, Value};

/// Such annotations of ApplicationSets, and those by which Argo CD tracks what it deployed itself.
const APPLICATION_SET_ANNOTATIONS: [&str; 6] = [
    "argocd.argoproj.io/application-set-refresh",
    "argocd.argoproj.io/refresh",
    "argocd.argoproj.io/hydrate",
    "argocd.argoproj.io/tracking-id",
    "argocd.argoproj.io/installation-id",
    LAST_APPLIED,
];

/// Such annotations of Applications that a template may have.
const APPLICATION_ANNOTATIONS: [&str; 4] = [
    "argocd.argoproj.io/refresh",
    "argocd.argoproj.io/hydrate",
    "notified.notifications.argoproj.io",
    LAST_APPLIED,
];

/// The annotation in which kubectl keeps what it applied.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub(super) fn without_transient(mut annotations: Map<String, Value>) -> Map<String, Value> {
    annotations.retain(|key, _| !APPLICATION_SET_ANNOTATIONS.contains(&key.as_str()));
    annotations
}

pub(super) fn only_transient(mut annotations: Map<String, Value>) -> Map<String, Value> {
    annotations.retain(|key, _| APPLICATION_SET_ANNOTATIONS.contains(&key.as_str()));
    annotations
}

/// Removes transient annotations from the metadata that a template gave.
pub(super) fn remove_transient(metadata: &mut Map<String, Value>) {
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.retain(|key, _| !APPLICATION_ANNOTATIONS.contains(&key.as_str()));
    }
}
