//! Tells apart what a component of Argo CD finds out about an object, which it writes freely, from
//! what the object is and what is to be done with it, which is judged.
//!
//! Free are `status`, the end of an operation, and what the components keep for themselves in
//! annotations and finalizers. A sync takes its content from `status.operationState.operation` while
//! one is running, so that part is an operation too.
//!
//! Invariant: the `matchConditions` of the shipped webhooks keep from the gateway only what is free
//! here.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::admission::judge::WriterKind;
use crate::admission::review::WrittenObject;
use tollgate_applicationset_rights::OVERRIDES;
use tollgate_state::write::WritableKind;

const OPERATION: &str = "/operation";
/// The operation that is running, or ran last.
const RUNNING: &str = "/status/operationState/operation";

/// Annotations by which the components are asked for something once.
const REQUESTS: [&str; 3] = [
    "argocd.argoproj.io/refresh",
    "argocd.argoproj.io/hydrate",
    "argocd.argoproj.io/application-set-refresh",
];

/// Finalizers that the application controller adds and removes as hooks come and go. Each may have a
/// stage after a `/`.
const HOOKS: [&str; 2] = [
    "pre-delete-finalizer.argocd.argoproj.io",
    "post-delete-finalizer.argocd.argoproj.io",
];

/// Finalizer of a set whose Applications are deleted in an order.
const RESOURCES: &str = "resources-finalizer.argocd.argoproj.io";

/// What of a write is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changes {
    /// It is created or deleted, or what it is changes.
    pub(super) definition: bool,
    /// An operation starts, or another one takes the place of the one that is running.
    pub(super) operation: bool,
}

impl Changes {
    pub(super) fn of(object: &WrittenObject, by: WriterKind) -> Self {
        Self {
            definition: changes_definition(object, by),
            operation: starts_operation(object) || resumes_another(object),
        }
    }

    /// Whether nothing is judged.
    pub(super) fn none(self) -> bool {
        !self.definition && !self.operation
    }
}

/// Whether the write starts the sync that `spec.syncPolicy.automated` asks for, with what the
/// Application says.
pub(super) fn is_automated_sync(object: &WrittenObject) -> bool {
    let (Some(before), Some(after)) = (object.before(), object.after()) else {
        return false;
    };
    let Some(operation) = field(after, OPERATION) else {
        return false;
    };
    let sync = operation.get("sync").unwrap_or(&Value::Null);
    // The controller repeats the Application's own source.
    let overrides = OVERRIDES.iter().any(|part| {
        let part = (part, sync.get(part).filter(|value| !value.is_null()));
        matches!(part, (part, Some(value)) if Some(essential(value)) != own(after, part))
    });
    let automated = field(after, "/spec/syncPolicy/automated");
    // As in Argo CD, automated syncs without `enabled` are on.
    let is_enabled = automated.is_some_and(|automated| automated.get("enabled") != Some(&Value::Bool(false)));
    is_enabled
        && !overrides
        && field(before, OPERATION).is_none()
        && operation.pointer("/initiatedBy/automated") == Some(&Value::Bool(true))
        && !resumes_another(object)
}

/// What the sync of an Application as it says itself has in `source` and `sources`
/// (`ApplicationSpec.GetSource` of Argo CD).
fn own(application: &Value, part: &str) -> Option<Value> {
    let spec = application.get("spec")?;
    let hydrated = field(spec, "/sourceHydrator").map(|hydrator| {
        let text = |pointer| field(hydrator, pointer).cloned().unwrap_or_default();
        let branch = text("/syncSource/targetBranch");
        let repository = [text("/syncSource/repoURL"), text("/drySource/repoURL")];
        let repository = repository
            .into_iter()
            .find(|url| url.as_str().is_some_and(|url| !url.is_empty()));
        json!({"repoURL": repository, "path": text("/syncSource/path"), "targetRevision": branch})
    });
    match part {
        "source" => hydrated.as_ref().or_else(|| field(spec, "/source")).map(essential),
        "sources" => field(spec, "/sources").map(essential),
        _ => None,
    }
}

/// The operations of an Application as it is to be stored that were not there before.
pub(super) fn new_operations(object: &WrittenObject) -> impl Iterator<Item = &Value> {
    [OPERATION, RUNNING].into_iter().filter_map(|pointer| {
        let new = field(object.after()?, pointer)?;
        object.changes(pointer).then_some(new)
    })
}

fn field<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    object.pointer(pointer).filter(|field| !field.is_null())
}

fn changes_definition(object: &WrittenObject, by: WriterKind) -> bool {
    let (Some(before), Some(after)) = (object.before(), object.after()) else {
        return true;
    };
    let fields = ["/spec", "/metadata/labels", "/metadata/ownerReferences"];
    fields.iter().any(|pointer| object.changes(pointer))
        || annotations(before) != annotations(after)
        || changes_finalizers(object, by)
}

/// The annotations apart from [`REQUESTS`].
fn annotations(object: &Value) -> Vec<(&String, &Value)> {
    let all = object.pointer("/metadata/annotations").and_then(Value::as_object);
    let all = all.into_iter().flatten();
    all.filter(|(key, _)| !REQUESTS.contains(&key.as_str())).collect()
}

fn changes_finalizers(object: &WrittenObject, by: WriterKind) -> bool {
    let [before, after] = [object.before(), object.after()].map(|object| {
        let listed = object.and_then(|object| object.pointer("/metadata/finalizers")?.as_array());
        let names = listed.into_iter().flatten().filter_map(Value::as_str);
        names.collect::<BTreeSet<&str>>()
    });
    let is_own = |name: &&str| match (object.kind, by) {
        (WritableKind::Application, WriterKind::Controller) => HOOKS.iter().any(|hook| {
            let stage = name.strip_prefix(hook);
            stage.is_some_and(|stage| stage.is_empty() || stage.starts_with('/'))
        }),
        (WritableKind::ApplicationSet, WriterKind::ApplicationSetController) => *name == RESOURCES,
        (WritableKind::Application | WritableKind::ApplicationSet | WritableKind::AppProject, _) => false,
    };
    let is_added = !after.difference(&before).all(is_own);
    // Of an object that is being deleted, each controller removes its own when it has done its part.
    is_added || !(object.is_being_deleted() || before.difference(&after).all(is_own))
}

fn starts_operation(object: &WrittenObject) -> bool {
    let new = object.after().and_then(|after| field(after, OPERATION));
    new.is_some() && object.changes(OPERATION)
}

/// Whether the operation in `status` becomes one that is neither the one before nor the one that
/// `operation` asks for. A retry may take the latest revision.
fn resumes_another(object: &WrittenObject) -> bool {
    let (before, after) = (object.before(), object.after());
    let Some(new) = after.and_then(|after| field(after, RUNNING)).map(essential) else {
        return false;
    };
    let known = [(before, RUNNING), (before, OPERATION), (after, OPERATION)];
    let mut known = known
        .into_iter()
        .filter_map(|(object, pointer)| Some(essential(field(object?, pointer)?)));
    // What is asked for in the same write is judged by itself.
    !known.any(|known| known == new || without_revisions(known) == new)
}

/// An operation without what means nothing, as Argo CD's types write it.
fn essential(operation: &Value) -> Value {
    let is_zero = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    };
    match operation {
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| (key.clone(), essential(value)));
            Value::Object(members.filter(|(_, value)| !is_zero(value)).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(essential).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => operation.clone(),
    }
}

fn without_revisions(mut operation: Value) -> Value {
    if let Some(sync) = operation.get_mut("sync").and_then(Value::as_object_mut) {
        sync.remove("revision");
        sync.remove("revisions");
    }
    essential(&operation)
}
