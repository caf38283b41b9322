//! Suggests what to write instead of a path that RFC 9535 refuses.
//!
//! Invariant: a suggested path is itself a valid singular path.

use super::{Step, write_step};

const EXAMPLE: &str = "write it like `$.access_token`";

/// A path for a message, with its control characters replaced.
pub(super) fn shown(text: &str) -> String {
    let visible = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(visible).collect()
}

pub(super) fn for_text(text: &str) -> String {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return EXAMPLE.to_owned();
    }
    if text.contains("{{") {
        return format!("a path is not a template; {EXAMPLE}");
    }
    if trimmed.len() != text.len() {
        return suggest("nothing stands before or after a path", trimmed);
    }
    if let Some(inner) = text.strip_prefix('{') {
        let inner = inner.strip_suffix('}').unwrap_or(inner);
        return suggest("braces belong to kubectl's JSONPath", &rooted(inner.trim()));
    }
    if text.starts_with('/') {
        return suggest("this is a JSON Pointer", &pointer(text));
    }
    if text.starts_with('@') {
        return format!("`@` exists in filters only; {EXAMPLE}");
    }
    if !text.starts_with('$') {
        return suggest("a path begins with `$`", &rooted(text));
    }
    suggest(
        "names with other characters than letters, digits and `_` are quoted",
        &quoted(text),
    )
}

/// The advice, with the suggested path if it is valid.
fn suggest(reason: &str, path: &str) -> String {
    if is_path(path) {
        format!("{reason}; write `{path}`")
    } else {
        format!("{reason}; {EXAMPLE}")
    }
}

fn rooted(text: &str) -> String {
    match text.chars().next() {
        Some('$') => text.to_owned(),
        Some('.' | '[') => format!("${text}"),
        _ => format!("$.{text}"),
    }
}

/// A JSON Pointer (RFC 6901) as a path.
fn pointer(text: &str) -> String {
    let mut path = "$".to_owned();
    for token in text.split('/').skip(1) {
        // In this order, or `~01`, which stands for `~1`, would become `/` (RFC 6901, section 4).
        let name = token.replace("~1", "/").replace("~0", "~");
        let step = match name.parse::<u32>() {
            // `01` and `+1` are not indexes of a JSON Pointer.
            Ok(index) if index.to_string() == name => Step::Index(index.into()),
            _ => Step::Name(name),
        };
        // Writing to a text does not fail.
        let _ = write_step(&mut path, &step);
    }
    path
}

/// The path with each dotted name in brackets that needs it, as in `$.a-b`.
fn quoted(text: &str) -> String {
    let mut path = "$".to_owned();
    for part in text.strip_prefix("$.").unwrap_or_default().split('.') {
        let plain = format!("$.{part}");
        if is_path(&plain) {
            path.push('.');
            path.push_str(part);
        } else {
            let _ = write_step(&mut path, &Step::Name(part.to_owned()));
        }
    }
    path
}

/// Whether a suggestion is a path, and short enough for a message.
fn is_path(text: &str) -> bool {
    text.len() <= 128 && super::is_singular(text) && super::parse_json_path(text).is_ok()
}
