//! Annotations that are no part of what somebody wants.
//!
//! In: annotations. Out: those that are, or are not. Never: one that a controller keeps
//! for itself taken from what a caller sent.
//!
//! They ask a controller for something once, and are taken away when it is done; or they
//! say what a tool did last. Whoever copies an object sends them along.

use serde_json::{Map, Value};

/// Those of ApplicationSets, and those by which Argo CD knows what it deployed itself.
const OF_SETS: [&str; 6] = [
    "argocd.argoproj.io/application-set-refresh",
    "argocd.argoproj.io/refresh",
    "argocd.argoproj.io/hydrate",
    "argocd.argoproj.io/tracking-id",
    "argocd.argoproj.io/installation-id",
    LAST_APPLIED,
];

/// Those of Applications that a template may have.
const OF_APPLICATIONS: [&str; 4] = [
    "argocd.argoproj.io/refresh",
    "argocd.argoproj.io/hydrate",
    "notified.notifications.argoproj.io",
    LAST_APPLIED,
];

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A set's annotations without them.
pub(super) fn lasting(mut annotations: Map<String, Value>) -> Map<String, Value> {
    annotations.retain(|key, _| !OF_SETS.contains(&key.as_str()));
    annotations
}

/// Those of a set's annotations alone.
pub(super) fn only(mut annotations: Map<String, Value>) -> Map<String, Value> {
    annotations.retain(|key, _| OF_SETS.contains(&key.as_str()));
    annotations
}

/// Takes them away from what a template gave as metadata.
pub(super) fn remove(metadata: &mut Map<String, Value>) {
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.retain(|key, _| !OF_APPLICATIONS.contains(&key.as_str()));
    }
}
