//! Writes JSON as YAML the way Argo CD's `toYaml` does: sorted keys, lists at the indentation of
//! their key, strings without quotes where they are unambiguous, and no anchors.

use serde_json::Value;

use super::json;

/// The column after which a long string is folded.
const WIDTH: usize = 80;

/// Writes a document, without the final line break.
pub(super) fn document(value: &Value) -> String {
    let mut text = String::new();
    node(&mut text, value, 0, 0);
    text.truncate(text.trim_end_matches('\n').len().max(text.len().saturating_sub(1)));
    text
}

fn pad(text: &mut String, indent: usize) {
    text.extend(std::iter::repeat_n(' ', indent));
}

/// `indent`: that of the enclosing block; `column`: the current column.
fn node(text: &mut String, value: &Value, indent: usize, column: usize) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    pad(text, indent);
                }
                text.push_str("- ");
                node(text, item, indent + 2, indent + 2);
            }
        }
        Value::Object(fields) if !fields.is_empty() => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    pad(text, indent);
                }
                field(text, key, fields.get(key).unwrap_or(&Value::Null), indent);
            }
        }
        scalar => {
            write_scalar(text, scalar, indent, column);
            text.push('\n');
        }
    }
}

fn field(text: &mut String, key: &str, value: &Value, indent: usize) {
    let before = text.len();
    string(text, key, indent, usize::MAX);
    text.push(':');
    let width = indent + text.len() - before + 1;
    match value {
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            pad(text, indent);
            node(text, value, indent, indent);
        }
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            pad(text, indent + 2);
            node(text, value, indent + 2, indent + 2);
        }
        scalar => {
            text.push(' ');
            write_scalar(text, scalar, indent + 2, width);
            text.push('\n');
        }
    }
}

fn write_scalar(text: &mut String, value: &Value, indent: usize, column: usize) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(yes) => text.push_str(if *yes { "true" } else { "false" }),
        Value::Number(number) => {
            let float = number.as_f64().filter(|_| number.is_f64());
            text.push_str(&float.and_then(json::number).unwrap_or_else(|| number.to_string()));
        }
        Value::String(inner) => string(text, inner, indent, column),
        Value::Array(_) => text.push_str("[]"),
        Value::Object(_) => text.push_str("{}"),
    }
}

/// `column` of `usize::MAX`: a key, which must be on one line.
fn string(text: &mut String, inner: &str, indent: usize, column: usize) {
    let special = inner.chars().any(|letter| {
        letter != '\n' && (letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{feff}'))
    });
    let key = column == usize::MAX;
    if inner.is_empty() || special || (key && inner.contains('\n')) {
        quote_double(text, inner);
    } else if inner.contains('\n') {
        block(text, inner, indent);
    } else if !stays_text(inner) {
        quote_double(text, inner);
    } else if plain(inner) {
        fold(text, inner, (indent, column));
    } else {
        text.push('\'');
        fold(text, &inner.replace('\'', "''"), (indent, column.saturating_add(1)));
        text.push('\'');
    }
}

/// Whether a parser reads the plain text as a string.
pub(super) fn stays_text(inner: &str) -> bool {
    let lower = inner.to_ascii_lowercase();
    let word = matches!(
        lower.as_str(),
        "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null" | "~" | ".nan" | ".inf" | "-.inf" | "+.inf"
    );
    !word && !number(&lower) && !date(inner)
}

fn number(lower: &str) -> bool {
    let digits = lower.replace('_', "");
    let unsigned = digits.trim_start_matches(['+', '-']);
    if digits.len() - unsigned.len() > 1 || !unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
    {
        return false;
    }
    let based = |prefix: &str, radix: u32| {
        unsigned
            .strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|digit| digit.is_digit(radix)))
    };
    based("0x", 16) || based("0o", 8) || based("0b", 2) || unsigned.parse::<f64>().is_ok()
}

fn date(inner: &str) -> bool {
    let shape: String = inner
        .chars()
        .take(10)
        .map(|letter| if letter.is_ascii_digit() { '0' } else { letter })
        .collect();
    shape == "0000-00-00"
        && (inner.len() == 10 || inner.get(10..).is_some_and(|rest| rest.starts_with(['T', 't', ' '])))
}

/// Whether it needs no quotes.
fn plain(inner: &str) -> bool {
    let mut letters = inner.chars();
    let (first, second) = (letters.next(), letters.next());
    let edge = inner.starts_with(' ') || inner.ends_with(' ');
    let inside = inner.contains(": ")
        || inner.contains(" #")
        || inner.ends_with(':')
        || inner.starts_with("---")
        || inner.starts_with("...");
    let begins = match first {
        Some('-' | '?' | ':') => second.is_none_or(|second| second == ' '),
        Some(first) => "#,[]{}&*!|>'\"%@`".contains(first),
        None => true,
    };
    !edge && !inside && !begins
}

fn quote_double(text: &mut String, inner: &str) {
    text.push('"');
    for letter in inner.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\0' => text.push_str("\\0"),
            '\u{7}' => text.push_str("\\a"),
            '\u{8}' => text.push_str("\\b"),
            '\u{b}' => text.push_str("\\v"),
            '\u{c}' => text.push_str("\\f"),
            '\u{1b}' => text.push_str("\\e"),
            '\u{85}' => text.push_str("\\N"),
            '\u{2028}' => text.push_str("\\L"),
            '\u{2029}' => text.push_str("\\P"),
            '\u{feff}' => text.push_str("\\uFEFF"),
            other if other.is_control() => text.push_str(&format!("\\x{:02X}", u32::from(other))),
            other => text.push(other),
        }
    }
    text.push('"');
}

/// Writes the lines unchanged, after `|`.
fn block(text: &mut String, inner: &str, indent: usize) {
    let indent = indent.max(2);
    text.push('|');
    if inner.starts_with([' ', '\n']) {
        text.push('2');
    }
    let body = inner.trim_end_matches('\n');
    match inner.len() - body.len() {
        0 => text.push('-'),
        1 if !body.is_empty() => {}
        _ => text.push('+'),
    }
    let lines = inner.strip_suffix('\n').unwrap_or(inner);
    for line in lines.split('\n') {
        text.push('\n');
        if !line.is_empty() {
            pad(text, indent);
            text.push_str(line);
        }
    }
}

/// Folds the text at single spaces once it exceeds the width.
fn fold(text: &mut String, inner: &str, (indent, column): (usize, usize)) {
    if column == usize::MAX || !inner.contains(' ') {
        text.push_str(inner);
        return;
    }
    let mut column = column;
    let mut letters = inner.chars().peekable();
    let mut last = ' ';
    while let Some(letter) = letters.next() {
        let single = letter == ' ' && last != ' ' && letters.peek().is_some_and(|next| *next != ' ');
        if single && column > WIDTH {
            text.push('\n');
            pad(text, indent);
            column = indent;
        } else {
            text.push(letter);
            column += 1;
        }
        last = letter;
    }
}
