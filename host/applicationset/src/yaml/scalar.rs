//! Resolves a plain YAML scalar to a JSON value. Numbers that JSON cannot represent have none.
//!
//! Source: go-yaml v2: `yes`, `no`, `on`, `off`, `y` and `n` are booleans, `0755` and `0b11` are
//! integers, dates are strings.

use serde_json::{Number, Value};

/// The value of a plain scalar; `None` if JSON cannot represent it.
pub(crate) fn value(text: &str) -> Option<Value> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Value::Bool(false),
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf"
        | "-.INF" => return None,
        text => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    })
}

/// The key that a value becomes; `None` if it cannot be a key, or if two parsers could write it
/// differently.
///
/// Source: `sigs.k8s.io/yaml`, `convertToJSONableObject`.
pub(super) fn key(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(yes) => Some(yes.to_string()),
        Value::Number(number) => number.as_i64().map(|whole| whole.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether a value other than a string can become this key.
pub(super) fn is_ambiguous_key(key: &str) -> bool {
    matches!(key, "true" | "false") || key.parse::<i64>().is_ok()
}

fn number(text: &str) -> Option<Number> {
    let starts = |first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.');
    if !text.starts_with(starts) {
        return None;
    }
    // A text that starts with a point goes unchanged to Go's float parser, which accepts `_` only
    // between digits.
    if text.starts_with('.') && !is_separated(text) {
        return None;
    }
    let plain = text.replace('_', "");
    whole(&plain).or_else(|| {
        let unsigned = plain.strip_prefix(['-', '+']).unwrap_or(&plain);
        let numeric = |byte: u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let digits = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.');
        let float = digits && unsigned.bytes().all(numeric);
        Number::from_f64(plain.parse().ok().filter(|_| float)?)
    })
}

/// Whether every `_` is between digits.
fn is_separated(text: &str) -> bool {
    let is_digit = |piece: Option<char>| piece.is_some_and(|letter| letter.is_ascii_digit());
    let mut pieces = text.split('_').peekable();
    while let Some(piece) = pieces.next() {
        let Some(next) = pieces.peek() else { break };
        if !is_digit(piece.chars().next_back()) || !is_digit(next.chars().next()) {
            return false;
        }
    }
    true
}

/// Integers in every base Go supports.
fn whole(plain: &str) -> Option<Number> {
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", plain.strip_prefix('+').unwrap_or(plain)),
    };
    let based = [
        ("0x", 16),
        ("0X", 16),
        ("0o", 8),
        ("0O", 8),
        ("0b", 2),
        ("0B", 2),
        ("0", 8),
    ];
    let (digits, base) = based
        .into_iter()
        .find_map(|(prefix, base)| Some((digits.strip_prefix(prefix)?, base)))
        .filter(|(digits, _)| !digits.is_empty())
        .unwrap_or((digits, 10));
    // Go accepts a sign after `0b`, if nothing precedes it.
    if let Some(signed) = plain.strip_prefix("0b").filter(|rest| rest.starts_with(['+', '-'])) {
        return i64::from_str_radix(signed, 2).ok().map(Number::from);
    }
    if !digits.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return None;
    }
    let signed = i64::from_str_radix(&format!("{sign}{digits}"), base).map(Number::from);
    let unsigned = || u64::from_str_radix(digits, base).ok().filter(|_| sign.is_empty());
    signed.ok().or_else(|| unsigned().map(Number::from))
}
