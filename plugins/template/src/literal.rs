//! Reads Go's string literals. A literal that is not UTF-8, which `\x80` can cause, is an error.

use alloc::string::String;
use alloc::vec::Vec;

/// What is wrong within a literal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Error {
    /// Position after the opening quote, in bytes.
    pub(crate) offset: usize,
    pub(crate) message: &'static str,
}

/// The content of the literal at the start of `text`, and the literal's length in bytes with its
/// quotes. `None` if the literal does not end.
pub(crate) fn take(text: &str, quote: char) -> Option<(&str, usize)> {
    let inside = text.strip_prefix(quote)?;
    let mut escaped = false;
    for (offset, character) in inside.char_indices() {
        match character {
            '\n' if quote == '"' => return None,
            _ if escaped => escaped = false,
            '\\' if quote == '"' => escaped = true,
            _ if character == quote => return Some((inside.get(..offset)?, offset + 2)),
            _ => {}
        }
    }
    None
}

/// The text that an interpreted string literal stands for. `inner` has no quotes.
pub(crate) fn unquote(inner: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(character) = rest.chars().next() {
        let offset = inner.len() - rest.len();
        let error = |message| Error { offset, message };
        if character != '\\' {
            let (text, after) = rest.split_at(character.len_utf8());
            bytes.extend_from_slice(text.as_bytes());
            rest = after;
            continue;
        }
        let mut escape = rest.chars();
        escape.next();
        let kind = escape
            .next()
            .ok_or_else(|| error("`\\` without a character after it"))?;
        let after = escape.as_str();
        rest = after;
        match kind {
            'a' => bytes.push(7),
            'b' => bytes.push(8),
            'f' => bytes.push(12),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'v' => bytes.push(11),
            '\\' | '"' => bytes.push(if kind == '"' { b'"' } else { b'\\' }),
            'x' => {
                let byte = digits(after, 2, 16).and_then(|value| u8::try_from(value).ok());
                bytes.push(byte.ok_or_else(|| error("`\\x` takes two hexadecimal digits"))?);
                rest = after.get(2..).unwrap_or_default();
            }
            '0'..='7' => {
                let digits_at = rest.len() + 1;
                let all = inner.get(inner.len() - digits_at..).unwrap_or_default();
                let byte = digits(all, 3, 8).and_then(|value| u8::try_from(value).ok());
                bytes.push(byte.ok_or_else(|| error("`\\` takes three octal digits, up to `\\377`"))?);
                rest = after.get(2..).unwrap_or_default();
            }
            'u' | 'U' => {
                let count = if kind == 'u' { 4 } else { 8 };
                let found = digits(after, count, 16).and_then(char::from_u32);
                let found = found.ok_or_else(|| error("`\\u` takes four and `\\U` eight digits of a character"))?;
                bytes.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes());
                rest = after.get(count..).unwrap_or_default();
            }
            _ => {
                return Err(error(
                    "no such escape; there are `\\a \\b \\f \\n \\r \\t \\v \\\\ \\\" \\x \\u \\U`",
                ));
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| Error {
        offset: 0,
        message: "this string is not UTF-8",
    })
}

/// The number that the first `count` characters of `text` represent.
fn digits(text: &str, count: usize, radix: u32) -> Option<u32> {
    let digits = text.get(..count)?;
    let plain = digits.chars().all(|digit| digit.is_digit(radix));
    plain.then(|| u32::from_str_radix(digits, radix).ok())?
}
