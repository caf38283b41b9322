//! Tests of keys that are accepted and keys that are refused.

#![expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{ELEMENTS, FIELD_NAMES, MAPS, check_application_set, check_patch, folded};
use crate::ApplicationSet;

/// The error for a set with this spec; empty if the set is accepted.
fn decode_error(spec: Value) -> String {
    let object = json!({"metadata": {"name": "a", "namespace": "argocd"}, "spec": spec});
    // A stored set can always be decoded.
    ApplicationSet::read_stored(object.clone()).unwrap();
    ApplicationSet::read(object).map_or_else(|error| error.to_string(), |_| String::new())
}

fn template(spec: Value) -> Value {
    json!({"template": {"metadata": {"name": "a"}, "spec": spec}})
}

fn nested(child: Value) -> Value {
    json!({"generators": [{"matrix": {"generators": [{"list": {}}, child]}}]})
}

fn assert_case_variant(spec: Value, path: &str, known: &str) {
    let wanted = format!("`{path}` is wrong: Argo CD may read it as `{known}`; write it that way or remove it");
    assert_eq!(decode_error(spec), wanted);
}

fn assert_template_key(spec: Value, path: &str) {
    let wanted = format!("`{path}` is wrong: only keys of labels, annotations and other maps can be templates");
    assert_eq!(decode_error(spec), wanted);
}

/// SECURITY: Argo CD decodes nested generators case-insensitively.
#[test]
fn generator_keys_in_another_case_are_refused() {
    let child = "spec.generators[0].matrix.generators[1]";
    for (entry, key, known) in [
        (json!({"list": {}, "Git": {}}), "Git", "git"),
        (json!({"list": {}, "LIST": {}}), "LIST", "list"),
        (json!({"li\u{17f}t": {}}), "li\u{17f}t", "list"),
        (
            json!({"list": {}, "\u{17f}elector": null}),
            "\u{17f}elector",
            "selector",
        ),
        (
            json!({"list": {"elementsYAML": "[]"}}),
            "list.elementsYAML",
            "elementsYaml",
        ),
        (json!({"git": {"RepoURL": "x"}}), "git.RepoURL", "repoURL"),
        (
            json!({"git": {"directories": [{"path": "*"}, {"Path": "*"}]}}),
            "git.directories[1].Path",
            "path",
        ),
        (
            json!({"clusters": {"selector": {"matchExpressions": [{"\u{212a}ey": "a"}]}}}),
            "clusters.selector.matchExpressions[0].\u{212a}ey",
            "key",
        ),
        (
            json!({"list": {"template": {"spec": {"Project": "x"}}}}),
            "list.template.spec.Project",
            "project",
        ),
        (
            json!({"pullRequest": {"azureDevOps": {}}}),
            "pullRequest.azureDevOps",
            "azuredevops",
        ),
        (
            json!({"scmProvider": {"azuredevops": {}}}),
            "scmProvider.azuredevops",
            "azureDevOps",
        ),
    ] {
        assert_case_variant(nested(entry.clone()), &format!("{child}.{key}"), known);
        assert_case_variant(
            json!({"generators": [entry]}),
            &format!("spec.generators[0].{key}"),
            known,
        );
    }
    assert_case_variant(json!({"Template": {}}), "spec.Template", "template");
    let error = check_application_set(&json!({"spec": {}, "Spec": {}})).unwrap_err();
    assert!(error.to_string().starts_with("`Spec` is wrong"), "{error}");
}

/// SECURITY: a cluster drops keys that are templates, so they have no effect.
#[test]
fn template_keys_are_refused_in_objects_with_fields() {
    for (spec, key) in [
        (json!({"project": "p", "{{k}}": "q"}), "{{k}}"),
        (json!({"source": {"{{k}}": "q"}}), "source.{{k}}"),
        (json!({"sources": [{"x{{.k}}": "q"}]}), "sources[0].x{{.k}}"),
        (json!({"source": {"helm": {"{{k}}": "q"}}}), "source.helm.{{k}}"),
        (json!({"destination": {"{{k}}": "q"}}), "destination.{{k}}"),
        (json!({"syncPolicy": {"{{k}}": {}}}), "syncPolicy.{{k}}"),
    ] {
        assert_template_key(template(spec.clone()), &format!("spec.template.spec.{key}"));
        let own = json!({"list": {"template": {"spec": spec}}});
        assert_template_key(
            json!({"generators": [own]}),
            &format!("spec.generators[0].list.template.spec.{key}"),
        );
    }
    assert_template_key(json!({"template": {"{{k}}": {}}}), "spec.template.{{k}}");
    assert_template_key(
        nested(json!({"{{kind}}": {}})),
        "spec.generators[0].matrix.generators[1].{{kind}}",
    );
    assert_case_variant(
        template(json!({"\u{17f}ource": {}})),
        "spec.template.spec.\u{17f}ource",
        "source",
    );
}

#[test]
fn keys_of_maps_are_free() {
    let own = || json!({"Project": "x", "{{k}}": "y"});
    for taken in [
        json!({"generators": [{"list": {"elements": [own()]}, "selector": {"matchLabels": own()}}]}),
        nested(json!({"list": {"elements": [own(), {"Spec": own()}]}})),
        nested(json!({"git": {"values": own()}})),
        nested(json!({"plugin": {"input": {"parameters": {"Git": own()}}, "values": own()}})),
        json!({"template": {"metadata": {"labels": own(), "annotations": own()}}}),
        template(json!({"source": {"helm": {"valuesObject": {"Spec": own()}, "values": "{{k}}"}}})),
        template(json!({"source": {"kustomize": {"commonLabels": own(), "commonAnnotations": own()}}})),
        template(json!({"source": {"plugin": {"parameters": [{"name": "a", "map": own()}]}}})),
        template(json!({"syncPolicy": {"managedNamespaceMetadata": {"labels": own()}}})),
        // Argo CD never sees an unknown field.
        template(json!({"unheard": {"of": 1}})),
        json!({"generators": [{"pullRequest": {"azuredevops": {}}}, {"scmProvider": {"azureDevOps": {}}}]}),
    ] {
        assert_eq!(decode_error(taken.clone()), "", "{taken}");
    }
    // Lists of these names contain objects with fields.
    assert_case_variant(
        template(json!({"source": {"helm": {"parameters": [{"Name": "a"}]}}})),
        "spec.template.spec.source.helm.parameters[0].Name",
        "name",
    );
}

#[test]
fn rendered_patches_are_checked() {
    let taken =
        json!({"metadata": {"labels": {"Name": "a"}}, "spec": {"source": {"helm": {"valuesObject": {"Spec": 1}}}}});
    assert_eq!(check_patch(&taken), Ok(()));
    let error = check_patch(&json!({"spec": {"sources": [{"repoUrl": "x"}]}})).unwrap_err();
    assert!(
        error.to_string().starts_with("`spec.sources[0].repoUrl` is wrong"),
        "{error}"
    );
}

#[test]
fn field_names_are_unique_after_case_folding() {
    let all: BTreeSet<String> = FIELD_NAMES.split_whitespace().map(folded).collect();
    assert_eq!(all.len(), 207);
    assert_eq!(all.len(), FIELD_NAMES.split_whitespace().count());
}

/// One field of a message: its JSON name, empty if its type's fields are inlined; its type;
/// whether it is a map.
type Field = (String, String, bool);

/// The messages of the gRPC API, which has every field that Argo CD has.
fn messages() -> BTreeMap<String, Vec<Field>> {
    let mut found: BTreeMap<String, Vec<Field>> = BTreeMap::new();
    let mut at = String::new();
    for line in [
        include_str!("../../../applicationset-front/src/applicationsets/grpc/proto/set.proto"),
        include_str!("../../../applicationset-front/src/applicationsets/grpc/proto/application.proto"),
        include_str!("../../../applicationset-front/src/applicationsets/grpc/proto/kubernetes.proto"),
    ]
    .iter()
    .flat_map(|text| text.lines())
    {
        if let Some(name) = line.strip_prefix("message ") {
            at = name.split(' ').next().unwrap().to_owned();
        }
        let Some((before, after)) = line.split_once(" = ") else {
            continue;
        };
        let is_map = before.contains("map<");
        if !is_map && !before.contains("optional ") && !before.contains("repeated ") {
            continue;
        }
        let mut words = before.split_whitespace().rev();
        let written = words.next().unwrap();
        let named = after.split_once("json_name = \"").map(|(_, name)| name);
        let name = match named {
            _ if after.contains("(tollgate.inline)") => "",
            Some(name) => name.split('"').next().unwrap(),
            None => written,
        };
        let of = words.next().unwrap().trim_end_matches('>');
        let of = of.rsplit('.').next().unwrap().to_owned();
        found.entry(at.clone()).or_default().push((name.to_owned(), of, is_map));
    }
    found
}

/// A field that is added to the API must be added here.
#[test]
fn every_field_of_the_api_is_known() {
    let messages = messages();
    let mut open = vec!["ApplicationSetSpec".to_owned(), "Operation".to_owned()];
    let mut seen = BTreeSet::new();
    while let Some(message) = open.pop() {
        // These types have their own JSON form.
        if ["JSON", "RawExtension", "IntOrString", "Time"].contains(&message.as_str()) || !seen.insert(message.clone())
        {
            continue;
        }
        for (name, of, is_map) in messages.get(&message).into_iter().flatten() {
            let is_known =
                name.is_empty() || FIELD_NAMES.split_whitespace().any(|known| known == name) || name == "azuredevops";
            assert!(is_known, "{message}.{name}");
            let is_any = *is_map || of == "JSON" || of == "RawExtension";
            let is_nested = name == "matrix" || name == "merge";
            if is_any && !is_nested {
                assert!(MAPS.contains(&name.as_str()) || name == ELEMENTS, "{message}.{name}");
            }
            open.push(of.clone());
        }
    }
    assert!(seen.len() > 60 && seen.contains("KustomizeGvk"), "{}", seen.len());
}
