//! Tests of decoding: objects that are ApplicationSets and objects that are not.

#![expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]

use serde_json::{Value, json};

use super::Error;
use crate::{ApplicationSet, ApplicationsSync, GeneratorKind, MissingKey, TemplateEngine};

fn with_spec(spec: Value) -> Value {
    json!({"metadata": {"name": "test-app-set", "namespace": "argocd"}, "spec": spec})
}

fn refused(object: Value) -> String {
    ApplicationSet::read(object).unwrap_err().to_string()
}

#[test]
fn all_fields_of_an_application_set_are_decoded() {
    let object = json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": {"name": "a", "namespace": "b", "uid": "u", "labels": {"l": "1"}, "annotations": {"n": "2"}},
        "spec": {
            "goTemplate": true,
            "goTemplateOptions": ["missingkey=zero", "missingkey=error"],
            "generators": [{"list": {"elements": []}, "selector": {"matchLabels": {"x": "y"}}}],
            "template": {"metadata": {"name": "{{.x}}"}},
            "templatePatch": "spec: {}",
            "syncPolicy": {"applicationsSync": "create-only", "preserveResourcesOnDeletion": true},
            "preservedFields": {"annotations": ["p"], "labels": ["q"]},
            "strategy": {"type": "RollingSync"},
        },
    });
    let set = ApplicationSet::read(object.clone()).unwrap();
    assert_eq!((set.name.namespace.as_str(), set.name.name.as_str()), ("b", "a"));
    let missing_key = MissingKey::Error;
    assert_eq!(set.spec.engine, TemplateEngine::GoTemplate { missing_key });
    assert_eq!(set.spec.template, object["spec"]["template"]);
    assert_eq!(set.spec.template_patch.as_deref(), Some("spec: {}"));
    assert_eq!(set.spec.sync_policy.applications, ApplicationsSync::CreateOnly);
    assert!(set.spec.sync_policy.preserve_resources);
    assert_eq!(
        (set.spec.preserved_fields.annotations, set.spec.preserved_fields.labels),
        (vec!["p".to_owned()], vec!["q".to_owned()])
    );
    let generator = &set.spec.generators[0];
    let kinds: Vec<_> = generator.kinds().collect();
    assert_eq!(kinds, [(GeneratorKind::List, &json!({"elements": []}))]);
    assert_eq!(generator.raw["selector"], json!({"matchLabels": {"x": "y"}}));
    assert_eq!(set.object, object);
}

#[test]
fn absent_and_null_fields_have_defaults() {
    for object in [
        json!({}),
        json!({"metadata": null, "spec": null}),
        with_spec(
            json!({"generators": null, "goTemplate": null, "template": null, "syncPolicy": null, "templatePatch": null}),
        ),
    ] {
        let set = ApplicationSet::read(object).unwrap();
        assert_eq!(set.spec.engine, TemplateEngine::FastTemplate);
        assert_eq!(set.spec.template, json!({}));
        assert_eq!(set.spec.template_patch, None);
        assert_eq!(set.spec.sync_policy.applications, ApplicationsSync::Sync);
        assert!(set.spec.generators.is_empty());
    }
}

#[test]
fn generator_kinds_of_one_entry_keep_their_run_order() {
    let entry = json!({"plugin": {}, "merge": {"generators": []}, "matrix": {}, "pullRequest": {}, "clusterDecisionResource": {}, "scmProvider": {}, "git": {}, "clusters": {}, "list": {}, "other": {}});
    let set = ApplicationSet::read(with_spec(json!({"generators": [entry]}))).unwrap();
    let names: Vec<&str> = set.spec.generators[0].kinds().map(|(kind, _)| kind.into()).collect();
    assert_eq!(
        names,
        [
            "list",
            "clusters",
            "git",
            "scmProvider",
            "clusterDecisionResource",
            "pullRequest",
            "matrix",
            "merge",
            "plugin"
        ]
    );
    assert_eq!(set.spec.generators[0].raw.get("other"), None);
}

#[test]
fn unrecognized_generators_are_refused_with_argo_cds_message() {
    let generators = json!([{"list": {}}, {}, {"git": {}}, {}]);
    assert_eq!(
        refused(with_spec(json!({"generators": generators}))),
        "ApplicationSet test-app-set contains unrecognized generators"
    );
    let applied = r#"{"spec": {"generators": [{"list": {}}, {"bbb": {}}, {"git": {}}, {"aaa": {}}]}}"#;
    let mut object = with_spec(json!({"generators": generators}));
    object["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
    assert_eq!(
        refused(object.clone()),
        "ApplicationSet test-app-set contains unrecognized generators: aaa, bbb"
    );
    // A stored set of this kind can be shown and deleted.
    let stored = ApplicationSet::read_stored(object).unwrap();
    assert!(stored.spec.generators[1].kinds().next().is_none());
    // The names in what is sent are known without the annotation.
    assert_eq!(
        refused(with_spec(
            json!({"generators": [{"lists": {}}, {"selector": {}, "gits": {}}]})
        )),
        "ApplicationSet test-app-set contains unrecognized generators: gits, lists"
    );
    // Null counts as absent.
    assert_eq!(
        refused(with_spec(json!({"generators": [{"list": null}]}))),
        "ApplicationSet test-app-set contains unrecognized generators: list"
    );
}

#[test]
fn an_invalid_last_applied_annotation_names_no_generators() {
    for applied in [
        "",
        "{",
        "[]",
        "{\"spec\": 1}",
        "{\"spec\": {\"generators\": []}}",
        "{\"spec\": {\"generators\": [1]}}",
    ] {
        let mut object = with_spec(json!({"generators": [{}]}));
        object["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
        assert_eq!(
            refused(object),
            "ApplicationSet test-app-set contains unrecognized generators",
            "{applied}"
        );
    }
}

#[test]
fn an_entry_with_only_a_selector_is_accepted() {
    let set = ApplicationSet::read(with_spec(json!({"generators": [{"selector": {}}]}))).unwrap();
    assert!(set.spec.generators[0].kinds().next().is_none());
}

#[test]
fn wrong_types_are_refused_with_their_path() {
    let generator = |generator: Value| with_spec(json!({"generators": [{"list": {}}, generator]}));
    let nested = |child: Value| generator(json!({"matrix": {"generators": [{"merge": {"generators": [child]}}]}}));
    for (object, why) in [
        (json!([]), "`the object` is a list, expected an object"),
        (json!({"metadata": 1}), "`metadata` is a number, expected an object"),
        (
            json!({"metadata": {"name": 1}}),
            "`metadata.name` is a number, expected text",
        ),
        (
            json!({"metadata": {"labels": {"a": true}}}),
            "`metadata.labels.a` is a boolean, expected text",
        ),
        (
            with_spec(json!({"generators": {}})),
            "`spec.generators` is an object, expected a list",
        ),
        (
            with_spec(json!({"generators": [1]})),
            "`spec.generators[0]` is a number, expected an object",
        ),
        (
            with_spec(json!({"goTemplate": "yes"})),
            "`spec.goTemplate` is text, expected a boolean",
        ),
        (
            with_spec(json!({"template": []})),
            "`spec.template` is a list, expected an object",
        ),
        (
            with_spec(json!({"templatePatch": {}})),
            "`spec.templatePatch` is an object, expected text",
        ),
        (
            generator(json!({"list": []})),
            "`spec.generators[1].list` is a list, expected an object",
        ),
        (
            generator(json!({"list": {"elements": {}}})),
            "`spec.generators[1].list.elements` is an object, expected a list",
        ),
        (
            generator(json!({"list": {"template": 1}})),
            "`spec.generators[1].list.template` is a number, expected an object",
        ),
        (
            generator(json!({"git": {"files": [{"path": 1}]}})),
            "`spec.generators[1].git.files[0].path` is a number, expected text",
        ),
        (
            generator(json!({"git": {"values": {"a": 1}}})),
            "`spec.generators[1].git.values.a` is a number, expected text",
        ),
        (
            generator(json!({"clusters": {"flatList": 1}})),
            "`spec.generators[1].clusters.flatList` is a number, expected a boolean",
        ),
        (
            generator(json!({"clusters": {}, "selector": 1})),
            "`spec.generators[1].selector` is a number, expected an object",
        ),
        (
            generator(json!({"merge": {"mergeKeys": [1]}})),
            "`spec.generators[1].merge.mergeKeys[0]` is a number, expected text",
        ),
        (
            generator(json!({"plugin": {"values": []}})),
            "`spec.generators[1].plugin.values` is a list, expected an object",
        ),
        (
            nested(json!({"list": {"elements": 1}})),
            "`spec.generators[1].matrix.generators[0].merge.generators[0].list.elements` is a number, expected a list",
        ),
    ] {
        assert_eq!(refused(object), why);
    }
}

#[test]
fn unknown_option_values_are_refused_where_they_take_effect() {
    let options = json!(["missingkey=error", "missingkey=none"]);
    assert_eq!(
        ApplicationSet::read(with_spec(json!({"goTemplate": true, "goTemplateOptions": options}))).unwrap_err(),
        Error::Value {
            path: "spec.goTemplateOptions[1]".to_owned(),
            observed: "missingkey=none".to_owned(),
            allowed: "`missingkey=default`, `missingkey=invalid`, `missingkey=zero`, `missingkey=error`",
        }
    );
    assert!(ApplicationSet::read(with_spec(json!({"goTemplateOptions": options}))).is_ok());
    assert_eq!(
        refused(with_spec(json!({"syncPolicy": {"applicationsSync": "never"}}))),
        "`spec.syncPolicy.applicationsSync` is `never`, expected one of `sync`, `create-only`, `create-update`, `create-delete`"
    );
}
