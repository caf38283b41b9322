//! Applies operations to text. Callers bound the length of the text.

use alloc::format;
use alloc::string::{String, ToString as _};

use crate::part::Operation;

/// Applies `operation` to `text`.
pub(crate) fn escape(operation: Operation, text: &str) -> String {
    match operation {
        Operation::Form => percent(text, "+"),
        Operation::Percent => percent(text, "%20"),
        Operation::Json => json(text),
        Operation::Base64 => base64(text.as_bytes()),
        Operation::Trim => text.trim().to_string(),
    }
}

/// Writes all bytes except `A-Za-z0-9-_.~` as `%XX`, and a space as `space`.
fn percent(text: &str, space: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => result.push(char::from(byte)),
            b' ' => result.push_str(space),
            _ => result.push_str(&format!("%{byte:02X}")),
        }
    }
    result
}

/// A JSON string (RFC 8259, section 7) with as few escapes as possible.
fn json(text: &str) -> String {
    let mut result = String::with_capacity(text.len() + 2);
    result.push('"');
    for character in text.chars() {
        match character {
            '"' => result.push_str("\\\""),
            '\\' => result.push_str("\\\\"),
            '\n' => result.push_str("\\n"),
            '\r' => result.push_str("\\r"),
            '\t' => result.push_str("\\t"),
            '\u{8}' => result.push_str("\\b"),
            '\u{c}' => result.push_str("\\f"),
            '\0'..='\u{1f}' => result.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => result.push(character),
        }
    }
    result.push('"');
    result
}

/// base64 (RFC 4648, section 4), padded.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |value: u32, shift: u32| {
        let index = (value >> shift & 0x3f) as usize;
        char::from(ALPHABET.get(index).copied().unwrap_or_default())
    };
    let mut result = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let value = at(0) << 16 | at(1) << 8 | at(2);
        result.push(digit(value, 18));
        result.push(digit(value, 12));
        result.push(if chunk.len() > 1 { digit(value, 6) } else { '=' });
        result.push(if chunk.len() > 2 { digit(value, 0) } else { '=' });
    }
    result
}
