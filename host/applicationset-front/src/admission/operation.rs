//! Checks what an operation says of itself: who asked for it, and to which Application the manifests
//! belong that it brings along.
//!
//! Security: Argo CD gives what comes from a repository the tracking id of the Application that
//! deploys it, and manifests of an operation (`argocd app sync --local`) keep the one that they have.
//! The application controller writes both with one account. So an operation whose manifests name
//! another Application never starts, and the tracking id of what that controller writes can be trusted.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::admission::changes::new_operations;
use crate::admission::judge::Refusal;
use crate::admission::review::{GROUP, KINDS, WrittenObject};
use tollgate_identity::authenticate::Principal;
use tollgate_policy::applications::{TrackedBy, Tracking};
use tollgate_state::write::WritableKind;

/// Deepest list within a list of manifests.
const MAX_LISTS: usize = 8;

/// Refuses new operations whose manifests belong to another Application than `instance`, the one that
/// is synced.
pub(super) fn check_manifests(tracking: &Tracking, instance: &str, object: &WrittenObject) -> Result<(), Refusal> {
    if object.kind != WritableKind::Application {
        return Ok(());
    }
    for operation in new_operations(object) {
        let listed = operation.pointer("/sync/manifests");
        let listed = listed.and_then(Value::as_array).into_iter().flatten();
        for (index, manifest) in listed.enumerate() {
            let wrong = match manifest.as_str() {
                // Argo CD passes over these.
                Some("" | "null") => continue,
                Some(text) => serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}")),
                None => Err("is not a text".to_owned()),
            };
            let checked = wrong.and_then(|manifest: Value| check_manifest(tracking, instance, &manifest, MAX_LISTS));
            checked.map_err(|wrong| {
                let text = format!("`operation.sync.manifests[{index}]` {wrong}");
                Refusal::new("parent_claimed", text)
            })?;
        }
    }
    Ok(())
}

fn check_manifest(tracking: &Tracking, instance: &str, manifest: &Value, lists_left: usize) -> Result<(), String> {
    if let Some(items) = manifest.get("items").and_then(Value::as_array) {
        let lists_left = lists_left.checked_sub(1);
        let lists_left = lists_left.ok_or_else(|| format!("has more than {MAX_LISTS} lists within each other"))?;
        for item in items {
            check_manifest(tracking, instance, item, lists_left)?;
        }
    }
    let text = |key: &str| manifest.get(key).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").split_once('/').map(|(group, _)| group);
    let kind = KINDS.into_iter().find(|kind| kind.as_str() == text("kind"));
    let Some(kind) = kind.filter(|_| group == Some(GROUP)) else {
        return Ok(());
    };
    let metadata = manifest.get("metadata").cloned().unwrap_or_default();
    let metadata: ObjectMeta =
        serde_json::from_value(metadata).map_err(|error| format!("has `metadata` that cannot be read: {error}"))?;
    // Argo CD sets namespace and tracking id together.
    let is_set_later = metadata.namespace.as_deref().unwrap_or_default().is_empty();
    match tracking.claim(&metadata) {
        _ if is_set_later => Ok(()),
        Some(TrackedBy::Instance(claimed)) if claimed == instance => Ok(()),
        Some(TrackedBy::Instance(_) | TrackedBy::Unknown) | None => Err(format!(
            "is an {} without the tracking id of Application `{instance}`, which is synced: leave out its namespace, \
             or let Argo CD's command line render it",
            kind.as_str()
        )),
    }
}

/// Refuses a new operation that somebody else is said to have started.
pub(super) fn check_initiator(user: &Principal, object: &WrittenObject) -> Result<(), Refusal> {
    if object.kind != WritableKind::Application {
        return Ok(());
    }
    for operation in new_operations(object) {
        let initiator = operation.get("initiatedBy").unwrap_or(&Value::Null);
        let username = initiator.get("username").and_then(Value::as_str).unwrap_or_default();
        let is_automated = !matches!(
            initiator.get("automated"),
            None | Some(Value::Null | Value::Bool(false))
        );
        if is_automated || !(username.is_empty() || username == user.username()) {
            let text = format!(
                "for `{}`: `operation.initiatedBy` names somebody else; leave it out",
                user.username()
            );
            return Err(Refusal::new("initiator_claimed", text));
        }
    }
    Ok(())
}
