use super::{Error, is_same_name, json_has_list, json_text, protobuf_has, protobuf_text};
use crate::argocd::methods::{FieldPath, MethodIndex};
use tollgate_front::grpc::wire::{put_bytes, put_varint};

fn fields(method: &str) -> crate::argocd::methods::MessageFields {
    let index = MethodIndex::try_new().expect("an index");
    let method = index.by_grpc_path(&format!("/application.ApplicationService/{method}"));
    method.expect("a method").fields
}

fn text(message: &[u8], path: FieldPath) -> Result<Option<&str>, Error> {
    protobuf_text(message, path)
}

#[test]
fn texts_are_read_from_protobuf() {
    let path = fields("Sync").project.expect("a project");
    let mut message = Vec::new();
    put_bytes(&mut message, 1, b"app");
    put_varint(&mut message, 3, 1);
    assert_eq!(text(&message, path), Ok(None));
    put_bytes(&mut message, 13, b"prod");
    assert_eq!(text(&message, path), Ok(Some("prod")));
    // argocd-server takes the last one.
    put_bytes(&mut message, 13, b"dev");
    assert_eq!(text(&message, path), Err(Error::Duplicate("project")));
    assert_eq!(text(b"\x6a\x00", path), Ok(None));
    assert_eq!(text(b"\x68\x01", path), Err(Error::Type("project")));
    assert_eq!(text(b"\x6a\x01\xff", path), Err(Error::Type("project")));
    assert_eq!(text(b"\x6a\x05a", path), Err(Error::Protobuf));
    // A number that has the same lower 32 bits as 13.
    assert_eq!(text(b"\xea\x80\x80\x80\x80\x01\x01a", path), Err(Error::Protobuf));
    // A group.
    assert_eq!(text(b"\x0b\x0c", path), Err(Error::Protobuf));
}

#[test]
fn fields_of_fields_are_read() {
    let path = fields("Create").project.expect("a project");
    let mut spec = Vec::new();
    put_bytes(&mut spec, 3, b"prod");
    let mut application = Vec::new();
    put_bytes(&mut application, 2, &spec);
    let mut message = Vec::new();
    put_bytes(&mut message, 1, &application);
    assert_eq!(text(&message, path), Ok(Some("prod")));
    // argocd-server merges two messages.
    put_bytes(&mut message, 1, b"");
    assert_eq!(text(&message, path), Err(Error::Duplicate("application.spec.project")));
    let mut message = Vec::new();
    put_bytes(&mut application, 2, b"");
    put_bytes(&mut message, 1, &application);
    assert_eq!(text(&message, path), Err(Error::Duplicate("application.spec.project")));
}

#[test]
fn elements_of_lists_are_seen() {
    let path = fields("Sync").manifests.expect("manifests");
    assert_eq!(protobuf_has(b"", path), Ok(false));
    assert_eq!(protobuf_has(b"\x42\x00", path), Ok(true));
    assert_eq!(protobuf_has(b"\x42\x01a\x42\x01b", path), Ok(true));
    assert_eq!(protobuf_has(b"\x0a\x01a", path), Ok(false));
    assert_eq!(protobuf_has(b"\x42\x05a", path), Err(Error::Protobuf));
}

#[test]
fn texts_are_read_from_json_as_go_reads_them() {
    let read = |content: &str| json_text(content.as_bytes(), "spec.project", "p");
    for content in [
        "",
        "{}",
        "null",
        r#"{"spec":null}"#,
        r#"{"spec":{}}"#,
        r#"{"spec":{"project":null}}"#,
    ] {
        assert_eq!(read(content), Ok(None), "{content}");
    }
    let prod = Ok(Some("prod".to_owned()));
    for content in [
        r#"{"spec":{"project":"prod"}}"#,
        r#"{"Spec":{"PROJECT":"prod"}}"#,
        r#"{"\u017fpec":{"project":"pr\u006fd"}}"#,
        r#" {"x":[{"spec":1}],"spec":{"project":"prod"},"y":"\ud83d\ude00"} "#,
    ] {
        assert_eq!(read(content), prod, "{content}");
    }
    for content in [
        r#"{"spec":{"project":"prod","project":"dev"}}"#,
        r#"{"spec":{"project":"prod","Project":"dev"}}"#,
        r#"{"spec":{"project":"prod"},"Spec":{}}"#,
        r#"{"spec":{"project":"prod"},"\u017fpec":{"project":"dev"}}"#,
    ] {
        assert_eq!(read(content), Err(Error::Duplicate("p")), "{content}");
    }
    for content in [
        r#"{"spec":{"project":1}}"#,
        r#"{"spec":["project"]}"#,
        "[]",
        r#"{"spec":{"project":"\ud800"}}"#,
    ] {
        assert_eq!(read(content), Err(Error::Type("p")), "{content}");
    }
    // Go takes the first of two values.
    for content in [r#"{"spec":{"project":"prod"}}{"spec":{}}"#, "{", "\u{feff}{}"] {
        assert_eq!(read(content), Err(Error::Json), "{content}");
    }
}

#[test]
fn an_empty_list_is_a_list() {
    let read = |content: &str| json_has_list(content.as_bytes(), "manifests", "m");
    assert_eq!(read("{}"), Ok(false));
    assert_eq!(read(r#"{"manifests":null}"#), Ok(false));
    assert_eq!(read(r#"{"manifests":[]}"#), Ok(true));
    assert_eq!(read(r#"{"manifeſts":["a"]}"#), Ok(true));
    assert_eq!(read(r#"{"manifests":"a"}"#), Err(Error::Type("m")));
}

#[test]
fn names_are_compared_as_go_folds_them() {
    assert!(is_same_name("KEY", "key"));
    assert!(is_same_name("\u{212a}ey", "key"));
    assert!(is_same_name("manife\u{17f}t\u{17f}", "manifests"));
    assert!(!is_same_name("kèy", "key"));
    assert!(!is_same_name("keys", "key"));
}
