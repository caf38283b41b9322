//! Changes one object in a YAML text and leaves every other byte as it is. Unknown layouts, and
//! values that are written elsewhere, are refused.
//!
//! Invariant: the new text is read again and compared. The object is as wanted, and every other
//! document is as it was.

use std::ops::Range;

use serde_json::{Map, Value};

use super::documents;
use super::syntax::{self, CollectionStyle, NodeProperty, Pair, SyntaxKind, SyntaxNode};
use super::value::{Quotes, YamlEmitter};

mod diff;
mod flow;
mod lines;

use diff::diff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectPosition {
    /// Number of its document, from 0, not counting empty ones.
    pub(super) document: usize,
    /// Number of its item, from 0, if the document is a list.
    pub(super) item: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub(super) struct EditError {
    pub(super) line: usize,
    pub(super) why: &'static str,
}

const ALIAS: &str = "the value is an alias of another one";
const ANCHOR: &str = "the value has an anchor, and a change would reach wherever it is repeated";
const TAG: &str = "the value has a tag";
const MERGED: &str = "the value comes from a merge key (`<<`)";
const LAYOUT: &str = "the value is laid out in a way that is not edited without touching others";

const NOT_READ: EditError = EditError {
    line: 1,
    why: "the text cannot be taken apart",
};

/// The text with the object changed to `wanted` and everything else unchanged. After an error, the
/// text has to be changed by hand.
pub(super) fn replace(text: &str, position: ObjectPosition, wanted: &Value) -> Result<String, EditError> {
    let (mut values, nodes) = read(text)?;
    let root = nodes.get(position.document).ok_or(NOT_READ)?;
    let object = match position.item {
        None => root,
        Some(item) => item_of(root, item).ok_or(NOT_READ)?,
    };
    // With `wanted` in its place, `values` is what the new text must be read as.
    let slot = at_mut(&mut values, position).ok_or(NOT_READ)?;
    let old = std::mem::replace(slot, wanted.clone());
    edited(text, object, &old, wanted, &values, object.line)
}

/// The text without the object: a list's item, or one of several documents. If the object is the
/// last one, the result is empty, and the caller deletes the file.
pub(super) fn remove(text: &str, position: ObjectPosition) -> Result<String, EditError> {
    let (mut values, nodes) = read(text)?;
    let root = nodes.get(position.document).ok_or(NOT_READ)?;
    // An alias elsewhere in the document may repeat an anchor of what is removed.
    if let Some(node) = root.first_with_property() {
        return Err(refused(node));
    }
    let Some(item) = position.item else {
        let rest = lines::without_document(text, &nodes, position.document).ok_or(refused(root))?;
        // A document can also end at `...`, where the lines of the next one are not told apart.
        if position.document < values.len() {
            values.remove(position.document);
        }
        let is_right = documents(&rest).is_ok_and(|left| left == values);
        return if is_right { Ok(rest) } else { Err(refused(root)) };
    };
    let slot = values.get_mut(position.document).ok_or(NOT_READ)?;
    let old = slot.clone();
    let items = slot.get_mut("items").and_then(Value::as_array_mut);
    let items = items.filter(|items| item < items.len()).ok_or(NOT_READ)?;
    items.remove(item);
    let new = slot.clone();
    let line = items_of(root).map_or(root.line, |list| list.line);
    edited(text, root, &old, &new, &values, line)
}

fn read(text: &str) -> Result<(Vec<Value>, Vec<SyntaxNode>), EditError> {
    let values = documents(text).map_err(|_| NOT_READ)?;
    let nodes = syntax::documents(text).ok_or(NOT_READ)?;
    Ok((values, nodes))
}

/// The text with `node` changed from `old` to `new`, if that gives the documents `expected`.
fn edited(
    text: &str,
    node: &SyntaxNode,
    old: &Value,
    new: &Value,
    expected: &[Value],
    line: usize,
) -> Result<String, EditError> {
    let mut editor = Editor::new(text);
    editor.value(node, old, new, None)?;
    let changed = editor.finish();
    if documents(&changed).as_deref() == Ok(expected) {
        return Ok(changed);
    }
    Err(EditError { line, why: LAYOUT })
}

fn items_of(root: &SyntaxNode) -> Option<&SyntaxNode> {
    let mut pairs = root.pairs().iter();
    let pair = pairs.find(|pair| pair.key.text() == Some("items"))?;
    Some(&pair.value)
}

fn item_of(root: &SyntaxNode, item: usize) -> Option<&SyntaxNode> {
    match &items_of(root)?.kind {
        SyntaxKind::Sequence(_, items) => items.get(item),
        SyntaxKind::Mapping(..) | SyntaxKind::Scalar { .. } => None,
    }
}

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

/// The key of a value and the style of its mapping; `None` for a whole object.
type Parent<'a> = Option<(&'a SyntaxNode, CollectionStyle)>;

struct Editor<'a> {
    text: &'a str,
    line_break: &'static str,
    splices: Vec<(Range<usize>, String)>,
}

impl Editor<'_> {
    fn splice(&mut self, range: Range<usize>, replacement: impl Into<String>) {
        self.splices.push((range, replacement.into()));
    }

    fn value(&mut self, syntax: &SyntaxNode, old: &Value, new: &Value, parent: Parent<'_>) -> Result<(), EditError> {
        if old == new {
            return Ok(());
        }
        if syntax.property != NodeProperty::None {
            return Err(refused(syntax));
        }
        match (&syntax.kind, old, new) {
            (SyntaxKind::Mapping(style, pairs), Value::Object(old), Value::Object(new)) => {
                self.mapping(syntax, *style, pairs, old, new)
            }
            (SyntaxKind::Sequence(CollectionStyle::Block, items), Value::Array(old), Value::Array(new)) => {
                self.block_list(syntax, items, old, new, parent)
            }
            (SyntaxKind::Sequence(CollectionStyle::Flow, items), Value::Array(old), Value::Array(new))
                if !(items.is_empty() && matches!(parent, Some((_, CollectionStyle::Block)))) =>
            {
                self.flow_list(syntax, items, old, new)
            }
            (_, _, _) => self.rewrite_value(syntax, new, parent),
        }
    }

    /// Writes a value of another kind, or a scalar.
    fn rewrite_value(&mut self, syntax: &SyntaxNode, new: &Value, parent: Parent<'_>) -> Result<(), EditError> {
        if let Some(node) = syntax.first_with_property() {
            return Err(refused(node));
        }
        // A whole object is not written anew, because its comments would be lost.
        let (key, style) = parent.ok_or(refused(syntax))?;
        let is_inline = match new {
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        };
        let emitter = self.emitter(key, &[], 2);
        let colon = self.behind_colon(key).ok_or(refused(key))?;
        let old = colon..syntax.range.end.max(colon);
        let own_line = self.is_one_line(&old);
        if !own_line && (style == CollectionStyle::Flow || !is_inline) {
            return Err(refused(syntax));
        }
        if is_inline || style == CollectionStyle::Flow {
            let mut replacement = format!(" {}", emitter.inline(new));
            // A block scalar's last line break belongs to the line, not to the value.
            if self.text.get(old.clone()).is_some_and(|text| text.ends_with('\n')) {
                replacement.push_str(emitter.line_break);
            }
            self.splice(old, replacement);
            return Ok(());
        }
        let indent = self.indent(key).ok_or(refused(key))?;
        let end = self.after(old.end);
        let mut below = String::new();
        emitter.put_behind_colon(&mut below, new, indent);
        let below = below.strip_prefix(emitter.line_break).unwrap_or(&below).to_owned();
        self.splice(old, "");
        self.insert_lines(end, below);
        Ok(())
    }

    fn mapping(
        &mut self,
        syntax: &SyntaxNode,
        style: CollectionStyle,
        pairs: &[Pair],
        old: &Map<String, Value>,
        new: &Map<String, Value>,
    ) -> Result<(), EditError> {
        for (key, before) in old {
            let after = new.get(key);
            if after == Some(before) {
                continue;
            }
            let mut named = pairs.iter().enumerate();
            let Some((at, pair)) = named.find(|(_, pair)| pair.key.text() == Some(key)) else {
                let line = syntax.line;
                return Err(EditError { line, why: MERGED });
            };
            match after {
                Some(after) => self.value(&pair.value, before, after, Some((&pair.key, style)))?,
                None => self.drop_pair(syntax, style, pairs, at, pair)?,
            }
        }
        let added = new.iter().filter(|(key, _)| !old.contains_key(*key));
        let added: Map<String, Value> = added.map(|(key, value)| (key.clone(), value.clone())).collect();
        if added.is_empty() {
            return Ok(());
        }
        if style == CollectionStyle::Flow {
            self.flow_members(syntax, pairs, added);
            return Ok(());
        }
        let (first, last) = pairs.first().zip(pairs.last()).ok_or(refused(syntax))?;
        let indent = self.indent(&first.key).ok_or(refused(&first.key))?;
        let step = pairs.iter().find_map(|pair| self.list_step(pair)).unwrap_or(2);
        let mut lines = String::new();
        let emitter = self.emitter(&first.key, &[], step);
        emitter.put_members(&mut lines, &added, indent, indent);
        self.insert_lines(self.after(last.value.range.end), lines);
        Ok(())
    }

    fn drop_pair(
        &mut self,
        syntax: &SyntaxNode,
        style: CollectionStyle,
        pairs: &[Pair],
        at: usize,
        pair: &Pair,
    ) -> Result<(), EditError> {
        if let Some(node) = pair.value.first_with_property() {
            return Err(refused(node));
        }
        if style == CollectionStyle::Flow {
            let ranges: Vec<_> = pairs.iter().map(Pair::range).collect();
            return self.flow_drop(syntax, &ranges, at..at.saturating_add(1));
        }
        // A block mapping without pairs would be read as null.
        let is_alone = pairs.len() == 1 || self.indent(&pair.key).is_none();
        let start = self.start(pair.key.range.start);
        let start = start.filter(|_| !is_alone).ok_or(refused(&pair.key))?;
        self.splice(start..self.after(pair.range().end), "");
        Ok(())
    }

    fn block_list(
        &mut self,
        syntax: &SyntaxNode,
        items: &[SyntaxNode],
        old: &[Value],
        new: &[Value],
        parent: Parent<'_>,
    ) -> Result<(), EditError> {
        let (key, _) = parent.ok_or(refused(syntax))?;
        let dashes = self.dashes(key, items).ok_or(refused(syntax))?;
        // A key with nothing below it would be read as null.
        if new.is_empty() {
            let at = self.behind_colon(key).ok_or(refused(key))?;
            self.splice(at..at, " []");
        }
        let dash = *dashes.first().ok_or(refused(syntax))?;
        let first = self.start(dash).ok_or(refused(syntax))?;
        let indent = dash.saturating_sub(first);
        let order = items.last().map(keys).unwrap_or_default();
        for hunk in diff(old, new) {
            for at in hunk.old_range() {
                let (item, dash) = items.get(at).zip(dashes.get(at)).ok_or(refused(syntax))?;
                if let Some(node) = item.first_with_property() {
                    return Err(refused(node));
                }
                let start = self.start(*dash).ok_or(refused(item))?;
                self.splice(start..self.after(item.range.end), "");
            }
            let inserted = new.get(hunk.new_range()).unwrap_or_default();
            if inserted.is_empty() {
                continue;
            }
            let emitter = self.emitter(key, &order, 2);
            let mut lines = String::new();
            for item in inserted {
                emitter.put_item(&mut lines, item, indent, indent);
            }
            let start = hunk.old_range().start;
            let before = start.checked_sub(1).and_then(|before| items.get(before));
            let at = before.map_or(first, |before| self.after(before.range.end));
            self.insert_lines(at, lines);
        }
        Ok(())
    }

    /// Inserts whole lines at the start of a line, or after a last line without a line break.
    fn insert_lines(&mut self, at: usize, mut lines: String) {
        if at == self.text.len() && !self.text.is_empty() && !self.text.ends_with('\n') {
            let line_break = self.line_break;
            lines = format!("{line_break}{}", lines.strip_suffix(line_break).unwrap_or(&lines));
        }
        self.splice(at..at, lines);
    }

    /// How many columns a list is indented from its key.
    fn list_step(&self, pair: &Pair) -> Option<usize> {
        let SyntaxKind::Sequence(CollectionStyle::Block, items) = &pair.value.kind else {
            return None;
        };
        let dash = *self.dashes(&pair.key, items)?.first()?;
        let column = dash.checked_sub(self.start(dash)?)?;
        column.checked_sub(self.indent(&pair.key)?)
    }

    fn emitter<'b>(&self, beside: &SyntaxNode, order: &'b [&'b str], list_step: usize) -> YamlEmitter<'b> {
        let is_json = matches!(&beside.kind, SyntaxKind::Scalar { is_quoted: true, .. })
            && self.text.as_bytes().get(beside.range.start) == Some(&b'"');
        YamlEmitter {
            line_break: self.line_break,
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
        splices.sort_by_key(|(range, _)| (range.start, range.end));
        let mut text = String::with_capacity(self.text.len().saturating_add(256));
        let mut at = 0;
        for (range, replacement) in splices {
            text.push_str(self.text.get(at..range.start).unwrap_or_default());
            text.push_str(&replacement);
            at = at.max(range.end);
        }
        text.push_str(self.text.get(at..).unwrap_or_default());
        text
    }
}

fn keys(syntax: &SyntaxNode) -> Vec<&str> {
    syntax.pairs().iter().filter_map(|pair| pair.key.text()).collect()
}

#[cfg(test)]
mod tests;
