//! Fuzz targets of what Argo CD's components send to clusters.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::object_content::{ContentFormat, read_metadata};
use tollgate_fuzz::{Target, inputs};

/// Every target of this crate.
pub fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "object_content",
            run: object_content,
            seeds: objects,
        },
        Target {
            name: "json_patch",
            run: json_patch,
            seeds: patches,
        },
    ]
}

fn objects() -> Vec<Vec<u8>> {
    inputs([
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"argocd.argoproj.io/tracking-id":"shop:/ConfigMap:shop/a"},"labels":{"app.kubernetes.io/instance":"shop"}},"data":{"a":"<<"}}"#,
        r#"{"metadata":{"annotations":{"argocd.argoproj.io/tracking-id":null}}}"#,
        r#"{"Metadata":{"name":"a"},"metadata":{"Name":"a","name":"b"}}"#,
        r#"{"metadata":{"<<":{"annotations":{"a":"b"}}}}"#,
        "k8s\0\u{12}\u{b}\n\u{9}\n\u{1}xb\u{4}\n\u{0}\u{12}\u{0}",
        "metadata:\n  name: a\n  annotations: {a: \"b\"}\n",
    ])
}

/// What is read from JSON is what a reader finds that folds cases, and takes the last of several keys.
fn object_content(data: &[u8]) {
    for format in [ContentFormat::Yaml, ContentFormat::Apply, ContentFormat::Protobuf] {
        let _ = read_metadata(format, data);
    }
    let Ok(read) = read_metadata(ContentFormat::Json, data) else {
        return;
    };
    let parsed = serde_json::from_slice::<Value>(data);
    assert!(parsed.is_ok(), "what is read is JSON");
    let value = parsed.unwrap_or_default();
    let metadata = folded(&value, "metadata");
    assert_eq!(
        read.name.as_deref(),
        metadata.and_then(|metadata| folded(metadata, "name")?.as_str())
    );
    for (texts, field) in [(read.annotations, "annotations"), (read.labels, "labels")] {
        let none = Map::new();
        let found = metadata.and_then(|metadata| folded(metadata, field)?.as_object());
        let found = found.unwrap_or(&none).iter();
        let found: BTreeMap<&str, &str> = found
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
            .collect();
        let texts = texts.unwrap_or_default();
        let texts = texts.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        assert_eq!(texts.collect::<BTreeMap<_, _>>(), found, "{field}");
    }
    // Most clients write JSON where YAML is declared.
    assert!(read_metadata(ContentFormat::Apply, data).is_ok(), "JSON is not YAML");
}

fn folded<'v>(object: &'v Value, field: &str) -> Option<&'v Value> {
    let mut entries = object.as_object()?.iter();
    entries
        .rfind(|(key, _)| key.eq_ignore_ascii_case(field))
        .map(|(_, value)| value)
}

fn patches() -> Vec<Vec<u8>> {
    inputs([
        r#"[{"op":"add","path":"/metadata/annotations/argocd.argoproj.io~1tracking-id","value":"shop:/ConfigMap:shop/a"}]"#,
        r#"[{"op":"replace","path":"/metadata/labels","value":{}},{"op":"test","path":"","value":{}}]"#,
        r#"[{"op":"copy","from":"/data","path":"/metadata/annotations/a"},{"op":"remove","path":"/metadata/labels/a"}]"#,
    ])
}

/// A patch that is read changes annotations and labels only as texts, one at a time.
fn json_patch(data: &[u8]) {
    let Ok(read) = read_metadata(ContentFormat::JsonPatch, data) else {
        return;
    };
    let parsed = serde_json::from_slice::<Vec<Value>>(data);
    assert!(parsed.is_ok(), "what is read is a list");
    let operations = parsed.unwrap_or_default();
    for operation in operations.iter().filter(|operation| operation["op"] != "test") {
        let path = operation["path"].as_str().unwrap_or_default().to_ascii_lowercase();
        let is_whole = ["", "/metadata", "/metadata/annotations", "/metadata/labels"].contains(&path.as_str());
        assert!(!is_whole, "{operation}");
    }
    let written = operations.iter().filter_map(|operation| operation["value"].as_str());
    let written: Vec<&str> = written.collect();
    for text in read
        .annotations
        .iter()
        .chain(&read.labels)
        .flat_map(|texts| texts.values())
    {
        assert!(written.contains(&text.as_str()), "{text}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_target_holds_on_its_seeds_earlier_finds_and_mutations() {
        tollgate_fuzz::check(&super::targets());
    }
}
