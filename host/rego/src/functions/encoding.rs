//! `base64`, `base64url`, `hex`, `urlquery` and `crypto`, with the errors of OPA.
//!
//! A text that would not be UTF-8 is no result: OPA has such texts.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine as _;
use base64::alphabet::{self, Alphabet};
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use hmac::{KeyInit, Mac};
use regorus::Value;
use sha2::Digest;

use super::opa::{MAX_RANGE, text};

fn base64(alphabet: &Alphabet, padding: bool) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(alphabet, config.with_encode_padding(padding))
}

fn one(arguments: &[Value]) -> Option<&str> {
    match arguments {
        [argument] => text(argument),
        _ => None,
    }
}

fn utf8(bytes: Vec<u8>) -> Option<Value> {
    String::from_utf8(bytes).ok().map(Value::from)
}

fn hex(bytes: impl AsRef<[u8]>) -> Value {
    let mut text = String::new();
    for byte in bytes.as_ref() {
        // A `String` takes everything.
        let _ = write!(text, "{byte:02x}");
    }
    Value::from(text)
}

/// Go skips ends of lines.
fn has_lines(text: &str) -> bool {
    text.contains(['\r', '\n'])
}

pub(super) fn base64_encode(arguments: &[Value]) -> Option<Value> {
    Some(base64(&alphabet::STANDARD, true).encode(one(arguments)?).into())
}

pub(super) fn base64_decode(arguments: &[Value]) -> Option<Value> {
    let text = one(arguments).filter(|text| !has_lines(text))?;
    utf8(base64(&alphabet::STANDARD, true).decode(text).ok()?)
}

pub(super) fn base64_is_valid(arguments: &[Value]) -> Option<Value> {
    match one(arguments) {
        Some(text) if has_lines(text) => None,
        Some(text) => Some(base64(&alphabet::STANDARD, true).decode(text).is_ok().into()),
        None => Some(false.into()),
    }
}

pub(super) fn base64url_encode(arguments: &[Value]) -> Option<Value> {
    Some(base64(&alphabet::URL_SAFE, true).encode(one(arguments)?).into())
}

pub(super) fn base64url_encode_no_pad(arguments: &[Value]) -> Option<Value> {
    Some(base64(&alphabet::URL_SAFE, false).encode(one(arguments)?).into())
}

pub(super) fn base64url_decode(arguments: &[Value]) -> Option<Value> {
    let text = one(arguments).filter(|text| !has_lines(text))?;
    let padding = match text.len() % 4 {
        2 if !text.ends_with('=') => "==",
        3 if !text.ends_with('=') => "=",
        _ => "",
    };
    let padded = format!("{text}{padding}");
    utf8(base64(&alphabet::URL_SAFE, true).decode(padded).ok()?)
}

pub(super) fn hex_encode(arguments: &[Value]) -> Option<Value> {
    one(arguments).map(hex)
}

pub(super) fn digit(byte: u8) -> Option<u8> {
    u8::try_from(char::from(byte).to_digit(16)?).ok()
}

pub(super) fn hex_decode(arguments: &[Value]) -> Option<Value> {
    let pairs = one(arguments)?.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(16 * digit(*high)? + digit(*low)?),
        _ => None,
    });
    utf8(pairs.collect::<Option<_>>()?)
}

/// Go's `url.QueryEscape`.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(char::from(byte)),
            b' ' => escaped.push('+'),
            byte => {
                // A `String` takes everything.
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

pub(super) fn urlquery_encode(arguments: &[Value]) -> Option<Value> {
    one(arguments).map(escaped).map(Value::from)
}

/// Go's `url.QueryUnescape`.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => 16 * digit(bytes.next()?)? + digit(bytes.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

pub(super) fn urlquery_decode(arguments: &[Value]) -> Option<Value> {
    unescaped(one(arguments)?).map(Value::from)
}

/// Go's `url.ParseQuery`. `None` also for more than [`MAX_RANGE`] parameters, as in Go.
pub(super) fn urlquery_decode_object(arguments: &[Value]) -> Option<Value> {
    let query = one(arguments)?;
    let most = usize::try_from(MAX_RANGE).ok()?;
    if query.contains(';') || query.split('&').count() > most {
        return None;
    }
    let mut parameters: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let values = parameters.entry(Value::from(unescaped(name)?)).or_default();
        values.push(Value::from(unescaped(value)?));
    }
    let parameters = parameters.into_iter().map(|(name, values)| (name, Value::from(values)));
    Some(Value::from(parameters.collect::<BTreeMap<_, _>>()))
}

pub(super) fn urlquery_encode_object(arguments: &[Value]) -> Option<Value> {
    let [Value::Object(entries)] = arguments else {
        return None;
    };
    let mut pairs = Vec::new();
    // Texts are in the order of their bytes, as those of Go.
    for (key, value) in entries.iter_sorted() {
        let key = escaped(text(key)?);
        let values: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            Value::Set(items) => items.iter().collect(),
            value => vec![value],
        };
        for value in values {
            pairs.push(format!("{key}={}", escaped(text(value)?)));
        }
    }
    Some(pairs.join("&").into())
}

pub(super) fn digest<D: Digest>(arguments: &[Value]) -> Option<Value> {
    one(arguments).map(|text| hex(D::digest(text)))
}

fn two(arguments: &[Value]) -> Option<(&str, &str)> {
    match arguments {
        [one, other] => Some((text(one)?, text(other)?)),
        _ => None,
    }
}

pub(super) fn mac<M: Mac + KeyInit>(arguments: &[Value]) -> Option<Value> {
    let (message, key) = two(arguments)?;
    let mut mac = <M as KeyInit>::new_from_slice(key.as_bytes()).ok()?;
    mac.update(message.as_bytes());
    Some(hex(mac.finalize().into_bytes()))
}

pub(super) fn hmac_equal(arguments: &[Value]) -> Option<Value> {
    let (one, other) = two(arguments)?;
    // Takes as long wherever they differ.
    let differs = one
        .bytes()
        .zip(other.bytes())
        .fold(0, |all, (one, other)| all | (one ^ other));
    Some((one.len() == other.len() && differs == 0).into())
}
