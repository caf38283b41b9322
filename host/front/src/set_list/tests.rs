//! What differs from one list to the next.

use crate::set_list::{OwnedApplication, is_templated, project_text};
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{SetList, owned_applications};

use tollgate_objects::{ObjectName, Resources, decode};

fn needs_owned(set: &Value) -> bool {
    is_templated(project_text(set))
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "argocd"}, "spec": spec,
    })
}

fn set(name: &str, project: &str) -> Value {
    object(
        "ApplicationSet",
        name,
        &json!({"generators": [], "template": {"spec": {"project": project}}}),
    )
}

fn application(name: &str, owner: &str, project: &str) -> Value {
    let mut application = object("Application", name, &json!({"project": project, "destination": {}}));
    application["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": owner, "uid": "u",
        "controller": true,
    }]);
    application
}

fn load(objects: &[Value]) -> Resources {
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-rbac-cm, namespace: argocd}\n";
    let text = objects
        .iter()
        .fold(config.to_owned(), |text, object| format!("{text}---\n{object}\n"));
    decode::load_text(&text, "state.yaml", "argocd").value.unwrap()
}

fn name(text: &str) -> ObjectName {
    ObjectName {
        namespace: "argocd".to_owned(),
        name: text.to_owned(),
    }
}

fn names(all: &[Arc<ObjectName>]) -> Vec<&str> {
    let mut all: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    all.sort_unstable();
    all
}

/// A change that is about no set gives the same list, so that watches compare nothing.
#[test]
fn a_list_without_a_change_is_the_list_before() {
    let mut state = load(&[
        set("plain", "dev"),
        set("templated", "{{p}}"),
        application("a", "templated", "prod"),
        application("b", "plain", "dev"),
    ]);
    let first = SetList::next(None, &state, needs_owned);
    let next = |state: &Resources, before: &Arc<SetList>| SetList::next(Some(before), state, needs_owned);
    assert!(Arc::ptr_eq(&first, &next(&state, &first)));
    // An Application of a set whose permissions do not depend on it.
    state.applications.remove(&name("b"));
    assert!(Arc::ptr_eq(&first, &next(&state, &first)));
    let owned = |list: &SetList, set: &str| list.find(&name(set)).unwrap().owned().len();
    assert_eq!((owned(&first, "plain"), owned(&first, "templated")), (0, 1));
    // Twin: one of a set whose permissions do.
    state.applications.remove(&name("a"));
    let second = next(&state, &first);
    assert_eq!(names(&second.changes_since(&first)), ["templated"]);
    assert_eq!(owned(&second, "templated"), 0);
    // A set whose project is a template may depend on every project that exists.
    let project = load(&[object("AppProject", "new", &json!({}))]);
    state.projects.extend(project.projects);
    let third = next(&state, &second);
    assert_eq!(names(&third.changes_since(&second)), ["templated"]);
    assert!(third.changes_since(&third).is_empty());
}

#[test]
fn the_differences_of_lists_are_the_sets_that_changed() {
    let first = SetList::next(None, &load(&[set("a", "x"), set("b", "x"), set("c", "x")]), needs_owned);
    let mut state = load(&[set("b", "y"), set("c", "x"), set("d", "x")]);
    let kept = Arc::clone(&first.find(&name("c")).unwrap().set);
    state.application_sets.insert(name("c"), kept);
    let second = SetList::next(Some(&first), &state, needs_owned);
    assert_eq!(names(&second.changes_since(&first)), ["a", "b", "d"]);
    let found: Vec<&str> = second.iter().map(|entry| entry.name.name.as_str()).collect();
    assert_eq!(found, ["b", "c", "d"]);
    // A watch that missed a list compares with the newest one, too.
    state.application_sets.remove(&name("d"));
    let third = SetList::next(Some(&second), &state, needs_owned);
    assert_eq!(names(&third.changes_since(&second)), ["d"]);
    assert_eq!(names(&third.changes_since(&first)), ["a", "b"]);
    assert!(Arc::ptr_eq(
        &third.find(&name("c")).unwrap().name,
        &first.find(&name("c")).unwrap().name
    ));
}

#[test]
fn the_applications_of_a_set_are_those_it_controls() {
    let resources = load(&[
        set("plain", "dev"),
        set("templated", "{{p}}"),
        application("a", "templated", "prod"),
        application("b", "templated", "qa"),
        application("c", "plain", "other"),
    ]);
    let found = |needs_owned: fn(&Value) -> bool| {
        let found = owned_applications(&resources, needs_owned).into_iter();
        let text = |one: OwnedApplication| format!("{}/{}", one.project, one.name);
        let list = |owned: BTreeSet<_>| owned.into_iter().map(text).collect::<Vec<_>>();
        found.map(|(name, owned)| (name.name, list(owned))).collect::<Vec<_>>()
    };
    let templated = ("templated".to_owned(), vec!["prod/a".to_owned(), "qa/b".to_owned()]);
    let plain = ("plain".to_owned(), vec!["other/c".to_owned()]);
    assert_eq!(found(|_| true), [plain, templated.clone()]);
    assert_eq!(found(needs_owned), [templated]);
}
