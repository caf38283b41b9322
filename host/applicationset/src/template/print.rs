//! Prints values and numbers as Go's `fmt` does for `%v`.

use std::ops::Range;
use std::rc::Rc;

use super::ExecError;
use super::functions::printf;
use super::value::{Heap, Value};

/// A value as a string: strings as they are, everything else as `%v`.
pub(super) fn text_of(heap: &Heap<'_>, value: &Value) -> Result<Rc<str>, ExecError> {
    if let Value::Text(text) = value {
        return Ok(Rc::clone(text));
    }
    let mut text = String::new();
    printf::show(heap, &mut text, value)?;
    Ok(text.into())
}

/// The shortest digits of a number and the position of its decimal point: `0.d1d2d3 * 10^point`.
pub(super) fn digits(number: f64) -> (String, i32) {
    split(&format!("{:e}", number.abs()))
}

/// As [`digits`], rounded to this many digits after the first.
pub(super) fn rounded_digits(number: f64, places: usize) -> (String, i32) {
    split(&format!("{:.places$e}", number.abs()))
}

fn split(text: &str) -> (String, i32) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let digits = mantissa.chars().filter(char::is_ascii_digit).collect();
    (digits, exponent.parse::<i32>().unwrap_or(0) + 1)
}

/// Number of digits at which a value may be exactly between two others; Go then rounds the last
/// digit to even.
const AMBIGUOUS_DIGITS: usize = 17;

/// Refuses a number for which Go may choose another last digit in the shortest form.
pub(super) fn refuse_halfway(heap: &Heap<'_>, number: f64) -> Result<(), ExecError> {
    let is_halfway = number.is_finite() && digits(number).0.len() >= AMBIGUOUS_DIGITS;
    heap.refuse_divergent(is_halfway, || format!("a number of {AMBIGUOUS_DIGITS} digits"))
}

pub(super) fn special(number: f64) -> Option<&'static str> {
    match number {
        f64::INFINITY => Some("+Inf"),
        f64::NEG_INFINITY => Some("-Inf"),
        number => number.is_nan().then_some("NaN"),
    }
}

/// `%v` of a `float64`: the fewest digits that identify it, with an exponent if that is below -4
/// or from 6 on.
pub(crate) fn general(number: f64) -> String {
    if let Some(text) = special(number) {
        return text.to_owned();
    }
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let (digits, point) = digits(number);
    format!("{sign}{}", written(&digits, point, -4..6))
}

/// Digits with an exponent if that is not in the range.
pub(super) fn written(digits: &str, point: i32, without_exponent: Range<i32>) -> String {
    match without_exponent.contains(&(point - 1)) {
        true => plain(digits, point),
        false => scientific(digits, point - 1),
    }
}

/// Digits with a decimal point and without an exponent.
fn plain(digits: &str, point: i32) -> String {
    let Ok(point) = usize::try_from(point) else {
        return format!("0.{}{digits}", "0".repeat(usize::try_from(-point).unwrap_or(0)));
    };
    match digits.split_at_checked(point) {
        Some(("", fraction)) if fraction.chars().all(|digit| digit == '0') => "0".to_owned(),
        Some(("", fraction)) => format!("0.{fraction}"),
        Some((whole, "")) => whole.to_owned(),
        Some((whole, fraction)) => format!("{whole}.{fraction}"),
        None => format!("{digits}{}", "0".repeat(point - digits.len())),
    }
}

/// Digits with an exponent of at least two digits.
pub(super) fn scientific(digits: &str, exponent: i32) -> String {
    let (first, rest) = digits.split_at_checked(1).unwrap_or((digits, ""));
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{first}{point}{rest}e{sign}{:02}", exponent.abs())
}
