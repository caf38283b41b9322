//! Checks the size and bracket depth of a Rego file before any parser sees it.
//!
//! The parser takes 2.1 times longer for each level of `[` or `{` (18 levels are 5.7 s), so the
//! depth is bounded here. Brackets in texts and comments do not count.

use tollgate_core::diagnostic::{Diagnostic, Location};

/// Maximum length of one file, in bytes.
pub const MAX_FILE_BYTES: usize = 256 * 1024;
/// Maximum number of lines of one file.
pub const MAX_LINES: usize = 5_000;
/// Maximum length of one line, in bytes.
pub const MAX_COLUMNS: usize = 1_000;
/// Maximum number of brackets open at once: `(`, `[` and `{` together.
pub const MAX_BRACKET_DEPTH: usize = 8;

/// Checks one file; `file` is its name for messages.
pub(crate) fn check(file: &str, text: &str) -> Vec<Diagnostic> {
    let whole = |message: String| Diagnostic::error(Location::new(file, 0), message);
    if text.len() > MAX_FILE_BYTES {
        let message = format!("the file has {} bytes, {MAX_FILE_BYTES} are allowed", text.len());
        return vec![whole(message).with_hint("move tables to data files")];
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        return vec![whole(format!("the file has {lines} lines, {MAX_LINES} are allowed"))];
    }
    let mut found = Vec::new();
    for (number, line) in (1_u32..).zip(text.lines()) {
        if line.len() > MAX_COLUMNS {
            let message = format!("the line has {} bytes, {MAX_COLUMNS} are allowed", line.len());
            found.push(Diagnostic::error(Location::new(file, number), message));
        }
    }
    if let Some((line, column)) = too_deep(text) {
        let location = Location {
            file: file.into(),
            line,
            column,
        };
        let message = format!("brackets are nested more than {MAX_BRACKET_DEPTH} deep");
        let hint = "give parts their own names, or move literals to data files";
        found.push(Diagnostic::error(location, message).with_hint(hint));
    }
    found
}

/// Where the brackets first exceed the depth: line and column, from 1.
fn too_deep(text: &str) -> Option<(u32, u32)> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_usize, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'(' | b'[' | b'{' => {
                depth += 1;
                if depth > MAX_BRACKET_DEPTH {
                    let before = bytes.get(..at).unwrap_or_default();
                    let line = before.split(|byte| *byte == b'\n');
                    let column = line.clone().next_back().map_or(0, <[u8]>::len) + 1;
                    return Some((saturated(line.count()), saturated(column)));
                }
            }
            // A stray closing bracket must not allow more depth, so the count stays at zero.
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'#' => at = next(bytes, at, b'\n'),
            b'"' => at = end_of_text(bytes, at),
            b'`' => at = next(bytes, at, b'`'),
            _ => {}
        }
        at += 1;
    }
    None
}

fn saturated(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The position of the next `wanted` byte after `start`, or the end.
fn next(bytes: &[u8], start: usize, wanted: u8) -> usize {
    let mut after = bytes.iter().enumerate().skip(start + 1);
    after
        .find(|(_, byte)| **byte == wanted)
        .map_or(bytes.len(), |(at, _)| at)
}

/// A quoted text ends at its quote or, if it is broken, at the end of the line: brackets behind it
/// count again.
fn end_of_text(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' | b'\n' => return at,
            b'\\' if bytes.get(at + 1) != Some(&b'\n') => at += 2,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::{MAX_BRACKET_DEPTH, MAX_COLUMNS, MAX_FILE_BYTES, MAX_LINES, check, too_deep};

    #[test]
    fn brackets_in_strings_and_comments_do_not_count() {
        let deep = "[".repeat(MAX_BRACKET_DEPTH + 1);
        for harmless in [
            format!("# {deep}"),
            format!("\"{deep}\""),
            format!("`{deep}\n{deep}`"),
            format!("\"\\\"{deep}\""),
        ] {
            assert_eq!(too_deep(&harmless), None, "{harmless}");
        }
        for harmful in [
            deep.clone(),
            format!("\"a\" {deep}"),
            format!("\"a\n{deep}"),
            format!("# c\n{deep}"),
            format!("`a`{deep}"),
            format!("\"\\\\\"{deep}"),
        ] {
            assert!(too_deep(&harmful).is_some(), "{harmful}");
        }
        assert_eq!(too_deep(&"[".repeat(MAX_BRACKET_DEPTH)), None);
        assert!(too_deep(&format!("{}{deep}", "]".repeat(50))).is_some());
        assert_eq!(too_deep(&format!("x\n  {deep}")), Some((2, 11)));
    }

    #[test]
    fn sizes_are_bounded() {
        assert!(check("a.rego", "package a\n").is_empty());
        for (text, word) in [
            ("#\n".repeat(MAX_LINES + 1), "lines"),
            ("x".repeat(MAX_COLUMNS + 1), "line has"),
            ("#".repeat(MAX_FILE_BYTES + 1), "bytes"),
        ] {
            let found = check("a.rego", &text);
            assert!(
                found
                    .iter()
                    .any(|finding| finding.is_error() && finding.message.contains(word)),
                "{found:?}"
            );
        }
    }
}
