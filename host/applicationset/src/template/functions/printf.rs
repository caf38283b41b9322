//! `printf`, with the output of Go's `fmt`.
//!
//! Invariant: the width and precision of a verb are bounded.

use std::iter::Peekable;
use std::str::Chars;

use super::super::value::{Heap, Value, check_depth, size as bytes};
use super::super::{ExecError, layout, print};
use super::{Args, Signature, VARIADIC};

pub(super) const NAMES: &[Signature] = &[(1, VARIADIC, "printf")];

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

struct Cursor<'v> {
    values: &'v [Value],
    next: usize,
    /// An explicit index was used (`%[2]d`); then unused arguments are not reported.
    reordered: bool,
    bad_index: bool,
}

impl<'v> Cursor<'v> {
    fn take(&mut self) -> Option<&'v Value> {
        let value = self.values.get(self.next);
        self.next += usize::from(value.is_some());
        value
    }
}

pub(super) fn call(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let format = args.text(0)?;
    let mut cursor = Cursor {
        values: args.rest(1),
        next: 0,
        reordered: false,
        bad_index: false,
    };
    let mut text = String::new();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        heap.step()?;
        if letter != '%' {
            text.push(letter);
            continue;
        }
        cursor.bad_index = false;
        directive(heap, &mut text, (&mut letters, &mut cursor))?;
    }
    if !cursor.reordered && cursor.next < cursor.values.len() {
        extra(heap, &mut text, args.rest(1 + cursor.next))?;
    }
    heap.text(text)
}

fn extra(heap: &mut Heap<'_>, text: &mut String, values: &[Value]) -> Result<(), ExecError> {
    text.push_str("%!(EXTRA ");
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        text.push_str(value.type_name());
        if !value.is_nil() {
            text.push('=');
            show(heap, text, value)?;
        }
    }
    text.push(')');
    Ok(())
}

fn directive(
    heap: &mut Heap<'_>,
    text: &mut String,
    (letters, cursor): (&mut Peekable<Chars<'_>>, &mut Cursor<'_>),
) -> Result<(), ExecError> {
    let mut flags = Flags::default();
    while let Some(flag) = letters.next_if(|letter| "+-# 0".contains(*letter)) {
        match flag {
            '+' => flags.plus = true,
            '-' => flags.minus = true,
            '#' => flags.sharp = true,
            ' ' => flags.space = true,
            _ => flags.zero = true,
        }
    }
    index(letters, cursor);
    match size(letters, cursor) {
        Ok(None) => {}
        Ok(Some(width)) => {
            flags.minus |= width < 0;
            flags.width = usize::try_from(width.unsigned_abs()).ok();
        }
        Err(()) => text.push_str("%!(BADWIDTH)"),
    }
    if letters.next_if_eq(&'.').is_some() {
        index(letters, cursor);
        match size(letters, cursor) {
            Ok(precision) => flags.precision = usize::try_from(precision.unwrap_or(0)).ok(),
            Err(()) => text.push_str("%!(BADPREC)"),
        }
    }
    index(letters, cursor);
    flags.zero &= !flags.minus;
    heap.fits(flags.width.unwrap_or(0).saturating_add(flags.precision.unwrap_or(0)), 4)?;
    text.push_str(&match letters.next() {
        None => "%!(NOVERB)".to_owned(),
        Some('%') => "%".to_owned(),
        Some(verb) if cursor.bad_index => format!("%!{verb}(BADINDEX)"),
        Some(verb) => match cursor.take() {
            None => format!("%!{verb}(MISSING)"),
            Some(value) => {
                shown(heap, text, value, (verb, flags, 0))?;
                return heap.charge(bytes(flags.width.unwrap_or(0)));
            }
        },
    });
    Ok(())
}

/// `[2]`: selects the next argument.
fn index(letters: &mut Peekable<Chars<'_>>, cursor: &mut Cursor<'_>) {
    if letters.next_if_eq(&'[').is_none() {
        return;
    }
    cursor.reordered = true;
    let digits: String = std::iter::from_fn(|| letters.next_if(|letter| *letter != ']')).collect();
    letters.next();
    match digits.parse::<usize>() {
        Ok(place) if place >= 1 && place <= cursor.values.len() => cursor.next = place - 1,
        _ => cursor.bad_index = true,
    }
}

/// A width or precision, if there is one.
fn size(letters: &mut Peekable<Chars<'_>>, cursor: &mut Cursor<'_>) -> Result<Option<i64>, ()> {
    if letters.next_if_eq(&'*').is_some() {
        return match cursor.take() {
            Some(Value::Int(size) | Value::Int64(size)) if size.unsigned_abs() <= TOO_LARGE => Ok(Some(*size)),
            _ => Err(()),
        };
    }
    let digits: String = std::iter::from_fn(|| letters.next_if(char::is_ascii_digit)).collect();
    match digits.parse::<i64>() {
        Ok(size) if size.unsigned_abs() <= TOO_LARGE => Ok(Some(size)),
        _ if digits.is_empty() => Ok(None),
        _ => Err(()),
    }
}

/// The verb, its flags, and the depth of the value that it prints.
type Verb = (char, Flags, usize);

/// Appends a value to `text` as `%v` formats it.
pub(in crate::template) fn show(heap: &mut Heap<'_>, text: &mut String, value: &Value) -> Result<(), ExecError> {
    shown(heap, text, value, ('v', Flags::default(), 0))
}

fn shown(heap: &mut Heap<'_>, text: &mut String, value: &Value, (verb, flags, depth): Verb) -> Result<(), ExecError> {
    check_depth(depth)?;
    heap.charge(8 + bytes(flags.width.unwrap_or(0)))?;
    let is_number = matches!(value, Value::Int(_) | Value::Int64(_) | Value::Float(_));
    heap.refuse_divergent(verb == 'q' && is_number, || "`printf` with `%q` of a number".to_owned())?;
    if let Value::Float(number) = value {
        heap.refuse_divergent(print::is_halfway(*number), print::long_number)?;
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
                if index > 0 {
                    text.push(' ');
                }
                shown(heap, text, item, (verb, flags, depth + 1))?;
            }
            text.push(']');
        }
        Value::Map(map) => {
            text.push_str("map[");
            for (index, (key, item)) in map.entries().into_iter().enumerate() {
                if index > 0 {
                    text.push(' ');
                }
                shown(heap, text, &Value::Text(key), (verb, flags, depth + 1))?;
                text.push(':');
                shown(heap, text, &item, (verb, flags, depth + 1))?;
            }
            text.push(']');
        }
        Value::Time(time) => {
            let inner = Value::Text(layout::written(time).into());
            return shown(heap, text, &inner, (verb, flags, depth));
        }
        Value::Version(version) => {
            let inner = Value::Text(version.to_string().into());
            return shown(heap, text, &inner, (verb, flags, depth));
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
                    shown(heap, text, value, ('v', flags, depth))?;
                    text.push(')');
                }
            }
        }
    }
    Ok(())
}

/// A value without its padding; `None` if it does not support the verb.
fn scalar(heap: &mut Heap<'_>, value: &Value, verb: char, flags: Flags) -> Result<Option<String>, ExecError> {
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
    let infinite = inner.ends_with("Inf") || inner.ends_with("NaN");
    let flags = Flags {
        zero: flags.zero && !infinite,
        ..flags
    };
    let sign = inner.chars().next().filter(|first| matches!(first, '+' | '-' | ' '));
    match (sign, flags.zero) {
        (Some(sign), true) => {
            text.push(sign);
            let inner = inner.get(1..).unwrap_or_default();
            let width = flags.width.map(|width| width.saturating_sub(1));
            pad(text, inner, Flags { width, ..flags });
        }
        _ => pad(text, inner, flags),
    }
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
    let letter = || {
        u32::try_from(number)
            .ok()
            .and_then(char::from_u32)
            .unwrap_or('\u{fffd}')
    };
    let (prefix, digits) = match verb {
        'd' | 'v' => ("", size.to_string()),
        'b' => ("0b", format!("{size:b}")),
        'o' => ("0", format!("{size:o}")),
        'O' => ("", format!("0o{size:o}")),
        'x' => ("0x", format!("{size:x}")),
        'X' => ("0X", format!("{size:X}")),
        'c' => return Some(letter().to_string()),
        'q' => return Some(format!("'{}'", quoted(&letter().to_string()).trim_matches('"'))),
        'U' => return Some(format!("U+{size:04X}")),
        _ => return None,
    };
    let prefix = if flags.sharp { prefix } else { "" };
    let zeros = flags.precision.unwrap_or(0).saturating_sub(digits.len());
    Some(format!(
        "{}{prefix}{}{digits}",
        sign(number < 0, flags),
        "0".repeat(zeros)
    ))
}

fn float(number: f64, verb: char, flags: Flags) -> Option<String> {
    if !"vgGeEfF".contains(verb) {
        return None;
    }
    if let Some(special) = print::special(number) {
        // Infinity always has a sign.
        let sign = match special {
            "NaN" if flags.plus => "+",
            _ => "",
        };
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
    let text = format!("{size:.*e}", precision.min(DIGITS));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}{}e{sign}{:02}", zeros(precision), exponent.abs())
}

/// The given number of significant digits, without trailing zeros.
fn significant(size: f64, precision: usize) -> String {
    let text = exponent(size, precision - 1);
    let (mantissa, tail) = text.split_once('e').unwrap_or((&text, "+00"));
    let power: i32 = tail.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if power < -4 || power >= i32::try_from(precision).unwrap_or(i32::MAX) {
        return format!("{}e{tail}", trimmed(mantissa));
    }
    let places = usize::try_from(i32::try_from(precision).unwrap_or(i32::MAX) - 1 - power).unwrap_or(0);
    trimmed(&fixed(size, places))
}

fn string(inner: &str, verb: char, flags: Flags) -> Option<String> {
    let cut: String = match flags.precision {
        Some(precision) if matches!(verb, 's' | 'v' | 'q') => inner.chars().take(precision).collect(),
        _ => inner.to_owned(),
    };
    match verb {
        's' | 'v' => Some(cut),
        'q' if flags.sharp && !cut.contains(['`', '\n', '\r']) => Some(format!("`{cut}`")),
        'q' if flags.plus => Some(ascii(&quoted(&cut))),
        'q' => Some(quoted(&cut)),
        'x' => Some(cut.bytes().map(|byte| format!("{byte:02x}")).collect()),
        'X' => Some(cut.bytes().map(|byte| format!("{byte:02X}")).collect()),
        _ => None,
    }
}

/// Escapes characters outside ASCII.
fn ascii(quoted: &str) -> String {
    let mut text = String::with_capacity(quoted.len());
    for letter in quoted.chars() {
        match u32::from(letter) {
            0..=0x7f => text.push(letter),
            short @ 0x80..=0xffff => text.push_str(&format!("\\u{short:04x}")),
            long => text.push_str(&format!("\\U{long:08x}")),
        }
    }
    text
}

/// Quotes a string as in Go source code.
pub(super) fn quoted(inner: &str) -> String {
    let mut text = String::with_capacity(inner.len() + 2);
    text.push('"');
    for letter in inner.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{7}' => text.push_str("\\a"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{b}' => text.push_str("\\v"),
            other if other.is_ascii_control() => text.push_str(&format!("\\x{:02x}", u32::from(other))),
            other if other != ' ' && (other.is_control() || other.is_whitespace() || other == '\u{feff}') => {
                text.push_str(&format!("\\u{:04x}", u32::from(other)));
            }
            other => text.push(other),
        }
    }
    text.push('"');
    text
}
