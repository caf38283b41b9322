//! Typed access to the fields of Kubernetes objects. A value of the wrong type is a finding with
//! its location.
//!
//! Security: no finding contains a value.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::Text;
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_core::yaml::{Entry, Node, Scalar, ScalarType};

pub(crate) type Findings = RefCell<Vec<Diagnostic>>;

/// Maps positions in a text to locations in its file.
#[derive(Clone, Debug)]
pub(crate) struct SourceMap {
    file: Arc<str>,
    /// Lines before the text in its file.
    line_offset: u32,
    /// A value inside a file is indented by an unknown width, so its columns say nothing.
    has_columns: bool,
}

impl SourceMap {
    pub(crate) fn file(file: Arc<str>) -> Self {
        Self {
            file,
            line_offset: 0,
            has_columns: true,
        }
    }

    pub(crate) fn nested(text: &Text) -> Self {
        Self {
            file: text.location.file.clone(),
            line_offset: text.location.line.saturating_sub(1),
            has_columns: false,
        }
    }

    /// The location of a line and column, both counted from 1.
    pub(crate) fn location_at(&self, line: u32, column: u32) -> Location {
        Location {
            file: self.file.clone(),
            line: self.line_offset.saturating_add(line),
            column: if self.has_columns { column } else { 0 },
        }
    }

    pub(crate) fn location_of(&self, node: &Node) -> Location {
        self.location_at(node.line, node.column)
    }

    fn text(&self, node: &Node, value: &str) -> Text {
        Text {
            value: Arc::from(value),
            location: self.location_at(node.text_line, 0),
        }
    }
}

/// The path of `key` in the mapping at `path`, which is empty at the top.
pub(crate) fn joined(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

/// A value of an object with its path; outside of this module, always a mapping.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) node: &'a Node,
    source: &'a SourceMap,
    findings: &'a Findings,
    path: String,
}

impl<'a> Fields<'a> {
    /// Opens a mapping; any other value is a finding.
    pub(crate) fn open(node: &'a Node, source: &'a SourceMap, findings: &'a Findings) -> Option<Self> {
        let whole = Self {
            node,
            source,
            findings,
            path: String::new(),
        };
        whole.mapping()
    }

    /// The same mapping, with its findings elsewhere.
    pub(crate) fn collecting<'b>(&self, findings: &'b Findings) -> Fields<'b>
    where
        'a: 'b,
    {
        Fields {
            findings,
            ..self.clone()
        }
    }

    pub(crate) fn report(&self, finding: Diagnostic) {
        self.findings.borrow_mut().push(finding);
    }

    pub(crate) fn error(&self, message: impl Into<String>) {
        self.report(Diagnostic::error(self.location(), message));
    }

    pub(crate) fn error_with_hint(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.report(Diagnostic::error(self.location(), message).with_hint(hint));
    }

    /// How many errors were reported so far, about this mapping and others.
    pub(crate) fn error_count(&self) -> usize {
        let findings = self.findings.borrow();
        findings.iter().filter(|finding| finding.is_error()).count()
    }

    pub(crate) fn location(&self) -> Location {
        self.source.location_of(self.node)
    }

    /// The path of a key, as findings name it.
    pub(crate) fn path_of(&self, key: &str) -> String {
        joined(&self.path, key)
    }

    pub(crate) fn entries(&self) -> &'a [Entry] {
        self.node.entries().unwrap_or_default()
    }

    /// A key's value, unless it is absent or null.
    pub(crate) fn node(&self, key: &str) -> Option<&'a Rc<Node>> {
        self.node.get(key)
    }

    pub(crate) fn key_location(&self, entry: &Entry) -> Location {
        self.source.location_at(entry.line, entry.column)
    }

    pub(crate) fn reject_unknown_keys(&self, known: &[&str]) {
        for entry in self.entries().iter().filter(|entry| !known.contains(&&*entry.key)) {
            let message = format!("`{}` is not known", self.path_of(&entry.key));
            let hint = format!("known are `{}`", known.join("`, `"));
            self.report(Diagnostic::error(self.key_location(entry), message).with_hint(hint));
        }
    }

    /// A mapping under `key`; absent and null are `None` without a finding.
    pub(crate) fn child(&self, key: &str) -> Option<Self> {
        self.value(key)?.mapping()
    }

    /// A text under `key`; absent and null are `None` without a finding.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        Some(self.value(key)?.as_text()?.value.as_ref().to_owned())
    }

    pub(crate) fn text_or_empty(&self, key: &str) -> String {
        self.text(key).unwrap_or_default()
    }

    pub(crate) fn required(&self, key: &str) -> Option<String> {
        let text = match self.value(key) {
            Some(value) => value.as_text()?.value.as_ref().to_owned(),
            None => String::new(),
        };
        if text.is_empty() {
            self.error(format!("`{}` is missing", self.path_of(key)));
            return None;
        }
        Some(text)
    }

    pub(crate) fn children(&self, key: &str) -> Vec<Self> {
        self.items(key).into_iter().filter_map(Self::mapping).collect()
    }

    pub(crate) fn texts(&self, key: &str) -> Vec<Text> {
        self.items(key).iter().filter_map(Self::as_text).collect()
    }

    /// A mapping of texts under `key`; null values become empty texts.
    pub(crate) fn text_map(&self, key: &str) -> BTreeMap<String, Text> {
        let Some(map) = self.child(key) else {
            return BTreeMap::new();
        };
        let read = |entry: &'a Entry| {
            let text = map.inside(&entry.value, map.path_of(&entry.key)).as_text()?;
            Some((entry.key.as_ref().to_owned(), text))
        };
        map.entries().iter().filter_map(read).collect()
    }

    /// A boolean under `key`; absent is `false`.
    pub(crate) fn boolean(&self, key: &str) -> bool {
        let Some(value) = self.value(key) else { return false };
        if let Some(ScalarType::Boolean(value)) = value.node.scalar().map(Scalar::scalar_type) {
            return value;
        }
        value.must_be("true or false");
        false
    }

    /// A whole number under `key`; absent is 0.
    pub(crate) fn integer(&self, key: &str) -> i64 {
        self.value(key).and_then(|value| value.as_integer()).unwrap_or_default()
    }

    pub(crate) fn positive_integer(&self, key: &str) -> Option<i64> {
        let path = self.path_of(key);
        let message = match self.value(key) {
            None => format!("`{path}` is missing"),
            Some(value) => match value.as_integer()? {
                number @ 1.. => return Some(number),
                number => format!("`{path}` is `{number}`, at least 1 is allowed"),
            },
        };
        self.error(message);
        None
    }

    fn inside(&self, node: &'a Node, path: String) -> Self {
        Self {
            node,
            path,
            source: self.source,
            findings: self.findings,
        }
    }

    fn value(&self, key: &str) -> Option<Self> {
        Some(self.inside(self.node.get(key)?, self.path_of(key)))
    }

    fn mapping(self) -> Option<Self> {
        if self.node.entries().is_none() {
            self.must_be("a mapping");
            return None;
        }
        Some(self)
    }

    fn items(&self, key: &str) -> Vec<Self> {
        let Some(list) = self.value(key) else { return Vec::new() };
        let Some(items) = list.node.items() else {
            list.must_be("a list");
            return Vec::new();
        };
        let item = |(index, item): (usize, &'a Rc<Node>)| list.inside(item, format!("{}[{index}]", list.path));
        items.iter().enumerate().map(item).collect()
    }

    fn as_integer(&self) -> Option<i64> {
        let scalar = self.node.scalar();
        let number = scalar.filter(|scalar| scalar.scalar_type() == ScalarType::Number);
        let number = number.and_then(|scalar| scalar.text.parse().ok());
        if number.is_none() {
            self.must_be("a whole number");
        }
        number
    }

    /// Reads a text as the Kubernetes API server does: numbers and booleans are refused, null is
    /// the empty text.
    fn as_text(&self) -> Option<Text> {
        let Some(scalar) = self.node.scalar() else {
            self.must_be("text");
            return None;
        };
        let found = match scalar.scalar_type() {
            ScalarType::Null => return Some(self.source.text(self.node, "")),
            ScalarType::Text if scalar.is_yaml_1_1_boolean() => "what Kubernetes reads as a boolean",
            ScalarType::Text => return Some(self.source.text(self.node, &scalar.text)),
            ScalarType::Boolean(_) | ScalarType::Number => self.node.kind(),
        };
        let message = format!("`{}` must be text, found {found}", self.path);
        self.error_with_hint(message, "write it in quotes");
        None
    }

    fn must_be(&self, wanted: &str) {
        let what = match self.path.as_str() {
            "" => "an object".to_owned(),
            path => format!("`{path}`"),
        };
        self.error(format!("{what} must be {wanted}, found {}", self.node.kind()));
    }
}
