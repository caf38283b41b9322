//! Which events a caller gets.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::applicationsets::permit::{OwnedApplication, is_templated, project_text};
use crate::applicationsets::request::EventType;
use crate::applicationsets::watch::{Sets, WatchedSet, changed, owned_applications};
use tollgate_state::{ApplicationSetStatus, ObjectName, directory};

fn name(text: &str) -> ObjectName {
    ObjectName {
        namespace: "argocd".to_owned(),
        name: text.to_owned(),
    }
}

fn sets(all: &[(&str, Value, bool)]) -> Sets {
    let one = |(text, set, is_shown): &(&str, Value, bool)| {
        let watched_set = WatchedSet {
            set: Arc::new(set.clone()),
            status: None,
            owned: BTreeSet::new(),
            is_shown: *is_shown,
        };
        (name(text), watched_set)
    };
    all.iter().map(one).collect()
}

#[track_caller]
fn check(before: &[(&str, Value, bool)], now: &[(&str, Value, bool)], expected: &[(EventType, Value)]) {
    let found = changed(&sets(before), &sets(now));
    let found: Vec<(EventType, Value)> = found.into_iter().map(|(event, set)| (event, (*set).clone())).collect();
    assert_eq!(found, expected);
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
    let set = json!({"metadata": {"uid": "u", "resourceVersion": "1"}});
    let with_status = |version: &str, status: &Value, is_shown| {
        let mut all = sets(&[("a", set.clone(), is_shown)]);
        let status = ApplicationSetStatus {
            uid: "u".to_owned(),
            resource_version: version.to_owned(),
            status: status.clone(),
        };
        all.values_mut()
            .for_each(|one| one.status = Some(Arc::new(status.clone())));
        all
    };
    let (first, second) = (with_status("2", &json!(1), true), with_status("3", &json!(2), true));
    let expected = json!({"metadata": {"uid": "u", "resourceVersion": "3"}, "status": 2});
    assert_eq!(changed(&first, &second), [(EventType::Modified, Arc::new(expected))]);
    assert_eq!(changed(&second, &with_status("3", &json!(2), true)), []);
    assert_eq!(
        changed(&with_status("2", &json!(1), false), &with_status("3", &json!(2), false)),
        []
    );
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

#[test]
fn the_applications_of_a_set_are_those_it_controls() {
    let set = |name: &str, project: &str| {
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
            "metadata": {"name": name, "namespace": "argocd"},
            "spec": {"generators": [], "template": {"spec": {"project": project}}},
        })
    };
    let application = |name: &str, owner: &str, project: &str| {
        let reference = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": owner, "uid": "u",
            "controller": true,
        });
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": name, "namespace": "argocd", "ownerReferences": [reference]},
            "spec": {"project": project, "destination": {}},
        })
    };
    let objects = [
        set("plain", "dev"),
        set("templated", "{{p}}"),
        application("a", "templated", "prod"),
        application("b", "templated", "qa"),
        application("c", "plain", "other"),
    ];
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-rbac-cm, namespace: argocd}\n";
    let text = objects
        .iter()
        .fold(config.to_owned(), |text, object| format!("{text}---\n{object}\n"));
    let resources = directory::load_text(&text, "state.yaml", "argocd").value.unwrap();
    let found = |needs_owned: fn(&Value) -> bool| {
        let found = owned_applications(&resources, needs_owned).into_iter();
        let text = |one: OwnedApplication| format!("{}/{}", one.project, one.name);
        let all = found.map(|(name, owned)| (name.name, owned.into_iter().map(text).collect::<Vec<_>>()));
        all.collect::<Vec<_>>()
    };
    let templated = ("templated".to_owned(), vec!["prod/a".to_owned(), "qa/b".to_owned()]);
    let plain = ("plain".to_owned(), vec!["other/c".to_owned()]);
    assert_eq!(found(|_| true), [plain, templated.clone()]);
    assert_eq!(found(|set| is_templated(project_text(set))), [templated]);
}
