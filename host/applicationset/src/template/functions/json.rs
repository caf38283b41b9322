//! Writes a value as JSON the way Go does.
//!
//! Invariant: the walk through nested values is bounded.

use std::fmt::Write as _;

use super::super::value::{Heap, Value, check_depth, size};
use super::super::{ExecError, layout, print};
use super::Args;

/// Whether the output is indented, and whether `<`, `>` and `&` are escaped.
#[derive(Clone, Copy)]
pub(super) struct Style {
    pub(super) pretty: bool,
    pub(super) html: bool,
}

/// Writes `value` as JSON.
///
/// # Errors
/// A number that JSON cannot represent.
pub(super) fn write(heap: &mut Heap<'_>, args: &Args<'_>, style: Style) -> Result<String, ExecError> {
    let mut text = String::new();
    value(heap, args, &mut text, (args.arg(0), style, 0))?;
    Ok(text)
}

fn value(
    heap: &mut Heap<'_>,
    args: &Args<'_>,
    text: &mut String,
    (value, style, depth): (&Value, Style, usize),
) -> Result<(), ExecError> {
    check_depth(depth)?;
    heap.charge(4)?;
    match value {
        Value::Missing | Value::Nil => text.push_str("null"),
        Value::Bool(yes) => text.push_str(if *yes { "true" } else { "false" }),
        Value::Int(number) | Value::Int64(number) => {
            let _ = write!(text, "{number}");
        }
        Value::Float(float) => {
            heap.refuse_divergent(print::is_halfway(*float), print::long_number)?;
            text.push_str(&number(*float).ok_or_else(|| args.error("unsupported value"))?);
        }
        Value::Text(inner) => string(heap, text, inner, style)?,
        Value::Time(time) => {
            let _ = write!(
                text,
                "\"{}\"",
                layout::format(time, "2006-01-02T15:04:05.999999999Z07:00")
            );
        }
        Value::Version(version) => {
            let _ = write!(text, "\"{version}\"");
        }
        Value::List(list) => {
            let cells = list.items.iter().map(|item| (None, item.clone())).collect();
            return cells_of(heap, args, text, (cells, ['[', ']'], style, depth));
        }
        Value::Map(map) => {
            heap.fits(map.len(), 64)?;
            let cells = map.entries().into_iter().map(|(key, item)| (Some(key), item)).collect();
            return cells_of(heap, args, text, (cells, ['{', '}'], style, depth));
        }
    }
    Ok(())
}

type Cells = Vec<(Option<std::rc::Rc<str>>, Value)>;

fn cells_of(
    heap: &mut Heap<'_>,
    args: &Args<'_>,
    text: &mut String,
    (cells, [open, close], style, depth): (Cells, [char; 2], Style, usize),
) -> Result<(), ExecError> {
    text.push(open);
    let some = !cells.is_empty();
    for (index, (key, item)) in cells.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        line(heap, text, style, depth + 1)?;
        if let Some(key) = key {
            string(heap, text, &key, style)?;
            text.push_str(if style.pretty { ": " } else { ":" });
        }
        value(heap, args, text, (&item, style, depth + 1))?;
    }
    if some {
        line(heap, text, style, depth)?;
    }
    text.push(close);
    Ok(())
}

fn line(heap: &mut Heap<'_>, text: &mut String, style: Style, depth: usize) -> Result<(), ExecError> {
    if style.pretty {
        heap.charge(size(depth * 2 + 1))?;
        text.push('\n');
        text.push_str(&"  ".repeat(depth));
    }
    Ok(())
}

/// Formats a number as ECMAScript does.
pub(super) fn number(number: f64) -> Option<String> {
    if print::special(number).is_some() {
        return None;
    }
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let (digits, point) = print::digits(number);
    let exponent = point - 1;
    if number != 0.0 && !(-6..21).contains(&exponent) {
        let text = print::scientific(&digits, exponent, 'e').replace("e-0", "e-");
        return Some(format!("{sign}{text}"));
    }
    Some(format!("{sign}{}", print::plain(&digits, point)))
}

fn string(heap: &mut Heap<'_>, text: &mut String, inner: &str, style: Style) -> Result<(), ExecError> {
    heap.charge(size(inner.len()))?;
    let before = text.len();
    text.push('"');
    for letter in inner.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '<' | '>' | '&' if style.html => escape(text, letter),
            '\u{2028}' | '\u{2029}' => escape(text, letter),
            control if u32::from(control) < 0x20 => escape(text, control),
            other => text.push(other),
        }
    }
    text.push('"');
    heap.charge(size(text.len() - before))
}

fn escape(text: &mut String, letter: char) {
    let _ = write!(text, "\\u{:04x}", u32::from(letter));
}
