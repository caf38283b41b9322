//! Changes one object in a YAML text and leaves every other byte as it is. Unknown layouts, and
//! values that are written elsewhere, are refused.
//!
//! Invariant: the new text is read again and compared. The object is as wanted, and every other
//! document is as it was.

use std::ops::Range;

use serde_json::{Map, Value};

use super::syntax::{self, CollectionStyle, NodeProperty, Pair, SyntaxKind, SyntaxNode};
use super::value::{self, Quotes, YamlEmitter};
use tollgate_core::yaml;

mod diff;
mod flow;
mod lines;

use diff::{Hunk, diff};
use lines::Lines;

/// The position of an object in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectPosition {
    /// Number of its document, from 0, not counting empty ones.
    pub(super) document: usize,
    /// Number of its item, from 0, if the document is a list.
    pub(super) item: Option<usize>,
}

/// Why a text cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub(super) struct EditError {
    /// Line, from 1.
    pub(super) line: usize,
    /// What stands in the way.
    pub(super) why: &'static str,
}

const MISREAD: &str = "the text cannot be taken apart";
const ALIAS: &str = "the value is an alias of another one";
const ANCHOR: &str = "the value has an anchor, and a change would reach wherever it is repeated";
const TAG: &str = "the value has a tag";
const MERGED: &str = "the value comes from a merge key (`<<`)";
const LAYOUT: &str = "the value is laid out in a way that is not edited without touching others";

/// A range of bytes and its replacement.
#[derive(Debug)]
struct Splice {
    range: Range<usize>,
    replacement: String,
}

/// The text with the object changed to `wanted` and everything else unchanged.
///
/// # Errors
/// [`EditError`]; the text has to be changed by hand.
pub(super) fn replace(text: &str, position: ObjectPosition, wanted: &Value) -> Result<String, EditError> {
    let misread = || EditError { line: 1, why: MISREAD };
    let before = parse_documents(text).ok_or_else(misread)?;
    let documents = syntax::documents(text).ok_or_else(misread)?;
    let root = documents.get(position.document).ok_or_else(misread)?;
    let (object, old) = match position.item {
        None => Some(root).zip(before.get(position.document)),
        Some(item) => item_of(root, item).zip(at(&before, position)),
    }
    .ok_or_else(misread)?;
    let mut editor = Editor {
        text,
        lines: Lines::of(text),
        splices: Vec::new(),
    };
    editor.value(object, (old, wanted), &Parent::Root)?;
    let changed = editor.finish();
    let mut expected = before;
    let slot = at_mut(&mut expected, position).ok_or_else(misread)?;
    slot.clone_from(wanted);
    if parse_documents(&changed).as_ref() == Some(&expected) {
        return Ok(changed);
    }
    Err(EditError {
        line: object.line,
        why: LAYOUT,
    })
}

/// The text without the object.
///
/// Removes a list's item or one of several documents. If the object is the last one, the result is
/// empty, and the caller deletes the file.
///
/// # Errors
/// As [`replace`].
pub(super) fn remove(text: &str, position: ObjectPosition) -> Result<String, EditError> {
    let misread = || EditError { line: 1, why: MISREAD };
    let mut expected = parse_documents(text).ok_or_else(misread)?;
    let documents = syntax::documents(text).ok_or_else(misread)?;
    let root = documents.get(position.document).ok_or_else(misread)?;
    if let Some(node) = root.first_with_property() {
        return Err(refused(node));
    }
    let Some(item) = position.item else {
        return lines::without_document(text, &documents, position.document).ok_or(EditError {
            line: root.line,
            why: LAYOUT,
        });
    };
    let list = items_of(root).ok_or_else(misread)?;
    let old = expected
        .get_mut(position.document)
        .and_then(|root| root.get_mut("items"))
        .and_then(Value::as_array_mut)
        .filter(|items| item < items.len())
        .ok_or_else(misread)?;
    let before = Value::Array(old.clone());
    old.remove(item);
    let after = Value::Array(old.clone());
    let mut editor = Editor {
        text,
        lines: Lines::of(text),
        splices: Vec::new(),
    };
    let pair = pair_of(root, "items").ok_or_else(misread)?;
    editor.value(list, (&before, &after), &Parent::Key(&pair.key, CollectionStyle::Block))?;
    let changed = editor.finish();
    if parse_documents(&changed).as_ref() == Some(&expected) {
        return Ok(changed);
    }
    Err(EditError {
        line: list.line,
        why: LAYOUT,
    })
}

/// Each document of a text as JSON; `None` if the text has a mistake.
fn parse_documents(text: &str) -> Option<Vec<Value>> {
    let parsed = yaml::parse(text);
    let documents = parsed.documents.iter().map(|document| value::json(document));
    parsed.problems.is_empty().then(|| documents.collect())
}

fn pair_of<'a>(mapping: &'a SyntaxNode, key: &str) -> Option<&'a Pair> {
    match &mapping.kind {
        SyntaxKind::Mapping(_, pairs) => pairs.iter().find(|pair| pair.key.text() == Some(key)),
        SyntaxKind::Sequence(..) | SyntaxKind::Scalar { .. } => None,
    }
}

fn items_of(root: &SyntaxNode) -> Option<&SyntaxNode> {
    pair_of(root, "items").map(|pair| &pair.value)
}

fn item_of(root: &SyntaxNode, item: usize) -> Option<&SyntaxNode> {
    match &items_of(root)?.kind {
        SyntaxKind::Sequence(_, items) => items.get(item),
        SyntaxKind::Mapping(..) | SyntaxKind::Scalar { .. } => None,
    }
}

/// The object at `position`.
pub(super) fn at(documents: &[Value], position: ObjectPosition) -> Option<&Value> {
    let root = documents.get(position.document)?;
    match position.item {
        None => Some(root),
        Some(item) => root.get("items")?.get(item),
    }
}

fn at_mut(documents: &mut [Value], position: ObjectPosition) -> Option<&mut Value> {
    let root = documents.get_mut(position.document)?;
    match position.item {
        None => Some(root),
        Some(item) => root.get_mut("items")?.get_mut(item),
    }
}

fn refused(value: &SyntaxNode) -> EditError {
    let why = match value.property {
        NodeProperty::Alias => ALIAS,
        NodeProperty::Anchor => ANCHOR,
        NodeProperty::Tag => TAG,
        NodeProperty::None => LAYOUT,
    };
    EditError { line: value.line, why }
}

/// The parent of a value.
enum Parent<'a> {
    /// No parent: it is a whole object.
    Root,
    /// A key of a mapping with this style.
    Key(&'a SyntaxNode, CollectionStyle),
}

struct Editor<'a> {
    text: &'a str,
    lines: Lines<'a>,
    splices: Vec<Splice>,
}

impl Editor<'_> {
    /// Edits a value that means `old` so that it means `new`.
    fn value(
        &mut self,
        syntax: &SyntaxNode,
        (old, new): (&Value, &Value),
        parent: &Parent<'_>,
    ) -> Result<(), EditError> {
        if old == new {
            return Ok(());
        }
        if syntax.property != NodeProperty::None {
            return Err(refused(syntax));
        }
        match (&syntax.kind, old, new) {
            (SyntaxKind::Mapping(style, pairs), Value::Object(old), Value::Object(new)) => {
                self.mapping((syntax, *style, pairs), old, new)
            }
            (SyntaxKind::Sequence(CollectionStyle::Block, items), Value::Array(old), Value::Array(new)) => {
                self.block_list((syntax, items), (old, new), parent)
            }
            (SyntaxKind::Sequence(CollectionStyle::Flow, items), Value::Array(old), Value::Array(new))
                if !(items.is_empty() && matches!(parent, Parent::Key(_, CollectionStyle::Block))) =>
            {
                self.flow_list((syntax, items), (old, new))
            }
            (_, _, _) => self.rewrite_value(syntax, new, parent),
        }
    }

    /// Writes a value of another kind, or a scalar.
    fn rewrite_value(&mut self, syntax: &SyntaxNode, new: &Value, parent: &Parent<'_>) -> Result<(), EditError> {
        if let Some(node) = syntax.first_with_property() {
            return Err(refused(node));
        }
        let Parent::Key(key, style) = parent else {
            return Err(refused(syntax));
        };
        let is_inline = match new {
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        };
        let emitter = self.emitter(key, &[], 2);
        let colon = self.lines.behind_colon(key).ok_or_else(|| refused(key))?;
        let old = colon..syntax.range.end.max(colon);
        let own_line = self.lines.is_one_line(&old);
        if !own_line && (*style == CollectionStyle::Flow || !is_inline) {
            return Err(refused(syntax));
        }
        if is_inline || *style == CollectionStyle::Flow {
            let replacement = format!(" {}", emitter.inline(new));
            // A block scalar's last line break belongs to the line, not to the value.
            let replacement = if self.text.get(old.clone()).is_some_and(|text| text.ends_with('\n')) {
                replacement + emitter.line_break
            } else {
                replacement
            };
            self.splices.push(Splice {
                range: old,
                replacement,
            });
            return Ok(());
        }
        let indent = self.lines.indent(key).ok_or_else(|| refused(key))?;
        let end = self.lines.after(old.end);
        let below = emitter.behind_colon(new, &indent);
        let below = below.strip_prefix(emitter.line_break).unwrap_or(&below).to_owned();
        self.splices.push(Splice {
            range: old,
            replacement: String::new(),
        });
        self.insert_lines(end, below);
        Ok(())
    }

    fn mapping(
        &mut self,
        (syntax, style, pairs): (&SyntaxNode, CollectionStyle, &[Pair]),
        old: &Map<String, Value>,
        new: &Map<String, Value>,
    ) -> Result<(), EditError> {
        for (key, before) in old {
            let after = new.get(key);
            if after == Some(before) {
                continue;
            }
            let at = pairs.iter().position(|pair| pair.key.text() == Some(key));
            let Some((at, pair)) = at.and_then(|at| Some((at, pairs.get(at)?))) else {
                return Err(EditError {
                    line: syntax.line,
                    why: MERGED,
                });
            };
            match after {
                Some(after) => self.value(&pair.value, (before, after), &Parent::Key(&pair.key, style))?,
                None => self.drop_pair((syntax, style, pairs), at)?,
            }
        }
        let added: Map<String, Value> = new
            .iter()
            .filter(|(key, _)| !old.contains_key(*key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if added.is_empty() {
            return Ok(());
        }
        match style {
            CollectionStyle::Flow => {
                self.flow_members((syntax, pairs), &added);
                Ok(())
            }
            CollectionStyle::Block => {
                let last = pairs.last().ok_or_else(|| refused(syntax))?;
                let first = pairs.first().ok_or_else(|| refused(syntax))?;
                let indent = self.lines.indent(&first.key).ok_or_else(|| refused(&first.key))?;
                let step = pairs.iter().find_map(|pair| self.list_step(pair)).unwrap_or(2);
                let lines = self.emitter(&first.key, &[], step).members(&added, &indent);
                let at = self.lines.after(last.value.range.end);
                self.insert_lines(at, lines);
                Ok(())
            }
        }
    }

    fn drop_pair(
        &mut self,
        (syntax, style, pairs): (&SyntaxNode, CollectionStyle, &[Pair]),
        at: usize,
    ) -> Result<(), EditError> {
        let pair = pairs.get(at).ok_or_else(|| refused(syntax))?;
        if let Some(node) = pair.value.first_with_property() {
            return Err(refused(node));
        }
        if style == CollectionStyle::Flow {
            let ranges: Vec<_> = pairs
                .iter()
                .map(|pair| pair.key.range.start..pair.value.range.end.max(pair.key.range.end))
                .collect();
            return self.flow_drop(syntax, &ranges, at..at.saturating_add(1));
        }
        let start = self.lines.start(pair.key.range.start);
        let is_alone = pairs.len() == 1 || self.lines.indent(&pair.key).is_none();
        let start = start.filter(|_| !is_alone).ok_or_else(|| refused(&pair.key))?;
        let end = self.lines.after(pair.value.range.end.max(pair.key.range.end));
        self.splices.push(Splice {
            range: start..end,
            replacement: String::new(),
        });
        Ok(())
    }

    /// Removes and inserts items; those before and after them stay.
    fn block_list(
        &mut self,
        (syntax, items): (&SyntaxNode, &[SyntaxNode]),
        (old, new): (&[Value], &[Value]),
        parent: &Parent<'_>,
    ) -> Result<(), EditError> {
        let Parent::Key(key, _) = parent else {
            return Err(refused(syntax));
        };
        let dashes = self.lines.dashes(key, items).ok_or_else(|| refused(syntax))?;
        if new.is_empty() {
            let at = self.lines.behind_colon(key).ok_or_else(|| refused(key))?;
            let replacement = " []".to_owned();
            self.splices.push(Splice {
                range: at..at,
                replacement,
            });
        }
        let first = dashes.first().and_then(|dash| self.lines.start(*dash).zip(Some(*dash)));
        let (first, dash) = first.ok_or_else(|| refused(syntax))?;
        let indent = self.text.get(first..dash).unwrap_or_default();
        let order = items.last().map(keys).unwrap_or_default();
        for hunk in diff(old, new) {
            for at in hunk.removed.clone() {
                let (item, dash) = items.get(at).zip(dashes.get(at)).ok_or_else(|| refused(syntax))?;
                self.drop_item(item, *dash)?;
            }
            let inserted = new.get(hunk.inserted).unwrap_or_default();
            if inserted.is_empty() {
                continue;
            }
            let emitter = self.emitter(key, &order, 2);
            let lines: String = inserted.iter().map(|item| emitter.item(item, indent)).collect();
            let before = hunk.removed.start.checked_sub(1).and_then(|before| items.get(before));
            let at = before.map_or(first, |before| self.lines.after(before.range.end));
            self.insert_lines(at, lines);
        }
        Ok(())
    }

    fn drop_item(&mut self, item: &SyntaxNode, dash: usize) -> Result<(), EditError> {
        if let Some(node) = item.first_with_property() {
            return Err(refused(node));
        }
        let start = self.lines.start(dash).ok_or_else(|| refused(item))?;
        let end = self.lines.after(item.range.end);
        self.splices.push(Splice {
            range: start..end,
            replacement: String::new(),
        });
        Ok(())
    }

    /// Inserts whole lines at the start of a line, or after a last line without a line break.
    fn insert_lines(&mut self, at: usize, lines: String) {
        let is_unended = at == self.text.len() && !self.text.is_empty() && !self.text.ends_with('\n');
        let replacement = if is_unended {
            let line_break = self.lines.line_break();
            format!("{line_break}{}", lines.strip_suffix(line_break).unwrap_or(&lines))
        } else {
            lines
        };
        self.splices.push(Splice {
            range: at..at,
            replacement,
        });
    }

    /// How many columns a list is indented from its key.
    fn list_step(&self, pair: &Pair) -> Option<usize> {
        let SyntaxKind::Sequence(CollectionStyle::Block, items) = &pair.value.kind else {
            return None;
        };
        let dash = *self.lines.dashes(&pair.key, items)?.first()?;
        let column = dash.checked_sub(self.lines.start(dash)?)?;
        let key = self.lines.indent(&pair.key)?.len();
        column.checked_sub(key)
    }

    fn emitter<'b>(&self, beside: &SyntaxNode, order: &'b [String], list_step: usize) -> YamlEmitter<'b>
    where
        Self: 'b,
    {
        let is_json = matches!(&beside.kind, SyntaxKind::Scalar { is_quoted: true, .. })
            && self.text.as_bytes().get(beside.range.start) == Some(&b'"');
        YamlEmitter {
            line_break: self.lines.line_break(),
            list_step,
            order,
            quotes: if is_json { Quotes::Always } else { Quotes::WhereNeeded },
            texts: None,
        }
    }

    fn finish(self) -> String {
        let mut splices = self.splices;
        // The sort is stable: insertions at one offset stay in the order they were written, and
        // before removals there.
        splices.sort_by_key(|splice| (splice.range.start, splice.range.end));
        let mut text = String::with_capacity(self.text.len().saturating_add(256));
        let mut at = 0;
        for splice in splices {
            text.push_str(self.text.get(at..splice.range.start).unwrap_or_default());
            text.push_str(&splice.replacement);
            at = at.max(splice.range.end);
        }
        text.push_str(self.text.get(at..).unwrap_or_default());
        text
    }
}

/// The keys of a mapping, in the order they are written.
fn keys(syntax: &SyntaxNode) -> Vec<String> {
    match &syntax.kind {
        SyntaxKind::Mapping(_, pairs) => pairs
            .iter()
            .filter_map(|pair| pair.key.text().map(str::to_owned))
            .collect(),
        SyntaxKind::Sequence(..) | SyntaxKind::Scalar { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
