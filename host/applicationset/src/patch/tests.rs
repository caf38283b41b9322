//! Tests of strategic merge patches of Applications.

#![expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]

use serde_json::{Value, json};

use super::{Error, MAX_LIST_ITEMS};
use crate::{Exceeded, GenerationBudget};
use tollgate_config::GenerationLimits;

fn apply(parts: Value, text: &str) -> Result<Value, Error> {
    super::apply(parts, text, &GenerationBudget::new(GenerationLimits::default()))
}

fn base() -> Value {
    json!({
        "metadata": {"name": "a", "labels": {"x": "1", "y": "2"}, "finalizers": ["f1", "f2"]},
        "spec": {
            "project": "p",
            "sources": [{"repoURL": "a"}, {"repoURL": "b"}],
            "source": {"helm": {"parameters": [{"name": "a", "value": "1"}], "valuesObject": {"a": 1, "m": {"x": 1}}}},
            "destination": {"server": "s", "namespace": "n"},
        },
    })
}

fn patched(patch: Value) -> Result<Value, Error> {
    apply(base(), &patch.to_string())
}

fn at(patch: Value, pointer: &str) -> Value {
    patched(patch).unwrap().pointer(pointer).cloned().unwrap_or_default()
}

#[test]
fn objects_are_merged_lists_replaced_and_nulls_remove() {
    let labels = json!({"metadata": {"labels": {"x": null, "y": "3", "z": "4", "w": null}}});
    assert_eq!(at(labels, "/metadata/labels"), json!({"y": "3", "z": "4"}));
    let sources = json!({"spec": {"sources": [{"repoURL": "c"}]}});
    assert_eq!(at(sources, "/spec/sources"), json!([{"repoURL": "c"}]));
    let parameters = json!({"spec": {"source": {"helm": {"parameters": [{"name": "b", "value": "2"}]}}}});
    assert_eq!(
        at(parameters, "/spec/source/helm/parameters"),
        json!([{"name": "b", "value": "2"}])
    );
    let fresh = json!({"spec": {"syncPolicy": {"automated": {"prune": true, "x": null}}}});
    assert_eq!(at(fresh, "/spec/syncPolicy"), json!({"automated": {"prune": true}}));
    assert_eq!(
        at(json!({"spec": {"destination": null}}), "/spec/destination"),
        Value::Null
    );
}

#[test]
fn finalizers_are_merged_in_the_order_of_the_patch() {
    let merged = |items: Value| at(json!({"metadata": {"finalizers": items}}), "/metadata/finalizers");
    assert_eq!(merged(json!(["n"])), json!(["n", "f1", "f2"]));
    assert_eq!(merged(json!(["f2", "n"])), json!(["f1", "f2", "n"]));
    let deleted = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["f1"]}});
    assert_eq!(at(deleted, "/metadata/finalizers"), json!(["f2"]));
}

#[test]
fn directives_are_applied_and_unknown_ones_are_errors() {
    let replaced = json!({"spec": {"destination": {"$patch": "replace", "name": "c"}}});
    assert_eq!(at(replaced, "/spec/destination"), json!({"name": "c"}));
    let deleted = json!({"spec": {"destination": {"$patch": "delete"}}});
    assert_eq!(at(deleted, "/spec/destination"), json!({}));
    let kept = json!({"spec": {"destination": {"$retainKeys": ["name"], "name": "c"}}});
    assert_eq!(at(kept, "/spec/destination"), json!({"name": "c"}));
    let unnamed = json!({"spec": {"destination": {"$retainKeys": ["server"], "name": "c"}}});
    assert_eq!(patched(unnamed), Err(Error::Retain("name".to_owned())));
    let unknown = json!({"spec": {"destination": {"$patch": "explode"}}});
    assert!(matches!(patched(unknown), Err(Error::Directive(_))));
}

#[test]
fn no_patch_changes_the_project() {
    assert_eq!(at(json!({"spec": {"project": "q"}}), "/spec/project"), "p");
    assert_eq!(at(json!({"spec": {"project": null}}), "/spec/project"), "p");
    assert_eq!(
        at(json!({"spec": {"$patch": "replace", "project": "q"}}), "/spec"),
        json!({"project": "p"})
    );
    assert_eq!(at(json!({"$patch": "delete"}), "/spec"), json!({"project": "p"}));
    let without = apply(json!({"metadata": {}, "spec": {}}), "spec: {project: q}").unwrap();
    assert_eq!(without["spec"], json!({}));
}

#[test]
fn mappings_inside_values_objects_cannot_be_merged() {
    let values = |value: Value| patched(json!({"spec": {"source": {"helm": {"valuesObject": value}}}}));
    let merged = values(json!({"a": 2, "b": 3})).unwrap();
    assert_eq!(
        merged["spec"]["source"]["helm"]["valuesObject"],
        json!({"a": 2, "b": 3, "m": {"x": 1}})
    );
    assert_eq!(values(json!({"m": {"y": 2}})), Err(Error::Untyped("m".to_owned())));
}

#[test]
fn empty_patches_change_nothing_and_others_must_be_objects() {
    for text in ["", "  \n", "null", "# nothing", "{}"] {
        assert_eq!(apply(base(), text), Ok(base()), "{text:?}");
    }
    for text in [
        "hello world",
        "[1]",
        "5",
        "true",
        "spec: x",
        "{\"a\": b}",
        "a: [",
        "operation: {sync: {}}",
    ] {
        assert!(apply(base(), text).is_err(), "{text:?}");
    }
}

/// SECURITY: `encoding/json` reads these as `operation`, `spec` and their fields.
#[test]
fn fields_in_another_case_and_unknown_fields_are_refused() {
    for (text, why) in [
        (
            "Operation: {sync: {}}",
            "`Operation` is wrong: Argo CD may read it as `operation`",
        ),
        (
            "\u{17f}pec: {project: q}",
            "`\u{17f}pec` is wrong: Argo CD may read it as `spec`",
        ),
        ("{\"SPEC\": null}", "`SPEC` is wrong: Argo CD may read it as `spec`"),
        ("metadata: {Name: q}", "`metadata.Name` is wrong"),
        ("spec: {Project: q}", "`spec.Project` is wrong"),
        ("spec: {sources: [{repourl: q}]}", "`spec.sources[0].repourl` is wrong"),
        (
            "spec: {source: {helm: {Parameters: []}}}",
            "`spec.source.helm.Parameters` is wrong",
        ),
        ("other: {}", "an Application has no field `other`"),
        ("operation: {sync: {}}", "it must not set `operation`"),
    ] {
        let error = apply(base(), text).unwrap_err().to_string();
        assert!(error.starts_with(why), "{text}: {error}");
    }
    let foreign = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nstatus: {}\noperation: null\n";
    assert_eq!(apply(base(), foreign), Ok(base()));
    let own = "metadata: {labels: {Name: q}}\nspec: {source: {helm: {valuesObject: {Spec: 1}}}}\n";
    let patched = apply(base(), own).unwrap();
    assert_eq!(patched["metadata"]["labels"]["Name"], "q");
    assert_eq!(patched["spec"]["source"]["helm"]["valuesObject"]["Spec"], 1);
}

/// SECURITY: a few lines can expand to gigabytes.
#[test]
fn the_expanded_size_of_a_patch_is_charged() {
    let within = |text: &str, bytes: u64| {
        let limits = GenerationLimits {
            bytes,
            ..GenerationLimits::default()
        };
        super::apply(base(), text, &GenerationBudget::new(limits))
    };
    let aliases = |levels: usize| {
        let mut text = "status:\n  x0: &x0 [a]\n".to_owned();
        for level in 0..levels {
            let all = vec![format!("*x{level}"); 9].join(", ");
            text.push_str(&format!("  x{0}: &x{0} [{all}]\n", level + 1));
        }
        format!("{text}  z: 1\nspec: {{info: *x{levels}}}\n")
    };
    assert!(within(&aliases(2), 1_000_000).is_ok());
    assert!(matches!(
        within(&aliases(8), 100_000),
        Err(Error::Exceeded(Exceeded::Bytes { .. }))
    ));
    let zeros = |count: usize| format!("{{\"spec\": {{\"info\": [{}0]}}}}", "0,".repeat(count));
    assert!(within(&zeros(1_000), 1_000_000).is_ok());
    let error = within(&zeros(100_000), 1_000_000).unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Bytes { .. })), "{error}");
}

#[test]
fn merged_lists_have_a_maximum_length() {
    let items = |count: usize| -> Value { (0..count).map(|item| item.to_string()).collect() };
    for key in [
        "finalizers",
        "$deleteFromPrimitiveList/finalizers",
        "$setElementOrder/finalizers",
    ] {
        let patch = |count: usize| json!({"metadata": {key: items(count)}});
        assert!(patched(patch(MAX_LIST_ITEMS)).is_ok(), "{key}");
        let long = Error::Long {
            observed: MAX_LIST_ITEMS + 1,
            allowed: MAX_LIST_ITEMS,
        };
        assert_eq!(patched(patch(MAX_LIST_ITEMS + 1)), Err(long), "{key}");
    }
}
