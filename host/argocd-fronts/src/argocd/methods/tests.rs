use std::collections::BTreeSet;

use http::Method;

use super::{MethodIndex, Verb, all};

#[test]
fn methods_are_found_by_both_their_forms() {
    let index = MethodIndex::try_new().expect("the templates agree");
    for method in all() {
        let path = format!("/{}/{}", method.service, method.name);
        assert_eq!(index.by_grpc_path(&path), Some(method));
        for template in std::iter::once(method.rest.path).chain(method.rest.other_path) {
            let verb: Method = method.rest.verb.as_ref().parse().expect("a method");
            let filled = template.replace("{subresource=**}", "a/b").replace(['{', '}'], "");
            let found = index.by_rest(&verb, &filled).expect("a method");
            // Several methods have one form, and check one permission.
            assert_eq!(
                (found.rest, found.resource, found.action),
                (method.rest, method.resource, method.action),
                "{template}"
            );
        }
    }
    assert_eq!(index.by_grpc_path("/application.ApplicationService/Unknown"), None);
    assert_eq!(index.by_rest(&Method::POST, "/api/v1/applications/a"), None);
    assert_eq!(index.by_rest(&Method::HEAD, "/api/v1/applications"), None);
}

#[test]
fn no_path_fits_two_templates_of_one_verb() {
    let mut forms: BTreeSet<(Vec<&str>, &str)> = BTreeSet::new();
    for method in all() {
        for template in std::iter::once(method.rest.path).chain(method.rest.other_path) {
            let segments: Vec<&str> = template.split('/').collect();
            for (other, verb) in &forms {
                let overlap = *verb == method.rest.verb.as_ref()
                    && other.len() == segments.len()
                    && *other != segments
                    && std::iter::zip(other, &segments)
                        .all(|(a, b)| a == b || a.starts_with('{') || b.starts_with('{'));
                assert!(!overlap, "{template} and {}", other.join("/"));
            }
            forms.insert((segments, method.rest.verb.as_ref()));
        }
    }
}

#[test]
fn a_read_is_a_get() {
    for method in all() {
        let reads = method.rest.verb == Verb::Get;
        let is_read = matches!(method.action, "get" | "");
        // Content of POST, but nothing changes.
        let is_query = matches!(method.name, "GetManifestsWithFiles" | "GetAppDetails" | "Generate");
        let is_session = method.service == "session.SessionService";
        assert!(reads == is_read || is_query || is_session, "{}", method.name);
    }
}
