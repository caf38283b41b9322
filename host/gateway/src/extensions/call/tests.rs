use http::{HeaderMap, HeaderName, HeaderValue};

use crate::extensions::call::{CallObject, Error, read};
use crate::extensions::registry::Registry;

fn headers(fields: &[(&str, &[u8])]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).expect("header name"),
            HeaderValue::from_bytes(value).expect("header value"),
        );
    }
    map
}

fn check(fields: &[(&str, &[u8])], expected: Result<(&str, &str, &str), Error>) {
    let found = read("e", &Registry::default(), &headers(fields)).map(|(attributes, _)| attributes.object);
    let expected = expected.map(|(namespace, name, project)| CallObject::Application {
        application: tollgate_state::ObjectName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        },
        project: project.to_owned(),
    });
    assert_eq!(found, expected, "{fields:?}");
}

const APP: &str = "Argocd-Application-Name";
const PROJECT: &str = "Argocd-Project-Name";

#[test]
fn reads_both_spellings() {
    check(&[(APP, b"ns:app"), (PROJECT, b"p")], Ok(("ns", "app", "p")));
    check(&[(APP, b"ns/app"), (PROJECT, b"p")], Ok(("ns", "app", "p")));
}

#[test]
fn refuses_in_the_order_argo_cd_does() {
    check(&[], Err(Error::MissingApplication));
    check(&[(PROJECT, b"p")], Err(Error::MissingApplication));
    check(&[(APP, b""), (PROJECT, b"p")], Err(Error::MissingApplication));
    check(
        &[(APP, b"no-namespace"), (PROJECT, b"p")],
        Err(Error::MalformedApplication),
    );
    check(&[(APP, b"a:b:c"), (PROJECT, b"p")], Err(Error::MalformedApplication));
    check(&[(APP, b"a/b:c"), (PROJECT, b"p")], Err(Error::MalformedApplication));
    check(&[(APP, b"b@d:app"), (PROJECT, b"p")], Err(Error::InvalidNamespace));
    check(&[(APP, b":app"), (PROJECT, b"p")], Err(Error::InvalidNamespace));
    check(&[(APP, b"ns:b@d"), (PROJECT, b"p")], Err(Error::InvalidApplication));
    check(&[(APP, b"ns:App"), (PROJECT, b"p")], Err(Error::InvalidApplication));
    check(&[(APP, b"ns:app")], Err(Error::MissingProject));
    check(&[(APP, b"ns:app"), (PROJECT, b"b^d")], Err(Error::InvalidProject));
    check(&[(APP, b"ns:\xff"), (PROJECT, b"p")], Err(Error::MalformedApplication));
}

#[test]
fn refuses_a_second_value() {
    let repeated = |name, count| Err(Error::Repeated(name, count));
    check(&[(APP, b"ns:a"), (APP, b"ns:b"), (PROJECT, b"p")], repeated(APP, 2));
    check(
        &[(APP, b"ns:a"), (PROJECT, b"p"), (PROJECT, b"p")],
        repeated(PROJECT, 2),
    );
}

#[test]
fn names_are_bounded_as_in_kubernetes() {
    let namespace = |length: usize| format!("{}:app", "n".repeat(length));
    check(
        &[(APP, namespace(63).as_bytes()), (PROJECT, b"p")],
        Ok((&"n".repeat(63), "app", "p")),
    );
    check(
        &[(APP, namespace(64).as_bytes()), (PROJECT, b"p")],
        Err(Error::InvalidNamespace),
    );
    let project = |length: usize| "p".repeat(length);
    check(
        &[(APP, b"ns:app"), (PROJECT, project(253).as_bytes())],
        Ok(("ns", "app", &project(253))),
    );
    check(
        &[(APP, b"ns:app"), (PROJECT, project(254).as_bytes())],
        Err(Error::InvalidProject),
    );
}
