//! Edits lists and mappings in brackets, as in JSON. Comments between a value and its comma are
//! refused.

use std::ops::Range;

use serde_json::{Map, Value};

use super::{EditError, Editor, LAYOUT, diff, keys, refused};
use crate::write::syntax::{Pair, SyntaxKind, SyntaxNode};
use crate::write::value::Quotes;

impl Editor<'_> {
    pub(super) fn flow_list(
        &mut self,
        syntax: &SyntaxNode,
        items: &[SyntaxNode],
        old: &[Value],
        new: &[Value],
    ) -> Result<(), EditError> {
        let ranges: Vec<_> = items.iter().map(|item| item.range.clone()).collect();
        let order = items.last().map(keys).unwrap_or_default();
        let beside = items.last().and_then(first_text).unwrap_or(syntax);
        let mut emitter = self.emitter(beside, &order, 2);
        if items.is_empty() {
            emitter.quotes = self.quotes_of_text();
        }
        for hunk in diff(old, new) {
            let removed = hunk.old_range();
            let nodes = items.get(removed.clone()).unwrap_or_default().iter();
            if let Some(node) = nodes.filter_map(SyntaxNode::first_with_property).next() {
                return Err(refused(node));
            }
            let inserted = new.get(hunk.new_range()).unwrap_or_default();
            let texts: Vec<String> = inserted.iter().map(|item| emitter.inline(item)).collect();
            // Replaces as many in place as possible, then removes or inserts the rest.
            let middle = removed.start.saturating_add(removed.len().min(texts.len()));
            let in_place = ranges.get(removed.start..middle).unwrap_or_default();
            for (range, text) in in_place.iter().zip(&texts) {
                self.splice(range.clone(), text.as_str());
            }
            let more = texts.get(in_place.len()..).unwrap_or_default();
            if !more.is_empty() {
                self.flow_insert(syntax, &ranges, middle, more);
            }
            self.flow_drop(syntax, &ranges, middle..removed.end.max(middle))?;
        }
        Ok(())
    }

    pub(super) fn flow_members(&mut self, syntax: &SyntaxNode, pairs: &[Pair], added: Map<String, Value>) {
        let ranges: Vec<_> = pairs.iter().map(Pair::range).collect();
        let mut emitter = self.emitter(pairs.last().map_or(syntax, |pair| &pair.key), &[], 2);
        if pairs.is_empty() {
            emitter.quotes = self.quotes_of_text();
        }
        let all = emitter.inline(&Value::Object(added));
        let inner = all.strip_prefix('{').and_then(|all| all.strip_suffix('}'));
        let texts = [inner.unwrap_or_default().to_owned()];
        self.flow_insert(syntax, &ranges, ranges.len(), &texts);
    }

    /// The quotes of the whole text, for places without a neighbor to imitate.
    fn quotes_of_text(&self) -> Quotes {
        let text = self.text.trim_start_matches(['\u{feff}', ' ', '\n', '\r', '\t']);
        match text.starts_with(['{', '[']) {
            true => Quotes::Always,
            false => Quotes::WhereNeeded,
        }
    }

    fn flow_insert(&mut self, syntax: &SyntaxNode, ranges: &[Range<usize>], at: usize, texts: &[String]) {
        let Some(first) = ranges.first() else {
            let start = syntax.range.start.saturating_add(1);
            return self.splice(start..start, texts.join(", "));
        };
        let blank = self.blank_before(ranges.get(1).unwrap_or(first).start);
        let separator = match blank.contains('\n') {
            true => format!(",{blank}"),
            false => ", ".to_owned(),
        };
        if let Some(before) = at.checked_sub(1).and_then(|before| ranges.get(before)) {
            let replacement: String = texts.iter().map(|text| format!("{separator}{text}")).collect();
            self.splice(before.end..before.end, replacement);
        } else {
            let replacement: String = texts.iter().map(|text| format!("{text}{separator}")).collect();
            self.splice(first.start..first.start, replacement);
        }
    }

    pub(super) fn flow_drop(
        &mut self,
        syntax: &SyntaxNode,
        ranges: &[Range<usize>],
        removed: Range<usize>,
    ) -> Result<(), EditError> {
        let line = syntax.line;
        let layout = EditError { line, why: LAYOUT };
        let run = ranges.get(removed.clone()).ok_or(layout.clone())?;
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return Ok(());
        };
        let before = removed.start.checked_sub(1).and_then(|before| ranges.get(before));
        let range = match (before, ranges.get(removed.end)) {
            (_, Some(next)) => first.start..next.start,
            (Some(before), None) => before.end..last.end,
            (None, None) => syntax.range.start.saturating_add(1)..syntax.range.end.saturating_sub(1),
        };
        // Comments between the items must not be removed.
        let starts = run.iter().map(|item| item.start).chain([range.end]);
        let ends = [range.start].into_iter().chain(run.iter().map(|item| item.end));
        let mut gaps = ends.zip(starts).filter_map(|(end, start)| self.text.get(end..start));
        if gaps.any(|gap| gap.contains('#')) {
            return Err(layout);
        }
        self.splice(range, "");
        Ok(())
    }

    /// The blanks before an item, its line break among them.
    fn blank_before(&self, at: usize) -> &str {
        let head = self.text.get(..at).unwrap_or_default();
        let kept = head.trim_end_matches([' ', '\t', '\r', '\n']).len();
        head.get(kept..).unwrap_or_default()
    }
}

/// The first scalar of a value, which shows whether texts are in quotes.
fn first_text(value: &SyntaxNode) -> Option<&SyntaxNode> {
    match &value.kind {
        SyntaxKind::Scalar { .. } => Some(value),
        SyntaxKind::Sequence(_, items) => items.first().and_then(first_text),
        SyntaxKind::Mapping(_, pairs) => pairs.first().map(|pair| &pair.key),
    }
}
