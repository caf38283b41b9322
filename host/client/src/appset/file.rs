//! Reads [`Manifest`]s of ApplicationSets from files or standard input, at most [`FILE_BYTES`] of
//! one file.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::input::read_file_or_stdin;
use tollgate_state::write::{self, WritableKind};

/// Longest file, in bytes: room for several objects of the largest size that a cluster accepts.
const FILE_BYTES: u64 = 16 << 20;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Manifest {
    pub(super) name: String,
    /// Its namespace, where it names one.
    pub(super) namespace: Option<String>,
    /// Whether it names the version it is based on (`metadata.resourceVersion`).
    pub(super) has_version: bool,
    pub(super) object: Value,
}

/// Every ApplicationSet of every file, in order.
///
/// - `namespace`: of those that name none.
pub(super) fn read(files: &[PathBuf], namespace: Option<&str>) -> Result<Vec<Manifest>, Failure> {
    let mut all = Vec::new();
    for file in files {
        let shown = file.display().to_string();
        let wrong = |why: &str| Failure::new("appset.file", format_args!("`{shown}`: {why}"));
        let text = read_file_or_stdin(file, FILE_BYTES).map_err(|error| wrong(&error.to_string()))?;
        let documents = write::documents(&text).map_err(|error| wrong(&error))?;
        let found = manifests(documents, namespace).map_err(|error| wrong(&error))?;
        all.extend(found);
    }
    let mut seen = BTreeSet::new();
    for one in &all {
        if !seen.insert((&one.namespace, &one.name)) {
            let message = format!("ApplicationSet `{}` occurs twice", one.name);
            return Err(Failure::new("appset.file", message));
        }
    }
    Ok(all)
}

fn manifests(documents: Vec<Value>, namespace: Option<&str>) -> Result<Vec<Manifest>, String> {
    let mut flat = Vec::new();
    for document in documents {
        let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
        match (kind, document.get("items")) {
            ("List" | "ApplicationSetList", Some(Value::Array(items))) => flat.extend(items.iter().cloned()),
            (_, _) => flat.push(document),
        }
    }
    if flat.is_empty() {
        return Err("it has no ApplicationSet".to_owned());
    }
    let numbered = (1_usize..).zip(flat);
    numbered
        .map(|(number, object)| manifest(object, namespace).map_err(|why| format!("object {number} {why}")))
        .collect()
}

fn manifest(mut object: Value, namespace: Option<&str>) -> Result<Manifest, String> {
    let text = |object: &Value, pointer: &str| {
        let text = object.pointer(pointer).and_then(Value::as_str);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    // Objects from the API, such as items of its lists, may omit it.
    if let Some(kind) = text(&object, "/kind").filter(|kind| kind != WritableKind::ApplicationSet.as_str()) {
        return Err(format!("is `{kind}`, ApplicationSet is expected"));
    }
    let allowed = WritableKind::ApplicationSet.api_version();
    if let Some(version) = text(&object, "/apiVersion").filter(|version| version != allowed) {
        return Err(format!("has apiVersion `{version}`, expected `{allowed}`"));
    }
    let name = text(&object, "/metadata/name").ok_or("has no `metadata.name`")?;
    let own = text(&object, "/metadata/namespace");
    if let (None, Some(namespace)) = (&own, namespace)
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    Ok(Manifest {
        name,
        namespace: own.or_else(|| namespace.map(str::to_owned)),
        has_version: text(&object, "/metadata/resourceVersion").is_some(),
        object,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::manifests;
    use tollgate_state::write::documents;

    #[test]
    fn documents_and_lists_are_flattened() {
        let text = "# none\n---\nkind: ApplicationSet\nmetadata: {name: a, namespace: own}\n---\n\
                    kind: List\nitems:\n- metadata: {name: b, resourceVersion: '7'}\n- metadata: {name: c}\n";
        let read = manifests(documents(text).expect("YAML"), Some("n")).expect("sets");
        let shown: Vec<_> = read
            .iter()
            .map(|one| (one.name.as_str(), one.namespace.as_deref(), one.has_version))
            .collect();
        let expected = [
            ("a", Some("own"), false),
            ("b", Some("n"), true),
            ("c", Some("n"), false),
        ];
        assert_eq!(shown, expected);
        assert_eq!(read[2].object["metadata"]["namespace"], "n");
        assert_eq!(
            manifests(vec![json!({"metadata": {"name": "a"}})], None).expect("a set")[0].namespace,
            None
        );
    }

    #[test]
    fn invalid_objects_are_reported_by_number() {
        for (text, why) in [
            ("", "it has no ApplicationSet"),
            (
                "metadata: {name: a}\n---\nkind: ConfigMap\nmetadata: {name: b}\n",
                "object 2 is `ConfigMap`, ApplicationSet is expected",
            ),
            (
                "kind: ApplicationSet\nmetadata: {}\n",
                "object 1 has no `metadata.name`",
            ),
            (
                "apiVersion: v1\nmetadata: {name: a}\n",
                "object 1 has apiVersion `v1`, expected `argoproj.io/v1alpha1`",
            ),
        ] {
            assert_eq!(manifests(documents(text).expect("YAML"), None), Err(why.to_owned()));
        }
    }
}
