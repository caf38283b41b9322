//! Names of objects that are not in the path.

use std::collections::BTreeSet;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use proptest::prelude::*;

use crate::object_content::ContentFormat;
use crate::restriction::tests::{allow_all_except, attributes, kind, rules, with, write};
use crate::restriction::{BodyName, Restrictions, name_in_body};
use tollgate_objects::{Project, ResourceRules};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// The name a request of one content type, or of none, gives.
fn name_of(content_type: Option<&str>, bytes: &[u8]) -> BodyName {
    let headers = content_type.map(|value| (CONTENT_TYPE, value.parse().unwrap()));
    name_in_body(ContentFormat::of(&headers.into_iter().collect()), bytes)
}

fn by_name() -> Project {
    with(ResourceRules {
        cluster_allowed: rules(&["rbac.authorization.k8s.io/ClusterRole/team-*", "/Node"]),
        ..ResourceRules::default()
    })
}

fn needs(project: &Project, request: &str) -> bool {
    let attributes = attributes(request);
    let kind = kind(&attributes).unwrap();
    Restrictions::of(&project.clone().into()).needs_name(&attributes, &kind)
}

#[test]
fn a_name_is_needed_only_if_it_decides() {
    let create = format!("POST {ROLES}");
    assert!(needs(&by_name(), &create));
    assert!(needs(&allow_all_except(&["*/ClusterRole/admin"], &[]), &create));
    assert!(needs(&allow_all_except(&["*/[/admin"], &[]), &create));
    assert!(!needs(&by_name(), "POST /api/v1/nodes"));
    assert!(!needs(&by_name(), &format!("PATCH {ROLES}/team-a")));
    assert!(!needs(&by_name(), &format!("DELETE {ROLES}")));
    assert!(!needs(&by_name(), "POST /api/v1/namespaces/team-a/pods"));
    assert!(!needs(
        &allow_all_except(&["*/ClusterRole/*", "*/ClusterRole"], &[]),
        &create
    ));
    assert!(!needs(
        &allow_all_except(&["*/ClusterRole*binding/admin"], &[]),
        &create
    ));
}

#[test]
fn a_resource_permitted_by_name_needs_a_name() {
    let create = format!("POST {ROLES}");
    let known = |name: &str| BodyName::Known(name.to_owned());
    let unnamed = "ClusterRole is permitted by name in project guest, and the request has none that can be read";
    for (project, request, name, expected) in [
        (by_name(), &create, Some(known("team-a")), ""),
        (
            by_name(),
            &create,
            Some(known("admin")),
            "not permitted in project guest: clusterResourceWhitelist",
        ),
        (by_name(), &create, Some(BodyName::Generated), unnamed),
        (by_name(), &create, Some(BodyName::Unreadable), unnamed),
        (by_name(), &create, None, unnamed),
        // A body does not name what is deleted.
        (by_name(), &format!("DELETE {ROLES}"), Some(known("team-a")), unnamed),
        (
            allow_all_except(&["*/*/admin"], &[]),
            &create,
            Some(known("team-a")),
            "",
        ),
        (
            allow_all_except(&["*/*/admin"], &[]),
            &create,
            Some(known("admin")),
            "clusterResourceBlacklist",
        ),
        (
            allow_all_except(&["*/*/admin"], &[]),
            &create,
            Some(BodyName::Generated),
            unnamed,
        ),
        (
            allow_all_except(&["*/*/admin"], &[]),
            &format!("DELETE {ROLES}"),
            None,
            unnamed,
        ),
        (allow_all_except(&["/Node/admin"], &[]), &create, None, ""),
        (
            allow_all_except(&["/Node/admin"], &[]),
            &format!("DELETE {ROLES}"),
            None,
            "",
        ),
        // The path wins over a body.
        (
            by_name(),
            &format!("PUT {ROLES}/admin"),
            Some(known("team-a")),
            "clusterResourceWhitelist",
        ),
    ] {
        let outcome = write(&project, request, name.as_ref());
        assert!(
            outcome.contains(expected) && outcome.is_empty() == expected.is_empty(),
            "{request} {name:?}: `{outcome}`"
        );
    }
}

#[test]
fn names_are_read_only_from_unambiguous_bodies() {
    let known = Some("team-a");
    let json = Some("application/json");
    let yaml = Some("application/yaml");
    for (content_type, body, expected) in [
        (
            json,
            r#"{"kind":"ClusterRole","metadata":{"labels":{"name":"x"},"name":"team-a"}}"#,
            known,
        ),
        (None, r#"{"metadata":{"name":"team-a"}}"#, known),
        (
            Some("Application/JSON; charset=utf-8"),
            r#"{"metadata":{"name":"team-a"}}"#,
            known,
        ),
        (json, r#"{"metadat\u0061":{"n\u0061me":"team-a"}}"#, known),
        (yaml, "kind: ClusterRole\nmetadata:\n  name: team-a\n", known),
        (yaml, "---\nmetadata: {name: \"team-a\"}\n", known),
        (yaml, r#"{"metadata":{"name":"team-a"}}"#, known),
    ] {
        assert_eq!(name_of(content_type, body.as_bytes()).known(), expected, "{body}");
    }
    for (content_type, body) in [
        (json, r#"{"metadata":{"generateName":"team-"}}"#),
        (json, r#"{"metadata":{"name":""}}"#),
        (json, r#"{"metadata":{"name":null}}"#),
        (json, r#"{"metadata":null}"#),
        (json, "{}"),
        (yaml, "metadata:\n  generateName: team-\n"),
    ] {
        assert_eq!(name_of(content_type, body.as_bytes()), BodyName::Generated, "{body}");
    }
    for (content_type, body) in [
        (json, ""),
        (json, "[]"),
        (json, "{\"metadata\":"),
        (json, r#"{"metadata":{"name":7}}"#),
        (json, r#"{"metadata":{"name":"team-a"}} {}"#),
        (json, r#"{"metadata":{"name":"team-a","name":"admin"}}"#),
        (json, r#"{"metadata":{"name":"team-a"},"metadata":{"name":"admin"}}"#),
        (json, r#"{"metadata":{"name":"team-a"},"Metadata":{"name":"admin"}}"#),
        (json, r#"{"metadata":{"Name":"admin"}}"#),
        (json, "metadata:\n  name: team-a\n"),
        (yaml, "metadata:\n  name: team-a\nmetadata:\n  name: admin\n"),
        (yaml, "<<: {metadata: {name: admin}}\n"),
        (yaml, "metadata:\n  name: !!binary dGVhbS1h\n"),
        (yaml, "metadata:\n  name: team-a\n#\u{2028}metadata: {name: admin}\n"),
        (yaml, "metadata:\n  name: team-a\n---\nmetadata:\n  name: admin\n"),
        (yaml, "a: ["),
        (
            Some("application/vnd.kubernetes.protobuf"),
            r#"{"metadata":{"name":"team-a"}}"#,
        ),
        (Some("application/cbor"), r#"{"metadata":{"name":"team-a"}}"#),
        (Some(""), r#"{"metadata":{"name":"team-a"}}"#),
    ] {
        assert_eq!(name_of(content_type, body.as_bytes()), BodyName::Unreadable, "{body}");
    }
}

#[test]
fn an_ambiguous_content_type_is_unreadable() {
    let body = br#"{"metadata":{"name":"team-a"}}"#;
    let named = |values: &[&[u8]]| {
        let field = |value: &&[u8]| (CONTENT_TYPE, value.to_vec().try_into().unwrap());
        let headers: HeaderMap = values.iter().map(field).collect();
        assert_eq!(headers.get_all(CONTENT_TYPE).iter().count(), values.len());
        name_in_body(ContentFormat::of(&headers), body)
    };
    let json: &[u8] = b"application/json";
    let known = BodyName::Known("team-a".to_owned());
    assert_eq!(named(&[]), known);
    assert_eq!(named(&[json]), known);
    assert_eq!(named(&[json, json]), BodyName::Unreadable);
    assert_eq!(named(&[json, b"application/yaml"]), BodyName::Unreadable);
    assert_eq!(named(&[b"application/json; a=\xe4"]), BodyName::Unreadable);
}

#[test]
fn a_deeply_nested_body_is_unreadable() {
    for open in ["[", "{\"a\":"] {
        let deep = format!("{{\"a\":{}", open.repeat(100_000));
        assert_eq!(name_of(None, deep.as_bytes()), BodyName::Unreadable);
        assert_eq!(name_of(Some("application/yaml"), deep.as_bytes()), BodyName::Unreadable);
    }
}

/// A key as written, the key that parsers read, and its value.
type Piece = (&'static str, &'static str, &'static str);

/// Keys that JSON parsers treat differently.
const NAMES: [Piece; 6] = [
    ("name", "name", "\"team-a\""),
    ("name", "name", "\"admin\""),
    ("Name", "Name", "\"admin\""),
    ("n\\u0061me", "name", "\"other\""),
    ("generateName", "generateName", "\"x\""),
    ("labels", "labels", "{\"name\":\"x\"}"),
];
const KEYS: [(&str, &str); 4] = [
    ("metadata", "metadata"),
    ("METADATA", "METADATA"),
    ("m\\u0065tadata", "metadata"),
    ("spec", "spec"),
];

fn object(entries: impl Iterator<Item = (String, String)>) -> String {
    let entries: Vec<String> = entries.map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!("{{{}}}", entries.join(","))
}

fn pieces() -> impl Strategy<Value = Vec<(usize, Vec<usize>)>> {
    let names = prop::collection::vec(0..NAMES.len(), 0..3);
    prop::collection::vec((0..KEYS.len(), names), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_known_name_is_the_only_name_that_any_parser_finds(pieces in pieces()) {
        let body = object(pieces.iter().map(|(key, names)| {
            let names = names.iter().map(|name| (NAMES[*name].0.to_owned(), NAMES[*name].2.to_owned()));
            (KEYS[*key].0.to_owned(), object(names))
        }));
        let metadata = pieces.iter().filter(|(key, _)| KEYS[*key].1.eq_ignore_ascii_case("metadata"));
        let names = metadata.flat_map(|(_, names)| names).map(|name| NAMES[*name]);
        let found: BTreeSet<&str> = names
            .filter(|(_, key, _)| key.eq_ignore_ascii_case("name"))
            .map(|(_, _, value)| value.trim_matches('"'))
            .collect();
        match name_of(None, body.as_bytes()) {
            BodyName::Known(name) => prop_assert_eq!(found, BTreeSet::from([&*name])),
            BodyName::Generated => prop_assert!(found.is_empty(), "{}", body),
            BodyName::Unreadable => {}
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[-a: {}\\[\\]\n\"'&*#|>]{0,60}") {
        for content_type in [None, Some("application/yaml")] {
            name_of(content_type, &bytes);
            name_of(content_type, text.as_bytes());
        }
    }
}
