//! Which events a caller gets.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::applicationsets::request::EventType;
use crate::applicationsets::watch::{SetChanges, ShownSets};
use tollgate_objects::{ApplicationSetStatus, ApplicationSetStatuses, ObjectName};

fn name(text: &str) -> ObjectName {
    ObjectName {
        namespace: "argocd".to_owned(),
        name: text.to_owned(),
    }
}

/// Compares sets, each of which the caller may see or not, with those before.
#[track_caller]
fn check(before: &[(&str, Value, bool)], now: &[(&str, Value, bool)], expected: &[(EventType, Value)]) {
    let mut shown = ShownSets::default();
    let statuses = ApplicationSetStatuses::new();
    let mut compare = |sets: &[(&str, Value, bool)]| {
        let seen = |text: &ObjectName| {
            let set = sets.iter().find(|(name, ..)| *name == text.name);
            set.filter(|(.., is_shown)| *is_shown)
                .map(|(_, set, _)| Arc::new(set.clone()))
        };
        let names: BTreeSet<_> = before.iter().chain(now).map(|(text, ..)| name(text)).collect();
        let found = names
            .into_iter()
            .filter_map(|name| shown.update(&Arc::new(name.clone()), seen(&name), &statuses));
        found.map(|(event, set)| (event, (*set).clone())).collect::<Vec<_>>()
    };
    compare(before);
    assert_eq!(compare(now), expected);
}

#[test]
fn visible_sets_are_added_modified_and_deleted() {
    let (one, two) = (json!({"v": 1}), json!({"v": 2}));
    check(&[], &[("a", one.clone(), true)], &[(EventType::Added, one.clone())]);
    check(&[("a", one.clone(), true)], &[("a", one.clone(), true)], &[]);
    check(
        &[("a", one.clone(), true)],
        &[("a", two.clone(), true)],
        &[(EventType::Modified, two)],
    );
    check(&[("a", one.clone(), true)], &[], &[(EventType::Deleted, one)]);
}

/// A status that is written alone is a change of the sets that are shown.
#[test]
fn a_changed_status_modifies_the_sets_that_are_shown() {
    let set = Arc::new(json!({"metadata": {"uid": "u", "resourceVersion": "1"}}));
    let with_status = |version: &str, status: &Value| {
        let status = ApplicationSetStatus {
            uid: "u".to_owned(),
            resource_version: version.to_owned(),
            status: status.clone(),
        };
        ApplicationSetStatuses::from([(name("a"), Arc::new(status))])
    };
    let own = Arc::new(name("a"));
    let mut shown = ShownSets::default();
    let added = shown.update(&own, Some(Arc::clone(&set)), &with_status("2", &json!(1)));
    assert!(matches!(added, Some((EventType::Added, _))));
    let mut changes_by = |statuses: &ApplicationSetStatuses| {
        let mut changes = SetChanges::new();
        shown.update_statuses(statuses, &mut changes);
        changes
    };
    let expected = json!({"metadata": {"uid": "u", "resourceVersion": "3"}, "status": 2});
    let expected = SetChanges::from([(Arc::clone(&own), (EventType::Modified, Arc::new(expected)))]);
    assert_eq!(changes_by(&with_status("3", &json!(2))), expected);
    assert_eq!(changes_by(&with_status("3", &json!(2))), SetChanges::new());
    assert_eq!(changes_by(&ApplicationSetStatuses::new()), SetChanges::new());
    let mut hidden = ShownSets::default();
    let mut changes = SetChanges::new();
    hidden.update_statuses(&with_status("4", &json!(3)), &mut changes);
    assert_eq!(changes, SetChanges::new());
}

/// SECURITY: no event shows a set, or a later state of it, that the caller may not see.
#[test]
fn sets_that_are_not_visible_cause_no_events() {
    let (one, two) = (json!({"v": 1}), json!({"v": 2}));
    check(&[], &[("a", one.clone(), false)], &[]);
    check(&[("a", one.clone(), false)], &[("a", two.clone(), false)], &[]);
    check(&[("a", one.clone(), false)], &[], &[]);
    // The event has the set as the caller last saw it.
    check(
        &[("a", one.clone(), true)],
        &[("a", two, false)],
        &[(EventType::Deleted, one.clone())],
    );
    // A set that becomes visible is added.
    check(
        &[("a", one.clone(), false)],
        &[("a", one.clone(), true)],
        &[(EventType::Added, one)],
    );
}
