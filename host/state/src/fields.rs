//! Typed access to the fields of Kubernetes objects. A value of the wrong type is a finding with
//! its location.
//!
//! Security: no finding contains a value.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::Text;
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_core::yaml::{Entry, Node, ScalarType};

/// Maps positions in a text to locations in its file.
#[derive(Clone, Debug)]
pub struct SourceMap {
    file: Arc<str>,
    /// Lines before the text in its file.
    line_offset: u32,
    /// Whether columns are known. A value inside a file is indented by an unknown width, so its
    /// columns say nothing.
    columns: Columns,
}

#[derive(Clone, Copy, Debug)]
enum Columns {
    Known,
    Unknown,
}

impl SourceMap {
    /// A whole file.
    pub fn file(file: Arc<str>) -> Self {
        Self {
            file,
            line_offset: 0,
            columns: Columns::Known,
        }
    }

    /// A text value inside a file.
    pub fn nested(text: &Text) -> Self {
        let line_offset = text.location.line.saturating_sub(1);
        Self {
            file: text.location.file.clone(),
            line_offset,
            columns: Columns::Unknown,
        }
    }

    /// The location of a line and column, both counted from 1.
    pub fn location_at(&self, line: u32, column: u32) -> Location {
        let column = match self.columns {
            Columns::Known => column,
            Columns::Unknown => 0,
        };
        Location {
            file: self.file.clone(),
            line: self.line_offset.saturating_add(line),
            column,
        }
    }

    /// The location of a node.
    pub fn location_of(&self, node: &Node) -> Location {
        self.location_at(node.line, node.column)
    }

    /// A text and the line it begins on.
    pub fn text(&self, node: &Node, value: &str) -> Text {
        Text {
            value: Arc::from(value),
            location: self.location_at(node.text_line, 0),
        }
    }
}

/// A mapping, its path in the object, and its source map.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    node: &'a Node,
    source: &'a SourceMap,
    path: String,
}

impl<'a> Fields<'a> {
    /// Opens a mapping; any other value is a finding.
    pub fn open(node: &'a Node, source: &'a SourceMap, path: String, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        if node.entries().is_none() {
            let what = if path.is_empty() {
                "an object".to_owned()
            } else {
                format!("`{path}`")
            };
            let message = format!("{what} must be a mapping, found {}", node.kind());
            findings.push(Diagnostic::error(source.location_of(node), message));
            return None;
        }
        Some(Self { node, source, path })
    }

    /// Where the mapping starts.
    pub fn location(&self) -> Location {
        self.source.location_of(self.node)
    }

    /// The path of a key, as findings name it.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The entries as written.
    pub fn entries(&self) -> &'a [Entry] {
        self.node.entries().unwrap_or_default()
    }

    /// The mapping itself.
    pub fn whole(&self) -> &'a Node {
        self.node
    }

    /// A key's value, unless it is absent or null.
    pub fn node(&self, key: &str) -> Option<&'a Rc<Node>> {
        self.node.get(key)
    }

    /// The location of an entry's key.
    pub fn key_location(&self, entry: &Entry) -> Location {
        self.source.location_at(entry.line, entry.column)
    }

    /// Reports every key that is not among `known`.
    pub fn reject_unknown_keys(&self, known: &[&str], findings: &mut Vec<Diagnostic>) {
        for entry in self.entries().iter().filter(|entry| !known.contains(&&*entry.key)) {
            let message = format!("`{}` is not known", self.path_of(&entry.key));
            let hint = format!("known are `{}`", known.join("`, `"));
            findings.push(Diagnostic::error(self.key_location(entry), message).with_hint(hint));
        }
    }

    /// A mapping under `key`; absent and null are `None` without a finding.
    pub fn child(&self, key: &str, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        Self::open(self.node(key)?, self.source, self.path_of(key), findings)
    }

    /// A text under `key`; absent and null are `None` without a finding.
    pub fn text(&self, key: &str, findings: &mut Vec<Diagnostic>) -> Option<String> {
        let text = read_text(self.node(key)?, self.source, &self.path_of(key), findings)?;
        Some(text.value.as_ref().to_owned())
    }

    /// A text that must be present and not empty.
    pub fn required(&self, key: &str, findings: &mut Vec<Diagnostic>) -> Option<String> {
        let before = findings.len();
        let text = self.text(key, findings).filter(|text| !text.is_empty());
        if text.is_none() && findings.len() == before {
            let message = format!("`{}` is missing", self.path_of(key));
            findings.push(Diagnostic::error(self.location(), message));
        }
        text
    }

    /// A list under `key`, each item with its path.
    pub fn items(&self, key: &str, findings: &mut Vec<Diagnostic>) -> Vec<(&'a Node, String)> {
        let Some(node) = self.node(key) else { return Vec::new() };
        let path = self.path_of(key);
        let Some(items) = node.items() else {
            let message = format!("`{path}` must be a list, found {}", node.kind());
            findings.push(Diagnostic::error(self.source.location_of(node), message));
            return Vec::new();
        };
        items
            .iter()
            .enumerate()
            .map(|(index, item)| (item.as_ref(), format!("{path}[{index}]")))
            .collect()
    }

    /// A list of mappings under `key`.
    pub fn children(&self, key: &str, findings: &mut Vec<Diagnostic>) -> Vec<Self> {
        let items = self.items(key, findings);
        items
            .into_iter()
            .filter_map(|(node, path)| Self::open(node, self.source, path, findings))
            .collect()
    }

    /// A list of texts under `key`.
    pub fn texts(&self, key: &str, findings: &mut Vec<Diagnostic>) -> Vec<Text> {
        let items = self.items(key, findings);
        items
            .into_iter()
            .filter_map(|(node, path)| read_text(node, self.source, &path, findings))
            .collect()
    }

    /// A mapping of texts under `key`; null values become empty texts.
    pub fn text_map(&self, key: &str, findings: &mut Vec<Diagnostic>) -> BTreeMap<String, Text> {
        let Some(map) = self.child(key, findings) else {
            return BTreeMap::new();
        };
        let read = |entry: &Entry| {
            let text = read_text(&entry.value, self.source, &map.path_of(&entry.key), findings)?;
            Some((entry.key.as_ref().to_owned(), text))
        };
        map.entries().iter().filter_map(read).collect()
    }

    /// A boolean under `key`; absent is `false`.
    pub fn boolean(&self, key: &str, findings: &mut Vec<Diagnostic>) -> bool {
        let Some(node) = self.node(key) else { return false };
        if let Some(ScalarType::Boolean(value)) = node.scalar().map(tollgate_core::yaml::Scalar::scalar_type) {
            return value;
        }
        let message = format!("`{}` must be true or false, found {}", self.path_of(key), node.kind());
        findings.push(Diagnostic::error(self.source.location_of(node), message));
        false
    }

    /// A whole number under `key`; absent is 0.
    pub fn integer(&self, key: &str, findings: &mut Vec<Diagnostic>) -> i64 {
        let Some(node) = self.node(key) else { return 0 };
        let number = node
            .scalar()
            .filter(|scalar| scalar.scalar_type() == ScalarType::Number);
        if let Some(value) = number.and_then(|scalar| scalar.text.parse().ok()) {
            return value;
        }
        let message = format!("`{}` must be a whole number, found {}", self.path_of(key), node.kind());
        findings.push(Diagnostic::error(self.source.location_of(node), message));
        0
    }
}

impl Fields<'_> {
    /// A number that must be present and at least 1.
    pub fn positive_integer(&self, key: &str, findings: &mut Vec<Diagnostic>) -> Option<i64> {
        let before = findings.len();
        let number = self.integer(key, findings);
        if number < 1 && findings.len() == before {
            let path = self.path_of(key);
            let message = match self.node(key) {
                Some(_) => format!("`{path}` is `{number}`, at least 1 is allowed"),
                None => format!("`{path}` is missing"),
            };
            findings.push(Diagnostic::error(self.location(), message));
        }
        (number >= 1).then_some(number)
    }
}

/// Reads a text as the Kubernetes API server does: numbers and booleans are refused, null is the
/// empty text.
fn read_text(node: &Node, source: &SourceMap, path: &str, findings: &mut Vec<Diagnostic>) -> Option<Text> {
    let refuse = |found: &str| {
        let finding = Diagnostic::error(
            source.location_of(node),
            format!("`{path}` must be text, found {found}"),
        );
        if node.scalar().is_some() {
            finding.with_hint("write it in quotes")
        } else {
            finding
        }
    };
    let Some(scalar) = node.scalar() else {
        findings.push(refuse(node.kind()));
        return None;
    };
    match scalar.scalar_type() {
        ScalarType::Null => Some(source.text(node, "")),
        ScalarType::Text if scalar.is_yaml_1_1_boolean() => {
            findings.push(refuse("what Kubernetes reads as a boolean"));
            None
        }
        ScalarType::Text => Some(source.text(node, &scalar.text)),
        ScalarType::Boolean(_) | ScalarType::Number => {
            findings.push(refuse(node.kind()));
            None
        }
    }
}
