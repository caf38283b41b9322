use http::{HeaderMap, HeaderName, HeaderValue};

use crate::extensions::call::{CallObject, Error, names, read};
use tollgate_config::Compatibility;
use tollgate_core::query_parameters;
use tollgate_front::extension_registry::Registry;

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
    check_query("", fields, expected);
}

fn check_query(query: &str, fields: &[(&str, &[u8])], expected: Result<(&str, &str, &str), Error>) {
    let found = read(
        "e",
        &Registry::default(),
        &headers(fields),
        Some(query),
        Compatibility::Argocd,
    );
    let found = found.map(|(attributes, _)| attributes.object);
    let expected = expected.map(|(namespace, name, project)| CallObject::Application {
        application: tollgate_objects::ObjectName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        },
        project: Some(project.to_owned()),
    });
    assert_eq!(found, expected, "{query} {fields:?}");
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
    let repeated = |name, observed| Err(names::Error::RepeatedHeader { name, observed }.into());
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

/// A request for a WebSocket that offers these subprotocols.
fn check_websocket(offers: &str, fields: &[(&str, &[u8])], expected: Result<(&str, &str, &str), Error>) {
    let upgrade: [(&str, &[u8]); 2] = [("upgrade", b"websocket"), ("sec-websocket-protocol", offers.as_bytes())];
    check_query("", &[&upgrade, fields].concat(), expected);
}

#[test]
fn a_query_parameter_names_what_no_header_does() {
    let both = "argocd-application-name=ns%3Aapp&argocd-project-name=p";
    check_query(both, &[], Ok(("ns", "app", "p")));
    check_query(
        "x=1&%61rgocd-application-name=ns:app&argocd-project-name=p",
        &[],
        Ok(("ns", "app", "p")),
    );
    check_query("argocd-project-name=p", &[(APP, b"ns:app")], Ok(("ns", "app", "p")));
    // Other spellings are other parameters.
    check_query(
        "Argocd-Application-Name=ns:app&argocd-project-name=p",
        &[],
        Err(Error::MissingApplication),
    );
    check_query("argocd-application-name=ns:app", &[], Err(Error::MissingProject));
    check_query(
        "argocd-application-name=&argocd-project-name=p",
        &[],
        Err(Error::MissingApplication),
    );
    check_query(
        "argocd-application-name=app&argocd-project-name=p",
        &[],
        Err(Error::MalformedApplication),
    );
}

#[test]
fn a_subprotocol_names_what_no_header_does() {
    // `ns:app` and `p`, encoded.
    let (app, project) = (
        "base64url.argocd-application-name.tollgate.dev.bnM6YXBw",
        "base64url.argocd-project-name.tollgate.dev.cA",
    );
    let both = format!("{app}, {project}");
    check_websocket(&format!("{both}, chat"), &[], Ok(("ns", "app", "p")));
    check_websocket(&format!("chat, {app}"), &[(PROJECT, b"p")], Ok(("ns", "app", "p")));
    // Only a WebSocket has subprotocols.
    let fields: [(&str, &[u8]); 2] = [("sec-websocket-protocol", both.as_bytes()), (PROJECT, b"p")];
    check(&fields, Err(Error::MissingApplication));
    let prefix = "base64url.argocd-application-name.tollgate.dev.";
    for (offers, error) in [
        (both.clone(), names::Error::OnlySubprotocol(prefix)),
        (
            format!("{app}, {app}, chat"),
            names::Error::RepeatedSubprotocol { prefix, observed: 2 },
        ),
        (format!("{app}=, chat"), names::Error::SubprotocolEncoding(prefix)),
        (format!("{prefix}_w, chat"), names::Error::SubprotocolEncoding(prefix)),
    ] {
        check_websocket(&offers, &[(PROJECT, b"p")], Err(error.into()));
    }
    check_websocket(
        &format!("{prefix}, chat"),
        &[(PROJECT, b"p")],
        Err(Error::MissingApplication),
    );
}

#[test]
fn what_is_named_twice_is_named_alike() {
    let fields: [(&str, &[u8]); 2] = [(APP, b"ns:app"), (PROJECT, b"p")];
    check_query(
        "argocd-application-name=ns:app&argocd-project-name=p",
        &fields,
        Ok(("ns", "app", "p")),
    );
    let app = "base64url.argocd-application-name.tollgate.dev.bnM6YXBw, chat";
    check_websocket(app, &fields, Ok(("ns", "app", "p")));
    let different = |name| Err(names::Error::Different(name).into());
    for query in ["argocd-application-name=ns:other", "argocd-application-name=ns/app"] {
        check_query(query, &fields, different(APP));
    }
    check_query("argocd-project-name=other", &fields, different(PROJECT));
    check_websocket(app, &[(APP, b"ns:other"), (PROJECT, b"p")], different(APP));
    for (query, problem) in [
        (
            "argocd-application-name=ns:app&argocd-application-name=ns:app",
            query_parameters::Error::Repeated(2),
        ),
        ("argocd-application-name=%", query_parameters::Error::Encoding),
    ] {
        let name = "argocd-application-name";
        check_query(query, &fields, Err(names::Error::Parameter { name, problem }.into()));
    }
}

#[test]
fn the_backend_gets_the_query_without_the_names() {
    for (query, expected) in [
        ("argocd-application-name=ns:app&argocd-project-name=p", None),
        ("a=%31&argocd-project-name=p&&b=+", Some("a=%31&&b=+")),
        ("a=1&%61rgocd-application-name=x", Some("a=1")),
        ("Argocd-Project-Name=p", Some("Argocd-Project-Name=p")),
    ] {
        assert_eq!(names::strip(Some(query)).as_deref(), expected, "{query}");
        assert!(!names::are_in(expected), "{query}");
    }
}

#[test]
fn an_application_without_a_project_is_named_except_to_argo_cd() {
    let project_of = |fields: &[(&str, &[u8])], compatibility| {
        let found = read("e", &Registry::default(), &headers(fields), None, compatibility);
        found.map(|(attributes, _)| attributes.object.project().map(str::to_owned))
    };
    let application: [(&str, &[u8]); 1] = [(APP, b"ns:app")];
    assert_eq!(project_of(&application, Compatibility::None), Ok(None));
    assert_eq!(
        project_of(&application, Compatibility::Argocd),
        Err(Error::MissingProject)
    );
    let invalid: [(&str, &[u8]); 2] = [(APP, b"ns:app"), (PROJECT, b"b^d")];
    assert_eq!(project_of(&invalid, Compatibility::None), Err(Error::InvalidProject));
    // Never the other way round.
    let project: [(&str, &[u8]); 1] = [(PROJECT, b"p")];
    assert_eq!(
        project_of(&project, Compatibility::None),
        Err(Error::MissingApplication)
    );
}
