//! `printf`, with the output of Go's `fmt`.
//!
//! Invariant: the width and precision of a verb are bounded.

use std::iter::Peekable;
use std::str::Chars;

use super::Args;
use crate::template::value::{Heap, Value, check_depth, size as bytes};
use crate::template::{ExecError, layout, print};

/// The largest width or precision that Go accepts.
const TOO_LARGE: u64 = 1_000_000;

/// The flags, width and precision between `%` and the verb.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the format")]
struct Flags {
    plus: bool,
    minus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// What is left of a format and of its arguments.
struct Cursor<'v> {
    letters: Peekable<Chars<'v>>,
    values: &'v [Value],
    next: usize,
    /// An explicit index was used (`%[2]d`); then unused arguments are not reported.
    reordered: bool,
    bad_index: bool,
}

pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let mut cursor = Cursor {
        letters: args.text(0)?.chars().peekable(),
        values: args.rest(1),
        next: 0,
        reordered: false,
        bad_index: false,
    };
    let mut text = String::new();
    while let Some(letter) = cursor.letters.next() {
        heap.step()?;
        match letter {
            '%' => cursor.directive(heap, &mut text)?,
            _ => text.push(letter),
        }
    }
    let unused = args.rest(1 + cursor.next);
    if !cursor.reordered && !unused.is_empty() {
        extra(heap, &mut text, unused)?;
    }
    heap.text(text)
}

fn extra(heap: &Heap<'_>, text: &mut String, values: &[Value]) -> Result<(), ExecError> {
    text.push_str("%!(EXTRA ");
    for (index, value) in values.iter().enumerate() {
        text.push_str(if index > 0 { ", " } else { "" });
        text.push_str(value.type_name());
        if !value.is_nil() {
            text.push('=');
            show(heap, text, value)?;
        }
    }
    text.push(')');
    Ok(())
}

impl<'v> Cursor<'v> {
    /// Appends what stands for a `%` and the letters after it.
    fn directive(&mut self, heap: &Heap<'_>, text: &mut String) -> Result<(), ExecError> {
        self.bad_index = false;
        let mut flags = Flags::default();
        while let Some(flag) = self.letters.next_if(|letter| "+-# 0".contains(*letter)) {
            match flag {
                '+' => flags.plus = true,
                '-' => flags.minus = true,
                '#' => flags.sharp = true,
                ' ' => flags.space = true,
                _ => flags.zero = true,
            }
        }
        self.index();
        match self.size() {
            Ok(None) => {}
            Ok(Some(width)) => {
                flags.minus |= width < 0;
                flags.width = usize::try_from(width.unsigned_abs()).ok();
            }
            Err(()) => text.push_str("%!(BADWIDTH)"),
        }
        if self.letters.next_if_eq(&'.').is_some() {
            self.index();
            match self.size() {
                Ok(precision) => flags.precision = usize::try_from(precision.unwrap_or(0)).ok(),
                Err(()) => text.push_str("%!(BADPREC)"),
            }
        }
        self.index();
        flags.zero &= !flags.minus;
        heap.fits(flags.width.unwrap_or(0).saturating_add(flags.precision.unwrap_or(0)), 4)?;
        match self.letters.next() {
            None => text.push_str("%!(NOVERB)"),
            Some('%') => text.push('%'),
            Some(verb) if self.bad_index => text.push_str(&format!("%!{verb}(BADINDEX)")),
            Some(verb) => match self.take() {
                None => text.push_str(&format!("%!{verb}(MISSING)")),
                Some(value) => {
                    shown(heap, text, value, verb, flags, 0)?;
                    heap.charge(bytes(flags.width.unwrap_or(0)))?;
                }
            },
        }
        Ok(())
    }

    fn take(&mut self) -> Option<&'v Value> {
        let value = self.values.get(self.next);
        self.next += usize::from(value.is_some());
        value
    }

    fn letters_while(&mut self, wanted: fn(&char) -> bool) -> String {
        std::iter::from_fn(|| self.letters.next_if(wanted)).collect()
    }

    /// `[2]`: selects the next argument.
    fn index(&mut self) {
        if self.letters.next_if_eq(&'[').is_none() {
            return;
        }
        self.reordered = true;
        let place = self.letters_while(|letter| *letter != ']').parse::<usize>();
        self.letters.next();
        match place {
            Ok(place) if place >= 1 && place <= self.values.len() => self.next = place - 1,
            _ => self.bad_index = true,
        }
    }

    /// A width or precision, if there is one.
    fn size(&mut self) -> Result<Option<i64>, ()> {
        let size = if self.letters.next_if_eq(&'*').is_some() {
            match self.take() {
                Some(Value::Int(size) | Value::Int64(size)) => *size,
                _ => return Err(()),
            }
        } else {
            match self.letters_while(char::is_ascii_digit) {
                digits if digits.is_empty() => return Ok(None),
                digits => digits.parse().map_err(|_| ())?,
            }
        };
        (size.unsigned_abs() <= TOO_LARGE).then_some(Some(size)).ok_or(())
    }
}

/// Appends a value to `text` as `%v` formats it.
pub(in crate::template) fn show(heap: &Heap<'_>, text: &mut String, value: &Value) -> Result<(), ExecError> {
    shown(heap, text, value, 'v', Flags::default(), 0)
}

/// - `depth`: of `value` in the one that is printed.
fn shown(
    heap: &Heap<'_>,
    text: &mut String,
    value: &Value,
    verb: char,
    flags: Flags,
    depth: usize,
) -> Result<(), ExecError> {
    check_depth(depth)?;
    heap.charge(8 + bytes(flags.width.unwrap_or(0)))?;
    let is_number = matches!(value, Value::Int(_) | Value::Int64(_) | Value::Float(_));
    heap.refuse_divergent(verb == 'q' && is_number, || "`printf` with `%q` of a number".to_owned())?;
    if let Value::Float(number) = value {
        print::refuse_halfway(heap, *number)?;
    }
    if verb == 'T' {
        pad(text, value.type_name(), flags);
        return Ok(());
    }
    match value {
        Value::Missing | Value::Nil if depth > 0 => text.push_str("<nil>"),
        Value::Missing | Value::Nil if verb == 'v' => pad(text, "<nil>", flags),
        Value::Missing | Value::Nil => text.push_str(&format!("%!{verb}(<nil>)")),
        Value::List(list) => {
            text.push('[');
            for (index, item) in list.items.iter().enumerate() {
                text.push_str(if index > 0 { " " } else { "" });
                shown(heap, text, item, verb, flags, depth + 1)?;
            }
            text.push(']');
        }
        Value::Map(map) => {
            text.push_str("map[");
            for (index, (key, item)) in map.entries().into_iter().enumerate() {
                text.push_str(if index > 0 { " " } else { "" });
                shown(heap, text, &Value::Text(key), verb, flags, depth + 1)?;
                text.push(':');
                shown(heap, text, &item, verb, flags, depth + 1)?;
            }
            text.push(']');
        }
        Value::Time(time) => {
            let inner = Value::Text(layout::written(time).into());
            shown(heap, text, &inner, verb, flags, depth)?;
        }
        Value::Version(version) => {
            let inner = Value::Text(version.to_string().into());
            shown(heap, text, &inner, verb, flags, depth)?;
        }
        Value::Text(inner) if verb == 'v' && flags == Flags::default() => {
            heap.charge(bytes(inner.len()))?;
            text.push_str(inner);
        }
        Value::Bool(_) | Value::Int(_) | Value::Int64(_) | Value::Float(_) | Value::Text(_) => {
            match scalar(heap, value, verb, flags)? {
                Some(inner) if is_number => pad_number(text, &inner, flags),
                Some(inner) => pad(text, &inner, flags),
                // A value that does not support the verb is shown with `v` and the flags.
                None => {
                    text.push_str(&format!("%!{verb}({}=", value.type_name()));
                    shown(heap, text, value, 'v', flags, depth)?;
                    text.push(')');
                }
            }
        }
    }
    Ok(())
}

/// A value without its padding; `None` if it does not support the verb.
fn scalar(heap: &Heap<'_>, value: &Value, verb: char, flags: Flags) -> Result<Option<String>, ExecError> {
    Ok(match value {
        Value::Bool(yes) => matches!(verb, 't' | 'v').then(|| yes.to_string()),
        Value::Int(number) | Value::Int64(number) => integer(*number, verb, flags),
        Value::Float(number) => float(*number, verb, flags),
        Value::Text(inner) => {
            // Escapes may make it longer.
            heap.charge(bytes(inner.len()).saturating_mul(4))?;
            heap.refuse_divergent(verb == 'q' && !inner.is_ascii(), || {
                "`printf` with `%q` of other letters than ASCII".to_owned()
            })?;
            string(inner, verb, flags)
        }
        _ => None,
    })
}

fn pad(text: &mut String, inner: &str, flags: Flags) {
    let missing = flags.width.unwrap_or(0).saturating_sub(inner.chars().count());
    let filler = std::iter::repeat_n(if flags.zero { '0' } else { ' ' }, missing);
    if flags.minus {
        text.push_str(inner);
        text.extend(filler);
    } else {
        text.extend(filler);
        text.push_str(inner);
    }
}

/// Inserts zeros between the sign and the digits.
fn pad_number(text: &mut String, inner: &str, flags: Flags) {
    let zero = flags.zero && !inner.ends_with("Inf") && !inner.ends_with("NaN");
    let digits = inner.strip_prefix(['+', '-', ' ']).filter(|_| zero).unwrap_or(inner);
    let sign = inner.len() - digits.len();
    text.push_str(inner.get(..sign).unwrap_or_default());
    let width = flags.width.map(|width| width.saturating_sub(sign));
    pad(text, digits, Flags { zero, width, ..flags });
}

fn sign(negative: bool, flags: Flags) -> &'static str {
    match (negative, flags.plus, flags.space) {
        (true, _, _) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        (false, false, false) => "",
    }
}

fn integer(number: i64, verb: char, flags: Flags) -> Option<String> {
    let size = number.unsigned_abs();
    let letter = u32::try_from(number).ok().and_then(char::from_u32);
    let letter = letter.unwrap_or(char::REPLACEMENT_CHARACTER);
    let (prefix, digits) = match verb {
        'd' | 'v' => ("", size.to_string()),
        'b' => ("0b", format!("{size:b}")),
        'o' => ("0", format!("{size:o}")),
        'O' => ("", format!("0o{size:o}")),
        'x' => ("0x", format!("{size:x}")),
        'X' => ("0X", format!("{size:X}")),
        'c' => return Some(letter.to_string()),
        'q' => return Some(format!("'{}'", quoted(&letter.to_string()).trim_matches('"'))),
        'U' => return Some(format!("U+{size:04X}")),
        _ => return None,
    };
    let prefix = if flags.sharp { prefix } else { "" };
    let zeros = "0".repeat(flags.precision.unwrap_or(0).saturating_sub(digits.len()));
    Some(format!("{}{prefix}{zeros}{digits}", sign(number < 0, flags)))
}

fn float(number: f64, verb: char, flags: Flags) -> Option<String> {
    if !"vgGeEfF".contains(verb) {
        return None;
    }
    if let Some(special) = print::special(number) {
        // Infinity always has a sign.
        let sign = if flags.plus && special == "NaN" { "+" } else { "" };
        return Some(format!("{sign}{special}"));
    }
    let size = number.abs();
    let text = match verb {
        'f' | 'F' => fixed(size, flags.precision.unwrap_or(6)),
        'e' | 'E' => exponent(size, flags.precision.unwrap_or(6)),
        _ => match flags.precision {
            None => print::general(size),
            Some(precision) => significant(size, precision.max(1)),
        },
    };
    let text = format!("{}{text}", sign(number.is_sign_negative(), flags));
    let is_upper = verb.is_ascii_uppercase();
    Some(if is_upper { text.to_ascii_uppercase() } else { text })
}

/// Digits behind the point of a float at most: further ones are zeros. 2^-1074, the smallest, has
/// that many.
const DIGITS: usize = 1_074;

/// `ddd.ddd`, with `places` digits behind the point.
fn fixed(size: f64, places: usize) -> String {
    // Rust's formatter panics on a precision above 65,535.
    format!("{size:.*}{}", places.min(DIGITS), zeros(places))
}

/// The zeros behind the first [`DIGITS`] digits.
fn zeros(places: usize) -> String {
    "0".repeat(places.saturating_sub(DIGITS))
}

/// `d.ddde+dd`
fn exponent(size: f64, precision: usize) -> String {
    let (digits, point) = print::rounded_digits(size, precision.min(DIGITS));
    print::scientific(&(digits + &zeros(precision)), point - 1)
}

/// The given number of significant digits, without trailing zeros.
fn significant(size: f64, precision: usize) -> String {
    let (digits, point) = print::rounded_digits(size, (precision - 1).min(DIGITS));
    let most = i32::try_from(precision).unwrap_or(i32::MAX);
    print::written(digits.trim_end_matches('0'), point, -4..most)
}

fn string(inner: &str, verb: char, flags: Flags) -> Option<String> {
    let cut: String = match flags.precision {
        Some(precision) if matches!(verb, 's' | 'v' | 'q') => inner.chars().take(precision).collect(),
        _ => inner.to_owned(),
    };
    match verb {
        's' | 'v' => Some(cut),
        'q' if flags.sharp && !cut.contains(['`', '\n', '\r']) => Some(format!("`{cut}`")),
        'q' if flags.plus => Some(quoted_as(&cut, true)),
        'q' => Some(quoted(&cut)),
        'x' => Some(cut.bytes().map(|byte| format!("{byte:02x}")).collect()),
        'X' => Some(cut.bytes().map(|byte| format!("{byte:02X}")).collect()),
        _ => None,
    }
}

/// Quotes a string as in Go source code.
pub(super) fn quoted(inner: &str) -> String {
    quoted_as(inner, false)
}

/// - `ascii`: whether characters outside ASCII are escaped.
fn quoted_as(inner: &str, ascii: bool) -> String {
    let mut text = String::with_capacity(inner.len() + 2);
    text.push('"');
    for letter in inner.chars() {
        let is_blank = letter != ' ' && (letter.is_control() || letter.is_whitespace() || letter == '\u{feff}');
        match letter {
            '"' | '\\' => text.extend(['\\', letter]),
            '\u{7}' => text.push_str("\\a"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{b}' => text.push_str("\\v"),
            other if other.is_ascii_control() => text.push_str(&format!("\\x{:02x}", u32::from(other))),
            '\u{10000}'.. if ascii => text.push_str(&format!("\\U{:08x}", u32::from(letter))),
            other if is_blank || (ascii && !other.is_ascii()) => {
                text.push_str(&format!("\\u{:04x}", u32::from(other)));
            }
            other => text.push(other),
        }
    }
    text.push('"');
    text
}
