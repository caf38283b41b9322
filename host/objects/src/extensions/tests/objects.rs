//! Tests that an `ArgoCDExtension` gives the same extension as an equivalent entry of
//! `extension.config`.

use crate::Resources;
use crate::decode::load_text;
use tollgate_core::diagnostic::{Loaded, Location};

use super::super::{ExtensionSpec, parse};

fn load(spec: &str) -> Loaded<Resources> {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: argocd-cm}}\n---\n\
         apiVersion: argoproj.io/v1alpha1\nkind: ArgoCDExtension\nmetadata: {{name: metrics}}\nspec: {spec}\n"
    );
    load_text(&text, "e.yaml", "argocd")
}

#[test]
fn an_argocd_extension_equals_the_same_entry_of_argocd_cm() {
    let object = load("{backend: {serviceName: 'svc:8080', endpoint: /api}}")
        .value
        .unwrap();
    let entry = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata:\n  extension.config.metrics: \
                 '{services: [{url: \"http://svc.argocd.svc:8080/api\"}]}'\n";
    let entry = load_text(entry, "e.yaml", "argocd").value.unwrap();
    let spec = |resources: &Resources| -> ExtensionSpec {
        let mut specs = parse(resources).value.unwrap();
        let mut spec = specs.pop().unwrap();
        assert!(specs.is_empty());
        spec.location = Location::default();
        spec.services[0].location = Location::default();
        spec
    };
    assert_eq!(spec(&object), spec(&entry));
}

#[test]
fn argocd_cm_wins_over_an_object_of_the_same_name() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata:\n  extension.config.metrics: \
                '{services: [{url: \"http://m\"}]}'\n---\napiVersion: argoproj.io/v1alpha1\nkind: ArgoCDExtension\n\
                metadata: {name: metrics}\nspec: {backend: {serviceName: svc}}\n";
    let resources = load_text(text, "e.yaml", "argocd").value.unwrap();
    let loaded = parse(&resources);
    let found: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "e.yaml:7:1: warning: ArgoCDExtension `metrics` is left out: the extension is configured at e.yaml:5 \
             (give one of both another name)"
        ]
    );
    let specs = loaded.value.unwrap();
    assert_eq!(specs.len(), 1);
    assert_eq!(specs[0].services[0].url.as_str(), "http://m/");
}

#[test]
fn an_object_with_a_bad_name_is_left_out() {
    let text = "apiVersion: argoproj.io/v1alpha1\nkind: ArgoCDExtension\nmetadata: {name: a.b}\n\
                spec: {backend: {serviceName: svc}}\n---\napiVersion: argoproj.io/v1alpha1\n\
                kind: ArgoCDExtension\nmetadata: {name: metrics}\nspec: {backend: {serviceName: svc}}\n";
    let resources = load_text(text, "e.yaml", "argocd").value.unwrap();
    let loaded = parse(&resources);
    let found: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "e.yaml:1:1: warning: ArgoCDExtension `a.b` is left out: its name has unsafe characters \
             (letters, digits, `-` and `_` are allowed)"
        ]
    );
    let names: Vec<String> = loaded.value.unwrap().into_iter().map(|spec| spec.name).collect();
    assert_eq!(names, ["metrics"]);
}
