//! `json.marshal`, `json.marshal_with_options` and `json.is_valid`: the texts of Go's `encoding/json`.

use std::fmt::Write;

use regorus::Value;
use serde::de::IgnoredAny;

use super::numbers::holds_fraction;
use super::opa::{MAX_TEXT_BYTES, holds_object, holds_set, text};

/// Levels of arrays and objects that Go reads.
const MAX_GO_LEVELS: usize = 10_000;

/// How the parts of a value are separated.
#[derive(Clone, Copy)]
enum Layout<'a> {
    Compact,
    /// Each part has its own line.
    Lines {
        prefix: &'a str,
        indent: &'a str,
    },
}

struct Writer<'a> {
    layout: Layout<'a>,
    text: String,
}

pub(super) fn marshal(arguments: &[Value]) -> Option<Value> {
    match arguments {
        [value] => Writer::write(value, Layout::Compact),
        _ => None,
    }
}

pub(super) fn marshal_with_options(arguments: &[Value]) -> Option<Value> {
    let [value, Value::Object(options)] = arguments else {
        return None;
    };
    let (mut prefix, mut indent, mut pretty) = ("", "\t", None);
    for (name, option) in options.iter() {
        match (text(name)?, option) {
            ("prefix", Value::String(text)) => prefix = text,
            ("indent", Value::String(text)) => indent = text,
            ("pretty", Value::Bool(option)) => pretty = Some(*option),
            _ => return None,
        }
    }
    let is_styled = options.iter().any(|(name, _)| text(name) != Some("pretty"));
    let layout = match pretty.unwrap_or(is_styled) {
        true => Layout::Lines { prefix, indent },
        false => Layout::Compact,
    };
    Writer::write(value, layout)
}

impl<'a> Writer<'a> {
    /// `None` also for a text of more than [`MAX_TEXT_BYTES`].
    fn write(value: &Value, layout: Layout<'a>) -> Option<Value> {
        let mut writer = Self {
            layout,
            text: String::new(),
        };
        if let Layout::Lines { prefix, .. } = layout {
            writer.text.push_str(prefix);
        }
        writer.value(value, 0)?;
        Some(Value::from(writer.text))
    }

    fn value(&mut self, value: &Value, level: usize) -> Option<()> {
        match value {
            Value::Null => self.text.push_str("null"),
            Value::Bool(value) => self.text.push_str(if *value { "true" } else { "false" }),
            // OPA shows other numbers as they were written.
            Value::Number(_) if holds_fraction(value) => return None,
            Value::Number(_) => write!(self.text, "{}", value.as_i64().ok()?).ok()?,
            Value::String(text) => self.string(text)?,
            Value::Array(items) => self.parts('[', ']', level, items.iter().map(|item| (None, item)))?,
            // The engine orders a set before an object.
            Value::Set(items) if items.iter().any(holds_set) && items.iter().any(holds_object) => return None,
            Value::Set(items) => self.parts('[', ']', level, items.iter().map(|item| (None, item)))?,
            Value::Object(entries) => {
                let entries = entries.iter_sorted().map(|(key, value)| (Some(key), value));
                self.parts('{', '}', level, entries)?;
            }
            Value::Undefined => return None,
        }
        (self.text.len() <= MAX_TEXT_BYTES).then_some(())
    }

    fn parts<'v>(
        &mut self,
        open: char,
        close: char,
        level: usize,
        parts: impl Iterator<Item = (Option<&'v Value>, &'v Value)>,
    ) -> Option<()> {
        self.text.push(open);
        let mut is_empty = true;
        for (key, part) in parts {
            if !is_empty {
                self.text.push(',');
            }
            is_empty = false;
            self.line(level + 1)?;
            if let Some(key) = key {
                // OPA writes out a key that is no text.
                self.string(text(key)?)?;
                self.text.push(':');
                if let Layout::Lines { .. } = self.layout {
                    self.text.push(' ');
                }
            }
            self.value(part, level + 1)?;
        }
        if !is_empty {
            self.line(level)?;
        }
        self.text.push(close);
        Some(())
    }

    /// `None` if the text would be longer than [`MAX_TEXT_BYTES`] with so many bytes more.
    fn check_room(&self, bytes: usize) -> Option<()> {
        (self.text.len().checked_add(bytes)? <= MAX_TEXT_BYTES).then_some(())
    }

    /// Starts a line, in a layout that has them.
    fn line(&mut self, level: usize) -> Option<()> {
        let Layout::Lines { prefix, indent } = self.layout else {
            return Some(());
        };
        self.check_room(indent.len().checked_mul(level)?.checked_add(prefix.len())?)?;
        self.text.push('\n');
        self.text.push_str(prefix);
        self.text.push_str(&indent.repeat(level));
        Some(())
    }

    fn string(&mut self, text: &str) -> Option<()> {
        self.check_room(text.len())?;
        self.text.push('"');
        for letter in text.chars() {
            match letter {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                // Go escapes what HTML and JavaScript would act on, too.
                '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    write!(self.text, "\\u{:04x}", u32::from(letter)).ok()?;
                }
                letter => self.text.push(letter),
            }
        }
        self.text.push('"');
        Some(())
    }
}

/// `None` also for more than [`MAX_GO_LEVELS`] brackets.
pub(super) fn is_valid(arguments: &[Value]) -> Option<Value> {
    let [value] = arguments else { return None };
    let Some(json) = text(value) else {
        return Some(false.into());
    };
    let brackets = json.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    (brackets < MAX_GO_LEVELS).then(|| serde_json::from_str::<IgnoredAny>(json).is_ok().into())
}

#[cfg(test)]
mod tests {
    use regorus::Value;

    use super::super::opa::MAX_TEXT_BYTES;
    use super::{Layout, Writer};

    #[test]
    fn a_text_that_gets_too_long_is_given_up_at_once() {
        let nested = (0..200).fold(Value::from(1), |value, _| Value::from(vec![value]));
        // Each line is shorter than a text may be.
        for (indent, fits) in [("  ", true), (&*" ".repeat(4_000), false)] {
            let mut writer = Writer {
                layout: Layout::Lines { prefix: "", indent },
                text: String::new(),
            };
            assert_eq!(writer.value(&nested, 0).is_some(), fits);
            assert!(writer.text.len() <= MAX_TEXT_BYTES, "{}", writer.text.len());
        }
    }
}
