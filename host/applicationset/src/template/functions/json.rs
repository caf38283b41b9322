//! Writes a value as JSON the way Go does.
//!
//! Invariant: the walk through nested values is bounded.

use std::rc::Rc;

use super::Args;
use crate::template::value::{Heap, Value, check_depth, size};
use crate::template::{ExecError, layout, print};

/// Writes the first argument, with indentation or not, with escapes for HTML or not.
///
/// # Errors
/// A number that JSON cannot represent.
pub(super) fn write(heap: &Heap<'_>, args: &Args<'_>, pretty: bool, html: bool) -> Result<String, ExecError> {
    let mut writer = Writer {
        heap,
        args,
        pretty,
        html,
        text: String::new(),
    };
    writer.value(args.arg(0), 0)?;
    Ok(writer.text)
}

struct Writer<'w, 'h> {
    heap: &'w Heap<'h>,
    args: &'w Args<'w>,
    pretty: bool,
    html: bool,
    text: String,
}

impl Writer<'_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), ExecError> {
        check_depth(depth)?;
        self.heap.charge(4)?;
        match value {
            Value::Missing | Value::Nil => self.text.push_str("null"),
            Value::Bool(yes) => self.text.push_str(&yes.to_string()),
            Value::Int(number) | Value::Int64(number) => self.text.push_str(&number.to_string()),
            Value::Float(float) => {
                print::refuse_halfway(self.heap, *float)?;
                let text = number(*float).ok_or_else(|| self.args.error("unsupported value"))?;
                self.text.push_str(&text);
            }
            Value::Text(inner) => self.string(inner)?,
            Value::Time(time) => {
                let time = layout::format(time, layout::RFC_3339);
                self.text.push_str(&format!("\"{time}\""));
            }
            Value::Version(version) => self.text.push_str(&format!("\"{version}\"")),
            Value::List(list) => {
                let cells = list.items.iter().map(|item| (None, item.clone()));
                return self.cells(&cells.collect::<Vec<_>>(), ['[', ']'], depth);
            }
            Value::Map(map) => {
                self.heap.fits(map.len(), 64)?;
                let cells = map.entries().into_iter().map(|(key, item)| (Some(key), item));
                return self.cells(&cells.collect::<Vec<_>>(), ['{', '}'], depth);
            }
        }
        Ok(())
    }

    fn cells(
        &mut self,
        cells: &[(Option<Rc<str>>, Value)],
        [open, close]: [char; 2],
        depth: usize,
    ) -> Result<(), ExecError> {
        self.text.push(open);
        for (index, (key, item)) in cells.iter().enumerate() {
            self.text.push_str(if index > 0 { "," } else { "" });
            self.line(depth + 1)?;
            if let Some(key) = key {
                self.string(key)?;
                self.text.push_str(if self.pretty { ": " } else { ":" });
            }
            self.value(item, depth + 1)?;
        }
        if !cells.is_empty() {
            self.line(depth)?;
        }
        self.text.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) -> Result<(), ExecError> {
        if self.pretty {
            self.heap.charge(size(depth * 2 + 1))?;
            self.text.push('\n');
            self.text.push_str(&"  ".repeat(depth));
        }
        Ok(())
    }

    fn string(&mut self, inner: &str) -> Result<(), ExecError> {
        self.heap.charge(size(inner.len()))?;
        let before = self.text.len();
        self.text.push('"');
        for letter in inner.chars() {
            match letter {
                '"' | '\\' => self.text.extend(['\\', letter]),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                '<' | '>' | '&' if !self.html => self.text.push(letter),
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                    self.text.push_str(&format!("\\u{:04x}", u32::from(letter)));
                }
                other => self.text.push(other),
            }
        }
        self.text.push('"');
        // Once more, by what the escapes made of it.
        self.heap.charge(size(self.text.len() - before))
    }
}

/// Formats a number as ECMAScript does.
pub(super) fn number(number: f64) -> Option<String> {
    if print::special(number).is_some() {
        return None;
    }
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let (digits, point) = print::digits(number);
    let text = print::written(&digits, point, -6..21).replace("e-0", "e-");
    Some(format!("{sign}{text}"))
}
