//! Tests of what a set generates and the plan does not write.

use serde_json::{Value, json};

use super::super::{Action, Plan, PlannedChange};
use super::{existing, generated, owned, sent, set};
use crate::ApplicationsSync;

/// The change of `a`, which is stored in the project `shop`.
fn change(rules: Value, sync: ApplicationsSync, wanted: Value) -> PlannedChange {
    let mut object = sent();
    object["spec"]["ignoreApplicationDifferences"] = rules;
    let mut plan = Plan::new(&set(&object, sync), existing(vec![owned("a")]), vec![wanted]);
    assert_eq!(plan.problems, []);
    plan.changes.remove(0)
}

fn moved() -> Value {
    let mut wanted = generated("a");
    wanted["spec"]["project"] = json!("prod");
    wanted
}

fn project(change: &PlannedChange) -> Option<&Value> {
    change.generated.as_ref()?.pointer("/spec/project")
}

#[test]
fn held_back_changes_keep_the_generated_application() {
    for (sync, is_held) in [
        (ApplicationsSync::Sync, false),
        (ApplicationsSync::CreateUpdate, false),
        (ApplicationsSync::CreateOnly, true),
        (ApplicationsSync::CreateDelete, true),
    ] {
        let change = change(json!([]), sync, moved());
        assert_eq!(project(&change), is_held.then(|| json!("prod")).as_ref(), "{sync:?}");
        assert_eq!(change.held_back, is_held.then_some(Action::Update));
        let same = self::change(json!([]), sync, generated("a"));
        assert_eq!((same.action, same.generated), (Action::Keep, None), "{sync:?}");
    }
}

#[test]
fn ignored_changes_keep_the_generated_application() {
    let ignores = |pointer: &str| json!([{"jsonPointers": [pointer]}]);
    let change = |pointer: &str, wanted| change(ignores(pointer), ApplicationsSync::Sync, wanted);
    let ignored = change("/spec/project", moved());
    assert_eq!(
        (ignored.action, project(&ignored)),
        (Action::Keep, Some(&json!("prod")))
    );
    // The same holds if another field is written.
    let mut more = moved();
    more["metadata"]["labels"]["team"] = json!("b");
    let partly = change("/spec/project", more);
    assert_eq!(
        (partly.action, project(&partly)),
        (Action::Update, Some(&json!("prod")))
    );
    assert_eq!(partly.after.unwrap()["spec"]["project"], json!("shop"));
    // A rule about another field changes nothing.
    let written = change("/spec/info", moved());
    assert_eq!((written.action, written.generated), (Action::Update, None));
    let mut labelled = generated("a");
    labelled["metadata"]["labels"]["team"] = json!("b");
    let kept = change("/metadata/labels", labelled);
    assert_eq!((kept.action, kept.generated), (Action::Keep, None));
}

#[test]
fn created_and_deleted_applications_have_no_separate_generated_object() {
    let object = sent();
    for sync in [ApplicationsSync::Sync, ApplicationsSync::CreateOnly] {
        let plan = Plan::new(&set(&object, sync), existing(vec![owned("a")]), vec![generated("b")]);
        assert!(plan.changes.iter().all(|change| change.generated.is_none()), "{plan:?}");
        assert_eq!(plan.changes.len(), 2);
    }
}
