//! Builds the responses to changes from plans.
//!
//! Security: a response has no diff of an Application that the caller may not see.

use serde_json::{Map, Value, json};

use crate::applicationsets::read::put;
use crate::applicationsets::request::refusal;
use tollgate_applicationset::plan::{Action, Plan, PlannedChange};
use tollgate_applicationset_rights::PlanReview;
use tollgate_front::denial::refusal_members;
use tollgate_state::write::batch::UndoFailure;

pub(super) struct Preview {
    pub(super) set: Value,
    pub(super) applications: Vec<Value>,
    pub(super) review: PlanReview,
}

fn word(action: Action) -> &'static str {
    match action {
        Action::Create | Action::Update | Action::Delete => action.into(),
        Action::Keep => "unchanged",
    }
}

pub(super) fn changes(plan: &Plan) -> Value {
    plan.changes.iter().map(|change| Value::Object(entry(change))).collect()
}

/// A set as it is stored now, and the changes that led to it.
pub(super) fn stored(set: Value, action: Action, changes: Value) -> Value {
    let mut answer = set;
    if let Some(members) = answer.as_object_mut() {
        members.insert("action".to_owned(), word(action).into());
        members.insert("changes".to_owned(), changes);
    }
    answer
}

/// The changes to the Applications of a deleted set, and which of them still exist: the cluster
/// deletes those by their owner references.
pub(super) fn deleted(changes: Value, left: &[UndoFailure]) -> Value {
    let mut members = serde_json::Map::from_iter([("changes".to_owned(), changes)]);
    if !left.is_empty() {
        let names = left.iter().map(|left| left.key.name.name.as_str());
        members.insert("left".to_owned(), names.collect());
    }
    Value::Object(members)
}

/// What storing a set would do, in the form of Argo CD's dry run, with additions.
pub(super) fn dry_run(Preview { set, review, .. }: Preview) -> Value {
    let resources: Vec<Value> = review.plan.changes.iter().filter_map(resource).collect();
    let mut answer = stored(set, review.plan.set.action, previews(&review));
    if let Some(members) = answer.as_object_mut() {
        let status = members.entry("status").or_insert_with(|| json!({}));
        match status.as_object_mut() {
            Some(status) => {
                status.insert("resources".to_owned(), resources.into());
            }
            None => *status = json!({ "resources": resources }),
        }
        members.insert("diff".to_owned(), review.plan.set.diff().into());
        members.extend(refused(&review));
    }
    answer
}

pub(super) fn generated(preview: Preview) -> Value {
    let mut answer = refused(&preview.review);
    answer.insert("changes".to_owned(), previews(&preview.review));
    answer.insert("applications".to_owned(), preview.applications.into());
    Value::Object(answer)
}

fn refused(review: &PlanReview) -> Map<String, Value> {
    let refused = review.refused.as_ref();
    refused.map_or_else(Map::new, |refused| {
        refusal_members(
            &refused.refusals().iter().map(refusal).collect::<Vec<_>>(),
            refused.more(),
        )
    })
}

fn previews(review: &PlanReview) -> Value {
    let all = review.plan.changes.iter().zip(&review.visible);
    let all = all.map(|(change, visible)| {
        let mut entry = entry(change);
        if *visible {
            entry.insert("diff".to_owned(), change.diff().into());
        }
        Value::Object(entry)
    });
    all.collect()
}

fn entry(change: &PlannedChange) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("application".to_owned(), change.name.name.as_str().into());
    entry.insert("namespace".to_owned(), change.name.namespace.as_str().into());
    let object = change.result().or(change.before.as_ref());
    let project = object.and_then(|object| object.pointer("/spec/project"));
    if let Some(project) = project {
        entry.insert("project".to_owned(), project.clone());
    }
    entry.insert("action".to_owned(), word(change.action).into());
    if let Some(held) = change.held_back {
        entry.insert("heldBack".to_owned(), word(held).into());
    }
    entry
}

/// An Application in the form of `status.resources`. `None` for one that is deleted.
fn resource(change: &PlannedChange) -> Option<Value> {
    change.result()?;
    let mut resource = json!({
        "group": "argoproj.io",
        "version": "v1alpha1",
        "kind": "Application",
        "namespace": change.name.namespace,
        "name": change.name.name,
    });
    let stored = change.before.as_ref();
    for (key, pointer) in [("status", "/status/sync/status"), ("health", "/status/health")] {
        put(&mut resource, key, stored.and_then(|stored| stored.pointer(pointer)));
    }
    Some(resource)
}
