//! Tests of what is read from content.

use std::collections::BTreeMap;

use super::{ContentFormat, Unreadable, read_metadata};

const ID: &str = "argocd.argoproj.io/tracking-id";

fn annotations(format: ContentFormat, content: &str) -> Result<BTreeMap<String, String>, Unreadable> {
    read_metadata(format, content.as_bytes()).map(|metadata| metadata.annotations.unwrap_or_default())
}

#[test]
fn annotations_are_read_in_every_format() {
    let expected = Ok(BTreeMap::from([(ID.to_owned(), "shop:/ConfigMap:shop/x".to_owned())]));
    let object = format!(
        r#"{{"metadata":{{"name":"x","annotations":{{"{ID}":"shop:/ConfigMap:shop/x"}}}},"data":{{"a":"<<é!"}}}}"#
    );
    let yaml = format!("metadata:\n  annotations:\n    {ID}: \"shop:/ConfigMap:shop/x\"\n");
    let pointer = ID.replace('/', "~1");
    let operations = format!(
        r#"[{{"op":"test","path":"/metadata","value":{{}}}},{{"op":"add","path":"/metadata/annotations/{pointer}","value":"shop:/ConfigMap:shop/x"}},{{"op":"replace","path":"/data/a","value":1}}]"#
    );
    for (format, content) in [
        (ContentFormat::Json, &object),
        (ContentFormat::Apply, &object),
        (ContentFormat::Apply, &yaml),
        (ContentFormat::Yaml, &yaml),
        (ContentFormat::JsonPatch, &operations),
    ] {
        assert_eq!(annotations(format, content), expected, "{format:?} {content}");
    }
}

#[test]
fn what_a_patch_removes_is_left_out() {
    let removed = format!(r#"{{"metadata":{{"annotations":{{"{ID}":null}}}}}}"#);
    assert_eq!(annotations(ContentFormat::Json, &removed), Ok(BTreeMap::new()));
    for none in [r#"{"metadata":{"annotations":null}}"#, r#"{"metadata":null}"#, "{}"] {
        assert_eq!(annotations(ContentFormat::Json, none), Ok(BTreeMap::new()), "{none}");
    }
}

#[test]
fn content_with_two_readings_is_unreadable() {
    for (format, content) in [
        (ContentFormat::Json, r#"{"metadata":{"annotations":{"a":"1","a":"2"}}}"#),
        (
            ContentFormat::Json,
            r#"{"metadata":{"annotations":{"a":null,"a":"2"}}}"#,
        ),
        (
            ContentFormat::Json,
            r#"{"metadata":{"annotations":{},"annotations":{"a":"1"}}}"#,
        ),
        (ContentFormat::Json, r#"{"metadata":{"Annotations":{"a":"1"}}}"#),
        (ContentFormat::Json, r#"{"metadata":{"labels":{"a":7}}}"#),
        (ContentFormat::Apply, r#"{"<<":{"metadata":{}}}"#),
        (ContentFormat::Apply, r#"{"metadata":{"<<":{"annotations":{"a":"1"}}}}"#),
        (ContentFormat::Apply, r#"{"metadata":{"annotations":{"<<":"1"}}}"#),
        (ContentFormat::Yaml, "metadata: {<<: {annotations: {a: b}}}"),
        (ContentFormat::Other, "{}"),
        (ContentFormat::JsonPatch, "{}"),
        (ContentFormat::JsonPatch, r#"[{"op":"add","path":"","value":{}}]"#),
        (ContentFormat::JsonPatch, r#"[{"op":"add","path":"/","value":{}}]"#),
        (
            ContentFormat::JsonPatch,
            r#"[{"op":"add","path":"metadata/annotations/a","value":"1"}]"#,
        ),
        (
            ContentFormat::JsonPatch,
            r#"[{"op":"replace","path":"/metadata","value":{}}]"#,
        ),
        (
            ContentFormat::JsonPatch,
            r#"[{"op":"replace","path":"/Metadata/annotations/a","value":"1"}]"#,
        ),
        (
            ContentFormat::JsonPatch,
            r#"[{"op":"add","path":"/metadata/annotations","value":{"a":"1"}}]"#,
        ),
        (
            ContentFormat::JsonPatch,
            r#"[{"op":"remove","path":"/metadata/annotations"}]"#,
        ),
        (
            ContentFormat::JsonPatch,
            r#"[{"op":"add","path":"/metadata/annotations/a/b","value":"1"}]"#,
        ),
        (
            ContentFormat::JsonPatch,
            r#"[{"op":"copy","from":"/data","path":"/metadata/annotations"}]"#,
        ),
        (
            ContentFormat::JsonPatch,
            r#"[{"op":"move","from":"/data/a","path":"/metadata/annotations/a"}]"#,
        ),
        (
            ContentFormat::JsonPatch,
            r#"[{"op":"add","op":"test","path":"/metadata/annotations/a","value":"1"}]"#,
        ),
        (
            ContentFormat::JsonPatch,
            r#"[{"op":"test","path":"/a","Path":"/metadata","value":"1"}]"#,
        ),
    ] {
        assert_eq!(annotations(format, content), Err(Unreadable), "{format:?} {content}");
    }
}

/// A field with bytes, of at most 127.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

fn entry(number: u8, key: &str, value: &str) -> Vec<u8> {
    field(number, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
}

#[test]
fn protocol_buffers_are_read_as_kubernetes_reads_them() {
    let object = |metadata: &[Vec<u8>]| {
        let metadata: Vec<u8> = metadata.iter().flat_map(|part| field(1, part)).collect();
        [
            b"k8s\0".as_slice(),
            &field(1, b""),
            &field(2, &[metadata, field(2, b"data")].concat()),
        ]
        .concat()
    };
    let read = |bytes: &[u8]| read_metadata(ContentFormat::Protobuf, bytes);
    let metadata = read(&object(&[[
        field(1, b"x"),
        entry(12, ID, "shop:a"),
        entry(11, "l", "1"),
    ]
    .concat()]))
    .unwrap();
    assert_eq!(metadata.name.as_deref(), Some("x"));
    assert_eq!(
        metadata.annotations,
        Some(BTreeMap::from([(ID.to_owned(), "shop:a".to_owned())]))
    );
    assert_eq!(
        metadata.labels,
        Some(BTreeMap::from([("l".to_owned(), "1".to_owned())]))
    );
    // The last of several counts, also in another occurrence of the metadata.
    let again = object(&[
        entry(12, ID, "shop:a"),
        [entry(12, "b", "1"), entry(12, ID, "cart:a")].concat(),
    ]);
    assert_eq!(read(&again).unwrap().annotations.unwrap()[ID], "cart:a");
    assert_eq!(read(&object(&[])).unwrap().annotations, Some(BTreeMap::new()));
    for broken in [
        &b""[..],
        b"k8s",
        b"{}",
        b"k8s\0\x12\x7f",
        &object(&[b"\x62\x7f".to_vec()]),
        &object(&[b"\x08\x01".to_vec()]),
    ] {
        assert_eq!(read(broken), Err(Unreadable), "{broken:?}");
    }
}
