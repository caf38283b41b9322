//! Writes YAML the way Argo CD's `toYaml` does: sorted keys, lists at the indentation of their
//! key, strings without quotes where they are unambiguous, and no anchors.
//!
//! Source: go-yaml v2, whose emitter is a port of libyaml's, as the one here is.

use libyaml_safer::{Emitter, Encoding, Event, MappingStyle, ScalarStyle, SequenceStyle};

use serde_json::Value as Json;

use super::{Args, json};
use crate::template::value::{Heap, Value, check_depth, size};
use crate::template::{ExecError, layout};
use crate::yaml::scalar;

/// Quotes and spaces may make a string this many times longer.
const GROWTH: usize = 4;

/// Writes the first argument, without the final line break.
pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let mut bytes = Vec::new();
    let mut emitter = Emitter::new();
    emitter.set_output_string(&mut bytes);
    emitter.set_unicode(true);
    let mut writer = Writer { heap, args, emitter };
    writer.emit(Event::stream_start(Encoding::Utf8))?;
    writer.emit(Event::document_start(None, &[], true))?;
    writer.node(args.arg(0), 0)?;
    // The stream is not ended: as in go-yaml, no `...` follows a string with line breaks at its end.
    writer.emit(Event::document_end(true))?;
    drop(writer);
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    heap.fits(text.len(), GROWTH)?;
    heap.text(text)
}

struct Writer<'w, 'h> {
    heap: &'w Heap<'h>,
    args: &'w Args<'w>,
    emitter: Emitter<'w>,
}

impl Writer<'_, '_> {
    fn emit(&mut self, event: Event) -> Result<(), ExecError> {
        self.emitter.emit(event).map_err(|error| self.args.error(error))
    }

    fn node(&mut self, value: &Value, depth: usize) -> Result<(), ExecError> {
        check_depth(depth)?;
        self.heap.charge(size(depth.saturating_mul(2)).saturating_add(64))?;
        self.heap.refuse_divergent(!is_plain(value), || {
            "`toYaml` of more than plain words, whole numbers, and keys of letters".to_owned()
        })?;
        match value {
            Value::Missing | Value::Nil => self.plain("null"),
            Value::Bool(yes) => self.plain(&yes.to_string()),
            Value::Int(number) | Value::Int64(number) => self.plain(&number.to_string()),
            Value::Float(number) => self.plain(json::number(*number).as_deref().unwrap_or("null")),
            Value::Text(text) => self.string(text, depth),
            Value::Time(time) => self.string(&layout::format(time, layout::RFC_3339), depth),
            Value::Version(version) => self.string(&version.to_string(), depth),
            Value::List(list) => {
                self.emit(Event::sequence_start(None, None, true, SequenceStyle::Block))?;
                list.items.iter().try_for_each(|item| self.node(item, depth + 1))?;
                self.emit(Event::sequence_end())
            }
            Value::Map(map) => {
                self.emit(Event::mapping_start(None, None, true, MappingStyle::Block))?;
                for (key, item) in map.entries() {
                    self.string(&key, depth + 1)?;
                    self.node(&item, depth + 1)?;
                }
                self.emit(Event::mapping_end())
            }
        }
    }

    fn string(&mut self, text: &str, depth: usize) -> Result<(), ExecError> {
        // Each line is indented like its value, and each space may become a line break.
        let is_break = |letter: &char| matches!(letter, ' ' | '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
        let breaks = text.chars().filter(is_break).count();
        let padding = size(breaks).saturating_mul(size(depth.saturating_mul(2)));
        self.heap.charge(size(text.len()).saturating_add(padding))?;
        let style = if text.contains('\n') {
            ScalarStyle::Literal
        } else if !text.is_empty() && stays_text(text) {
            ScalarStyle::Plain
        } else {
            ScalarStyle::DoubleQuoted
        };
        self.emit(Event::scalar(None, None, text, true, true, style))
    }

    fn plain(&mut self, text: &str) -> Result<(), ExecError> {
        self.emit(Event::scalar(None, None, text, true, true, ScalarStyle::Plain))
    }
}

/// Whole numbers below this are read the same by every parser.
const WHOLE: f64 = 1e15;

/// Whether a value, apart from its content, is written without quotes, line breaks or an order of
/// keys that only the upstream library determines.
fn is_plain(value: &Value) -> bool {
    let is_word = |text: &str| {
        text.len() <= 64
            && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
            && !text.ends_with(':')
            && stays_text(text)
    };
    match value {
        Value::Text(text) => {
            let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "_./:-".contains(letter);
            is_word(text) && text.chars().all(is_allowed)
        }
        Value::Float(number) => {
            number.fract() == 0.0 && number.abs() < WHOLE && (*number != 0.0 || number.is_sign_positive())
        }
        Value::Map(map) => {
            let is_allowed = |letter: char| letter.is_ascii_alphabetic() || "./-".contains(letter);
            let mut entries = map.entries().into_iter();
            entries.all(|(key, _)| is_word(&key) && key.chars().all(is_allowed))
        }
        Value::Missing | Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Int64(_) | Value::List(_) => true,
        Value::Time(_) | Value::Version(_) => false,
    }
}

/// Whether a parser reads the plain text as a string.
fn stays_text(inner: &str) -> bool {
    matches!(scalar::value(&inner.to_ascii_lowercase()), Some(Json::String(_))) && !date(inner)
}

fn date(inner: &str) -> bool {
    let shape = inner
        .chars()
        .map(|letter| if letter.is_ascii_digit() { '0' } else { letter });
    shape.take(10).eq("0000-00-00".chars())
        && (inner.len() == 10 || inner.get(10..).is_some_and(|rest| rest.starts_with(['T', 't', ' '])))
}
