//! Tests of the backends that an `ArgoCDExtension` can name.

use crate::Resources;
use crate::decode::load_text;
use tollgate_core::diagnostic::Loaded;

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
        (resources.extensions.len(), resources.invalid_objects.len()),
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
fn service_name_and_endpoint_make_the_backend_url() {
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
fn other_backends_are_refused_with_their_position() {
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
fn an_extension_without_a_backend_is_ignored() {
    let resources = load("{sources: [{git: {url: u}}]}").value.unwrap();
    assert!(resources.extensions.is_empty());
}
