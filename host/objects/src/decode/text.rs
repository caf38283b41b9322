//! Decodes the text of one file.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::last_known_good::DecodedInput;
use super::read::{DecodedItem, ObjectContent, ObjectDecoder, configuration};
use super::{LoadMemo, collect};
use crate::Resources;
use crate::fields::SourceMap;
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_core::yaml::{self, Content, Node, Style};

/// Reads objects from one text, as from a file whose path is `name`. `namespace` is the control plane's.
pub fn load_text(text: &str, name: &str, namespace: &str) -> Loaded<Resources> {
    let input = DecodedInput {
        file: None,
        items: read_file(text, Arc::from(name), name, namespace).into(),
    };
    let (resources, findings) = collect(&[input], namespace, &mut LoadMemo::default());
    Loaded::new(resources, findings)
}

/// Decodes one file; `inside` is its path in the folder.
pub fn read_file(text: &str, name: Arc<str>, inside: &str, namespace: &str) -> Vec<DecodedItem> {
    let source = SourceMap::file(name);
    let parsed = yaml::parse(text);
    if let Some(items) = configuration(inside, &parsed, &source) {
        return items;
    }
    let decoder = ObjectDecoder::new(namespace);
    for problem in parsed.problems {
        let location = source.location_at(problem.line, problem.column);
        decoder.report(Diagnostic::error(location, problem.message));
    }
    let last = parsed.documents.last().filter(|_| !text.ends_with('\n'));
    if let Some(last) = last.and_then(|node| last_scalar(node)) {
        let message = "the file ends inside this text, without a line break";
        let hint = "a file cut short looks like this; end it with a line break";
        decoder.report(Diagnostic::warning(source.location_of(last), message).with_hint(hint));
    }
    for document in &parsed.documents {
        decoder.document(document, &source);
    }
    let mut items = decoder.finish();
    add_versions(&mut items, text);
    items
}

fn add_versions(items: &mut [DecodedItem], text: &str) {
    let mut version = None;
    for item in items {
        let DecodedItem::Object(decoded) = item else { continue };
        let ObjectContent::ApplicationSet(set) = &mut decoded.content else {
            continue;
        };
        // The same digest that a write to the folder compares, see `FolderWriter`.
        let version = version.get_or_insert_with(|| version_of(text.as_bytes()));
        // The items were decoded just above, so nobody else has the pointer.
        let metadata = Arc::get_mut(set).and_then(|set| set.get_mut("metadata"));
        if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), version.as_str().into());
        }
    }
}

fn last_scalar(node: &Node) -> Option<&Node> {
    match &node.content {
        Content::Scalar(scalar) => (scalar.style == Style::Block).then_some(node),
        Content::Sequence(items) => items.last().and_then(|last| last_scalar(last)),
        Content::Mapping(entries) => entries.last().and_then(|last| last_scalar(&last.value)),
    }
}

/// The version of a file's text: a digest of its bytes.
pub fn version_of(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
