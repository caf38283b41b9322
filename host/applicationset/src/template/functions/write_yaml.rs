//! Writes JSON as YAML the way Argo CD's `toYaml` does: sorted keys, lists at the indentation of
//! their key, strings without quotes where they are unambiguous, and no anchors.
//!
//! Source: go-yaml v2, whose emitter is a port of libyaml's, as the one here is.

use libyaml_safer::{Emitter, Encoding, Event, MappingStyle, ScalarStyle, SequenceStyle};
use serde_json::Value;

use super::json;

/// Writes a document, without the final line break.
///
/// # Errors
/// None is known: the events form a document, and a buffer takes every byte.
pub(super) fn document(value: &Value) -> Result<String, libyaml_safer::Error> {
    let mut bytes = Vec::new();
    let mut emitter = Emitter::new();
    emitter.set_output_string(&mut bytes);
    emitter.set_unicode(true);
    emitter.emit(Event::stream_start(Encoding::Utf8))?;
    emitter.emit(Event::document_start(None, &[], true))?;
    node(&mut emitter, value)?;
    // As go-yaml does: `...` never follows a string with line breaks at its end, which the end of
    // the stream would add.
    emitter.emit(Event::document_end(true))?;
    drop(emitter);
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    text.truncate(text.strip_suffix('\n').unwrap_or(&text).len());
    Ok(text)
}

fn node(emitter: &mut Emitter<'_>, value: &Value) -> Result<(), libyaml_safer::Error> {
    match value {
        Value::Array(items) => {
            emitter.emit(Event::sequence_start(None, None, true, SequenceStyle::Block))?;
            items.iter().try_for_each(|item| node(emitter, item))?;
            emitter.emit(Event::sequence_end())
        }
        Value::Object(fields) => {
            emitter.emit(Event::mapping_start(None, None, true, MappingStyle::Block))?;
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            for (key, value) in fields {
                string(emitter, key)?;
                node(emitter, value)?;
            }
            emitter.emit(Event::mapping_end())
        }
        Value::String(text) => string(emitter, text),
        Value::Null => scalar(emitter, "null", ScalarStyle::Plain),
        Value::Bool(yes) => scalar(emitter, &yes.to_string(), ScalarStyle::Plain),
        Value::Number(number) => {
            let float = number.as_f64().filter(|_| number.is_f64());
            let text = float.and_then(json::number).unwrap_or_else(|| number.to_string());
            scalar(emitter, &text, ScalarStyle::Plain)
        }
    }
}

fn string(emitter: &mut Emitter<'_>, text: &str) -> Result<(), libyaml_safer::Error> {
    let style = if text.contains('\n') {
        ScalarStyle::Literal
    } else if !text.is_empty() && stays_text(text) {
        ScalarStyle::Plain
    } else {
        ScalarStyle::DoubleQuoted
    };
    scalar(emitter, text, style)
}

fn scalar(emitter: &mut Emitter<'_>, text: &str, style: ScalarStyle) -> Result<(), libyaml_safer::Error> {
    emitter.emit(Event::scalar(None, None, text, true, true, style))
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
