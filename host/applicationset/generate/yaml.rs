//! YAML as Argo CD reads it: version 1.1, the first document.
//!
//! In: text. Out: JSON. Never: aliases expanded beyond the budget.
//!
//! Source: `sigs.k8s.io/yaml`, which follows go-yaml v2: `yes`, `no`, `on`, `off`,
//! `y` and `n` are booleans, `0755` and `0b11` are integers, dates are texts.

use serde_json::{Map, Number, Value};

use super::Error;
use super::run::Run;
use crate::state::yaml::{Content, Node, Scalar, Style, parse};

/// Reads the first document; null where there is none. A mistake is said with `wrong`.
pub(super) fn read(run: &Run<'_>, text: &str, wrong: impl Fn(&str) -> Error) -> Result<Value, Error> {
    run.budget.time()?;
    let parsed = parse(text);
    if let Some(problem) = parsed.problems.first() {
        let what = format!(
            "cannot be read: line {}, column {}: {}",
            problem.line, problem.column, problem.message
        );
        return Err(wrong(&what));
    }
    parsed.documents.first().map_or(Ok(Value::Null), |node| json(run, node))
}

fn json(run: &Run<'_>, node: &Node) -> Result<Value, Error> {
    // What aliases repeat is shared in the tree and copied here.
    let bytes = |text: &str| u64::try_from(text.len()).unwrap_or(u64::MAX).saturating_add(32);
    Ok(match &node.content {
        Content::Scalar(scalar) => {
            run.budget.bytes(bytes(&scalar.text))?;
            value(scalar)
        }
        Content::Sequence(items) => Value::Array(items.iter().map(|item| json(run, item)).collect::<Result<_, _>>()?),
        Content::Mapping(entries) => {
            let mut members = Map::new();
            for entry in entries {
                run.budget.bytes(bytes(&entry.key))?;
                members.insert(entry.key.to_string(), json(run, &entry.value)?);
            }
            Value::Object(members)
        }
    })
}

fn value(scalar: &Scalar) -> Value {
    let text = &*scalar.text;
    if scalar.style != Style::Plain {
        return Value::String(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Value::Bool(false),
        text => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    }
}

fn number(text: &str) -> Option<Number> {
    let starts = |first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.');
    if !text.starts_with(starts) {
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

/// Integers of every base Go knows.
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
    if !digits.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return None;
    }
    let signed = i64::from_str_radix(&format!("{sign}{digits}"), base).map(Number::from);
    let unsigned = || u64::from_str_radix(digits, base).ok().filter(|_| sign.is_empty());
    signed.ok().or_else(|| unsigned().map(Number::from))
}
