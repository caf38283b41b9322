//! Tests that one set compares equal in several shapes, since some clients leave out what others
//! fill in.

#![expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]

use serde_json::{Value, json};

use super::super::{Action, Plan, is_equivalent};
use super::{existing, set};
use crate::ApplicationsSync;

fn sent(spec: Value) -> Value {
    json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": {"name": "web"}, "spec": spec})
}

fn plain() -> Value {
    sent(json!({
        "generators": [{"list": {"elements": [{"p": ""}]}}, {"git": {"repoURL": "r", "values": {"a": ""}}}],
        "template": {"metadata": {"name": "a"}, "spec": {"project": "dev", "destination": {"name": "eu"}}},
    }))
}

/// The set with a value where it may be absent.
fn with(pointer: &str, key: &str, value: Value) -> Value {
    let mut set = plain();
    set.pointer_mut(pointer).unwrap()[key] = value;
    set
}

#[test]
fn empty_values_equal_absent_ones() {
    for (pointer, key, value) in [
        ("/spec", "goTemplate", json!(false)),
        ("/spec", "goTemplateOptions", json!([])),
        ("/spec", "syncPolicy", json!(null)),
        ("/spec", "strategy", json!({})),
        ("/spec", "preservedFields", json!({"annotations": null, "labels": []})),
        ("/spec", "ignoreApplicationDifferences", json!([])),
        ("/spec/generators/0", "selector", json!(null)),
        ("/spec/generators/0", "clusters", json!(null)),
        ("/spec/generators/0/list", "elementsYaml", json!("")),
        (
            "/spec/generators/0/list",
            "template",
            json!({"metadata": {}, "spec": {"destination": {}, "project": ""}}),
        ),
        ("/spec/generators/1/git", "pathParamPrefix", json!("")),
        ("/spec/generators/1/git", "directories", json!([])),
        ("/spec/template/metadata", "labels", json!({})),
        ("/spec/template/spec", "source", json!({"repoURL": ""})),
        ("/spec/template/spec", "syncPolicy", json!(null)),
        ("/metadata", "labels", json!({})),
        ("/metadata", "annotations", json!(null)),
    ] {
        let other = with(pointer, key, value);
        assert!(
            is_equivalent(&plain(), &other) && is_equivalent(&other, &plain()),
            "{pointer}/{key}"
        );
    }
}

#[test]
fn meaningful_values_are_differences() {
    for (pointer, key, value) in [
        ("/spec", "goTemplate", json!(true)),
        ("/spec", "templatePatch", json!("")),
        ("/spec", "strategy", json!({"rollingSync": {"steps": [{}]}})),
        ("/spec", "syncPolicy", json!({"applicationsSync": "create-only"})),
        ("/spec/generators/0", "clusters", json!({})),
        ("/spec/generators/0/list", "elements", json!([{}])),
        ("/spec/generators/0/list", "elements", json!([{"p": "", "q": ""}])),
        (
            "/spec/generators/0/list",
            "template",
            json!({"metadata": {}, "spec": {"project": "default"}}),
        ),
        ("/spec/generators/1/git", "values", json!({})),
        ("/spec/generators/1/git", "requeueAfterSeconds", json!(0)),
        ("/spec/template/spec", "project", json!("default")),
        ("/spec/template/spec", "syncPolicy", json!({"automated": {}})),
        ("/metadata", "labels", json!({"a": ""})),
        ("/metadata", "finalizers", json!(["f"])),
    ] {
        let other = with(pointer, key, value);
        assert!(
            !is_equivalent(&plain(), &other) && !is_equivalent(&other, &plain()),
            "{pointer}/{key}"
        );
    }
    let fewer = sent(json!({"generators": [], "template": plain()["spec"]["template"]}));
    assert!(!is_equivalent(&plain(), &fewer));
}

#[test]
fn an_equivalent_set_is_not_written() {
    let stored = |mut object: Value| {
        object["metadata"]["uid"] = json!("u1");
        object["metadata"]["namespace"] = json!("argocd");
        object
    };
    let plan = |object: Value| {
        let mut there = existing(Vec::new());
        there.set = Some(stored(plain()));
        Plan::new(&set(&object, ApplicationsSync::Sync), there, Vec::new())
    };
    assert_eq!(plan(with("/spec", "goTemplate", json!(false))).set.action, Action::Keep);
    assert_eq!(
        plan(with("/spec", "goTemplate", json!(true))).set.action,
        Action::Update
    );
}
