//! Which backends an `ArgoCDExtension` can name, and that it is an extension as the
//! entry of `extension.config` that says the same.

use crate::diagnostic::{Loaded, Location};
use crate::front::extensions::config::{self, ExtensionSpec};
use crate::state::Resources;
use crate::state::directory::load_text;

fn load(spec: &str) -> Loaded<Resources> {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: argocd-cm}}\n---\n\
         apiVersion: argoproj.io/v1alpha1\nkind: ArgoCDExtension\nmetadata: {{name: metrics}}\nspec: {spec}\n"
    );
    load_text(&text, "e.yaml", "argocd")
}

#[track_caller]
fn check(backend: &str, url: &str) {
    let loaded = load(&format!("{{backend: {backend}}}"));
    assert!(loaded.diagnostics.is_empty(), "{backend}: {:?}", loaded.diagnostics);
    let resources = loaded.value.unwrap();
    assert_eq!(resources.extensions["metrics"].url.as_str(), url, "{backend}");
}

#[track_caller]
fn refused(backend: &str, expected: &str) {
    let loaded = load(&format!("{{backend: {backend}}}"));
    let resources = loaded.value.unwrap();
    assert_eq!(
        (resources.extensions.len(), resources.set_aside.len()),
        (0, 1),
        "{backend}"
    );
    let found: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 1, "{backend}: {found:?}");
    assert!(
        found[0].starts_with("e.yaml:") && found[0].contains(expected),
        "{backend}: {found:?}"
    );
}

#[test]
fn a_service_and_a_path_are_a_backend() {
    check("{serviceName: svc}", "http://svc.argocd.svc/");
    check(
        "{serviceName: svc, endpoint: /some-backend}",
        "http://svc.argocd.svc/some-backend",
    );
    check(
        "{serviceName: 'svc:8080', endpoint: /a/b/}",
        "http://svc.argocd.svc:8080/a/b/",
    );
}

#[test]
fn anything_else_is_refused_with_its_place() {
    for service in [
        "'https://svc'",
        "'svc.other'",
        "'svc:'",
        "'svc:0'",
        "'svc:65536'",
        "'svc:+80'",
        "'svc/x'",
        "'svc@host'",
        "Svc",
        "'-svc'",
        "'1svc'",
        "'svc:80:80'",
    ] {
        refused(&format!("{{serviceName: {service}}}"), "no Service of this namespace");
    }
    for endpoint in [
        "api",
        "'/a?b'",
        "'/a#b'",
        "'/a/../b'",
        "'//host'",
        "'/%2e%2e'",
        "'/a b'",
        "'/a\\b'",
    ] {
        refused(
            &format!("{{serviceName: svc, endpoint: {endpoint}}}"),
            "which is no path",
        );
    }
    refused("{endpoint: /a}", "`spec.backend.serviceName` is missing");
    refused(
        "{serviceName: svc, scheme: https}",
        "`spec.backend.scheme` is not known",
    );
}

#[test]
fn without_a_backend_it_is_not_used() {
    let resources = load("{sources: [{git: {url: u}}]}").value.unwrap();
    assert!(resources.extensions.is_empty());
}

#[test]
fn it_is_what_an_entry_of_the_same_words_is() {
    let object = load("{backend: {serviceName: 'svc:8080', endpoint: /api}}")
        .value
        .unwrap();
    let entry = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata:\n  extension.config.metrics: \
                 '{services: [{url: \"http://svc.argocd.svc:8080/api\"}]}'\n";
    let entry = load_text(entry, "e.yaml", "argocd").value.unwrap();
    let spec = |resources: &Resources| -> ExtensionSpec {
        let mut specs = config::parse(resources).value.unwrap();
        let mut spec = specs.pop().unwrap();
        assert!(specs.is_empty());
        spec.location = Location::default();
        spec.services[0].location = Location::default();
        spec
    };
    assert_eq!(spec(&object), spec(&entry));
}

#[test]
fn a_name_in_both_is_argocd_cms() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata:\n  extension.config.metrics: \
                '{services: [{url: \"http://m\"}]}'\n---\napiVersion: argoproj.io/v1alpha1\nkind: ArgoCDExtension\n\
                metadata: {name: metrics}\nspec: {backend: {serviceName: svc}}\n";
    let resources = load_text(text, "e.yaml", "argocd").value.unwrap();
    let loaded = config::parse(&resources);
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
    let loaded = config::parse(&resources);
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
