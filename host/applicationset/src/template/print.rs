//! Prints values and numbers as Go's `fmt` does for `%v`.

use std::rc::Rc;

use super::ExecError;
use super::functions::printf;
use super::value::{Heap, Value};

pub(super) fn shown(heap: &mut Heap<'_>, value: &Value) -> Result<Rc<str>, ExecError> {
    if let Value::Text(text) = value {
        return Ok(Rc::clone(text));
    }
    let mut text = String::new();
    printf::show(heap, &mut text, value)?;
    Ok(text.into())
}

/// The shortest digits of a number and the position of its decimal point: `0.d1d2d3 * 10^point`.
pub(super) fn digits(number: f64) -> (String, i32) {
    let text = format!("{:e}", number.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text.as_str(), "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    (digits, exponent + 1)
}

/// Number of digits at which a value may be exactly between two others; Go then rounds the last
/// digit to even.
const AMBIGUOUS_DIGITS: usize = 17;

/// Whether Go may choose another last digit for the shortest form.
pub(super) fn is_halfway(number: f64) -> bool {
    number.is_finite() && digits(number).0.len() >= AMBIGUOUS_DIGITS
}

pub(super) fn long_number() -> String {
    format!("a number of {AMBIGUOUS_DIGITS} digits")
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
    let exponent = point - 1;
    if (-4..6).contains(&exponent) {
        return format!("{sign}{}", plain(&digits, point));
    }
    format!("{sign}{}", scientific(&digits, exponent, 'e'))
}

/// Digits with a decimal point and without an exponent.
pub(super) fn plain(digits: &str, point: i32) -> String {
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
pub(super) fn scientific(digits: &str, exponent: i32, letter: char) -> String {
    let (first, rest) = digits.split_at_checked(1).unwrap_or((digits, ""));
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{first}{point}{rest}{letter}{sign}{:02}", exponent.abs())
}
