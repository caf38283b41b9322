//! Finds the offsets of lines in a text, and of what stands between its values.
//!
//! Invariant: no offset is inside a value.

use std::ops::Range;

use super::Editor;
use crate::write::syntax::SyntaxNode;

impl<'a> Editor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let is_crlf = text.split_once('\n').is_some_and(|(first, _)| first.ends_with('\r'));
        Self {
            text,
            line_break: if is_crlf { "\r\n" } else { "\n" },
            splices: Vec::new(),
        }
    }

    /// Start of the line of `at`, if only blanks stand before it.
    pub(super) fn start(&self, at: usize) -> Option<usize> {
        let head = self.text.get(..at)?;
        let start = head.rfind('\n').map_or(0, |end| end.saturating_add(1));
        // A byte order mark belongs to the text, not to its first line.
        let start = match start {
            0 if head.starts_with('\u{feff}') => 3,
            start => start,
        };
        head.get(start..)?.bytes().all(|byte| byte == b' ').then_some(start)
    }

    /// The offset after the line break of the line on which a value ending at `at` ends.
    pub(super) fn after(&self, at: usize) -> usize {
        // Block scalars end after their line break.
        if self.text.get(..at).is_some_and(|head| head.ends_with('\n')) {
            return at;
        }
        let tail = self.text.get(at..).unwrap_or_default();
        let end = tail.find('\n').map(|end| end.saturating_add(1));
        at.saturating_add(end.unwrap_or(tail.len()))
    }

    /// How many bytes stand before a key on its line: blanks, or the dashes of the items whose first
    /// key it is.
    pub(super) fn indent(&self, key: &SyntaxNode) -> Option<usize> {
        let head = self.text.get(..key.range.start)?;
        let line = head.rsplit('\n').next().unwrap_or_default();
        let line = line.trim_start_matches('\u{feff}');
        let is_plain = line.bytes().all(|byte| matches!(byte, b' ' | b'-'));
        is_plain.then_some(line.len())
    }

    pub(super) fn behind_colon(&self, key: &SyntaxNode) -> Option<usize> {
        let tail = self.text.get(key.range.end..)?.trim_start_matches([' ', '\t']);
        self.text.len().checked_sub(tail.strip_prefix(':')?.len())
    }

    /// Whether a range is on one line, apart from a line break at its end.
    pub(super) fn is_one_line(&self, range: &Range<usize>) -> bool {
        let text = self.text.get(range.clone());
        text.is_some_and(|text| !text.trim_end_matches(['\n', '\r']).contains('\n'))
    }

    pub(super) fn dashes(&self, key: &SyntaxNode, items: &[SyntaxNode]) -> Option<Vec<usize>> {
        let mut from = self.behind_colon(key)?;
        let mut dashes = Vec::with_capacity(items.len());
        for item in items {
            let dash = self.skip_blank(from)?;
            if self.text.as_bytes().get(dash) != Some(&b'-') || dash >= item.range.start.max(from.saturating_add(1)) {
                return None;
            }
            dashes.push(dash);
            from = item.range.end.max(dash.saturating_add(1));
        }
        Some(dashes)
    }

    /// The next byte that is neither blank nor in a comment.
    pub(super) fn skip_blank(&self, from: usize) -> Option<usize> {
        let blank = [' ', '\t', '\r', '\n'];
        let mut tail = self.text.get(from..)?.trim_start_matches(blank);
        while tail.starts_with('#') {
            tail = tail.get(tail.find('\n')?..)?.trim_start_matches(blank);
        }
        self.text.len().checked_sub(tail.len())
    }
}

/// The text without one of its documents; empty when it is the only one.
pub(super) fn without_document(text: &str, documents: &[SyntaxNode], number: usize) -> Option<String> {
    let document = documents.get(number)?;
    if documents.len() == 1 {
        return Some(String::new());
    }
    let editor = Editor::new(text);
    // From its own `---` to the next one, or to the end.
    let is_at_marker = |at: &usize| is_marker(text.get(*at..).unwrap_or_default());
    let markers: Vec<usize> = line_starts(text).filter(is_at_marker).collect();
    let start = markers.iter().rev().find(|at| **at < document.range.start);
    let end = markers.iter().find(|at| **at >= editor.after(document.range.end));
    let (start, end) = match (start, end) {
        (Some(start), end) => (*start, end.copied().unwrap_or(text.len())),
        // The first document has no marker, and the marker of the next one stays.
        (None, Some(end)) => (0, *end),
        (None, None) => return None,
    };
    Some(format!("{}{}", text.get(..start)?, text.get(end..)?))
}

fn line_starts(text: &str) -> impl Iterator<Item = usize> {
    let starts = text.match_indices('\n').map(|(at, _)| at.saturating_add(1));
    std::iter::once(0).chain(starts)
}

fn is_marker(line: &str) -> bool {
    line.strip_prefix("---")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}
