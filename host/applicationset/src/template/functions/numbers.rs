//! Template functions for arithmetic.

use std::ops::{Add as _, Div as _, Mul as _, Sub as _};

use super::Args;
use crate::template::value::{ElementType, Heap, Value};
use crate::template::{ExecError, print};

pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let first = args.arg(0);
    let number = match args.name {
        "add" => wholes(heap, args)?.into_iter().fold(0, i64::wrapping_add),
        "add1" => bounded(heap, first)?.wrapping_add(1),
        "biggest" | "max" => wholes(heap, args)?.into_iter().max().unwrap_or(0),
        "div" => i64::wrapping_div(bounded(heap, first)?, divisor(heap, args)?),
        "int64" => bounded(heap, first)?,
        "min" => wholes(heap, args)?.into_iter().min().unwrap_or(0),
        "mod" => i64::wrapping_rem(bounded(heap, first)?, divisor(heap, args)?),
        "mul" => wholes(heap, args)?.into_iter().fold(1, i64::wrapping_mul),
        "sub" => bounded(heap, first)?.wrapping_sub(bounded(heap, args.arg(1))?),
        "toDecimal" => i64::from_str_radix(&print::text_of(heap, first)?, 8).unwrap_or(0),
        _ => return other(heap, args),
    };
    Ok(Value::Int64(number))
}

/// The functions whose result is no `int64`.
fn other(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let first = args.arg(0);
    match args.name {
        "add1f" => exact(&[float(first), 1.0], ADD),
        "addf" => exact(&[&[0.0], &*floats(args)].concat(), ADD),
        "atoi" => Ok(Value::Int(atoi(args.text(0)?))),
        "ceil" => Ok(Value::Float(float(first).ceil())),
        "divf" if floats(args).iter().skip(1).any(|number| *number == 0.0) => Err(args.error("decimal division by 0")),
        "divf" => exact(&floats(args), DIVIDE),
        "float64" => Ok(Value::Float(float(first))),
        "floor" => Ok(Value::Float(float(first).floor())),
        "int" => Ok(Value::Int(bounded(heap, first)?)),
        "maxf" => Ok(Value::Float(extreme(args, |best, next| next > best))),
        "minf" => Ok(Value::Float(extreme(args, |best, next| next < best))),
        "mulf" => exact(&floats(args), MULTIPLY),
        "round" => round(args),
        "seq" => seq(heap, args),
        "subf" => exact(&floats(args), SUBTRACT),
        "until" => {
            let count = args.int(0)?;
            numbers(heap, args, 0, count, if count < 0 { -1 } else { 1 })
        }
        "untilStep" => numbers(heap, args, args.int(0)?, args.int(1)?, args.int(2)?),
        _ => Err(args.unknown()),
    }
}

/// A value as an integer; anything that is not a number counts as 0.
pub(super) fn whole(value: &Value) -> i64 {
    match value {
        Value::Int(number) | Value::Int64(number) => *number,
        #[expect(clippy::cast_possible_truncation, reason = "Go cuts what is behind the point too")]
        Value::Float(number) => *number as i64,
        Value::Bool(yes) => i64::from(*yes),
        Value::Text(text) => parse_int(text),
        _ => 0,
    }
}

/// The limit of 64-bit integers.
const WHOLE_FLOATS: f64 = 9_223_372_036_854_775_808.0;

/// As [`whole`]. SECURITY: the result for numbers beyond 64 bits depends on the machine that Argo
/// CD runs on.
fn bounded(heap: &Heap<'_>, value: &Value) -> Result<i64, ExecError> {
    let is_beyond = matches!(value, Value::Float(number) if number.is_nan() || number.abs() >= WHOLE_FLOATS);
    heap.refuse_divergent(is_beyond, || "a number beyond 64 bits".to_owned())?;
    Ok(whole(value))
}

fn wholes(heap: &Heap<'_>, args: &Args<'_>) -> Result<Vec<i64>, ExecError> {
    args.values.iter().map(|value| bounded(heap, value)).collect()
}

/// Parses an integer as Go's `Atoi` does: a number that is too large gives the largest possible
/// one, regardless of what follows it.
fn atoi(text: &str) -> i64 {
    let (limit, digits) = match text.strip_prefix('-') {
        Some(digits) => (i64::MIN, digits),
        None => (i64::MAX, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut size = 0_u64;
    for letter in digits.chars() {
        let Some(digit) = letter.to_digit(10) else { return 0 };
        let longer = size.checked_mul(10).and_then(|size| size.checked_add(digit.into()));
        let Some(longer) = longer else { return limit };
        size = longer;
    }
    i64::try_from(size).map_or(limit, |number| number * limit.signum())
}

/// Parses an integer as Go's `ParseInt` does with base 0: digits, with `0x`, `0o`, `0b` or a
/// leading zero for octal, and `_` between them. As in `cast`, zeros after a decimal point are
/// cut. Anything else is 0.
fn parse_int(text: &str) -> i64 {
    let text = without_zeros(text);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, rest) = match (lower.get(..2), lower.len()) {
        (Some("0x"), 3..) => (16, 2),
        (Some("0o"), 3..) => (8, 2),
        (Some("0b"), 3..) => (2, 2),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, 1),
        _ => (10, 0),
    };
    let bare = lower.get(rest..).unwrap_or_default();
    if bare.contains(['+', '-']) || !separates(bare, rest > 0) {
        return 0;
    }
    i64::from_str_radix(&format!("{sign}{}", bare.replace('_', "")), radix).unwrap_or(0)
}

/// The part before a decimal point that only zeros and further points follow.
fn without_zeros(text: &str) -> &str {
    let mut is_zero = false;
    for (at, letter) in text.bytes().enumerate().rev() {
        match letter {
            b'.' if is_zero => return text.get(..at).unwrap_or(text),
            b'.' => {}
            b'0' => is_zero = true,
            _ => return text,
        }
    }
    text
}

/// Whether each `_` is between digits, or after the prefix of the base.
fn separates(digits: &str, has_base: bool) -> bool {
    (has_base || !digits.starts_with('_')) && !digits.ends_with('_') && !digits.contains("__")
}

/// A value as a floating-point number; anything that is not a number counts as 0.
#[expect(clippy::cast_precision_loss, reason = "Go's conversion rounds as well")]
pub(super) fn float(value: &Value) -> f64 {
    match value {
        Value::Int(number) | Value::Int64(number) => *number as f64,
        Value::Float(number) => *number,
        Value::Bool(yes) => f64::from(u8::from(*yes)),
        Value::Text(text) => text.parse().unwrap_or(0.0),
        _ => 0.0,
    }
}

fn floats(args: &Args<'_>) -> Vec<f64> {
    args.values.iter().map(float).collect()
}

fn divisor(heap: &Heap<'_>, args: &Args<'_>) -> Result<i64, ExecError> {
    match bounded(heap, args.arg(1))? {
        0 => Err(args.error("integer divide by zero")),
        number => Ok(number),
    }
}

fn extreme(args: &Args<'_>, better: fn(f64, f64) -> bool) -> f64 {
    let best = args.values.iter().map(float).reduce(|best, next| {
        let is_better = next.is_nan() || better(best, next);
        if is_better { next } else { best }
    });
    best.unwrap_or(0.0)
}

fn round(args: &Args<'_>) -> Result<Value, ExecError> {
    let on = match args.arg(2) {
        Value::Nil => 0.5,
        on @ (Value::Float(_) | Value::Int(_)) => float(on),
        other => return Err(args.wrong("float64", other)),
    };
    let places = i32::try_from(args.int(1)?).unwrap_or(i32::MAX);
    let scale = 10_f64.powi(places);
    let digits = scale * float(args.arg(0));
    let is_up = digits.fract() >= on;
    let rounded = if is_up { digits.ceil() } else { digits.floor() };
    Ok(Value::Float(rounded / scale))
}

/// The numbers from `start` up to, but not including, `stop`.
fn steps(heap: &Heap<'_>, args: &Args<'_>, start: i64, stop: i64, step: i64) -> Result<Vec<i64>, ExecError> {
    let down = stop < start;
    if (down && step >= 0) || (!down && step <= 0) {
        return Ok(Vec::new());
    }
    let count = start.abs_diff(stop).div_ceil(step.unsigned_abs());
    let count = usize::try_from(count).map_err(|_| args.error("too many numbers"))?;
    heap.fits(count, 64)?;
    let numbers = std::iter::successors(Some(start), |number| number.checked_add(step));
    Ok(numbers.take(count).collect())
}

fn numbers(heap: &Heap<'_>, args: &Args<'_>, start: i64, stop: i64, step: i64) -> Result<Value, ExecError> {
    let items = steps(heap, args, start, stop, step)?
        .into_iter()
        .map(Value::Int)
        .collect();
    heap.list(ElementType::Int, items)
}

fn seq(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let given = (0..args.values.len()).map(|index| args.int(index));
    let (start, end, step) = match given.collect::<Result<Vec<_>, _>>()?.as_slice() {
        [end] => (1, *end, None),
        [start, end] => (*start, *end, None),
        [start, step, end] => (*start, *end, Some(*step)),
        _ => return heap.text(""),
    };
    let direction = if end < start { -1 } else { 1 };
    if direction < 0 && step.is_some_and(|step| step > 0) {
        return heap.text("");
    }
    let stop = end.saturating_add(direction);
    let numbers = steps(heap, args, start, stop, step.unwrap_or(direction))?;
    let texts: Vec<String> = numbers.iter().map(i64::to_string).collect();
    heap.text(texts.join(" "))
}

/// A decimal: `digits * 10^exponent`.
#[derive(Clone, Copy)]
struct Decimal {
    digits: i128,
    exponent: i32,
}

/// Maximum number of decimal places in the result of a division.
const PRECISION: i32 = 16;

/// An operation on floats, and the same on decimals.
#[derive(Clone, Copy)]
struct Operation {
    on_floats: fn(f64, f64) -> f64,
    on_decimals: fn(Decimal, Decimal) -> Option<Decimal>,
}

const ADD: Operation = Operation {
    on_floats: f64::add,
    on_decimals: |left, right| aligned(left, right, i128::checked_add),
};
const SUBTRACT: Operation = Operation {
    on_floats: f64::sub,
    on_decimals: |left, right| aligned(left, right, i128::checked_sub),
};
const MULTIPLY: Operation = Operation {
    on_floats: f64::mul,
    on_decimals: multiply_decimals,
};
const DIVIDE: Operation = Operation {
    on_floats: f64::div,
    on_decimals: divide_decimals,
};

/// Computes with decimals, so that 0.1 and 0.2 make 0.3; with binary floating point if decimals
/// would need more than 38 digits.
fn exact(numbers: &[f64], operation: Operation) -> Result<Value, ExecError> {
    let Some((first, rest)) = numbers.split_first() else {
        return Ok(Value::Float(0.0));
    };
    let total = decimal(*first).and_then(|first| {
        let mut rest = rest.iter();
        rest.try_fold(first, |total, number| (operation.on_decimals)(total, decimal(*number)?))
    });
    let text = total.map(|total| format!("{}e{}", total.digits, total.exponent));
    let total = text.and_then(|text| text.parse().ok());
    let in_floats = || rest.iter().copied().fold(*first, operation.on_floats);
    Ok(Value::Float(total.unwrap_or_else(in_floats)))
}

fn decimal(number: f64) -> Option<Decimal> {
    if print::special(number).is_some() {
        return None;
    }
    let (digits, point) = print::digits(number);
    let exponent = point - i32::try_from(digits.len()).ok()?;
    let digits: i128 = digits.parse().ok()?;
    let digits = if number < 0.0 { -digits } else { digits };
    Some(Decimal { digits, exponent })
}

fn multiply_decimals(left: Decimal, right: Decimal) -> Option<Decimal> {
    Some(Decimal {
        digits: left.digits.checked_mul(right.digits)?,
        exponent: left.exponent.checked_add(right.exponent)?,
    })
}

fn aligned(left: Decimal, right: Decimal, operation: fn(i128, i128) -> Option<i128>) -> Option<Decimal> {
    let exponent = left.exponent.min(right.exponent);
    let digits = operation(scaled(left, exponent)?, scaled(right, exponent)?)?;
    Some(Decimal { digits, exponent })
}

fn scaled(decimal: Decimal, exponent: i32) -> Option<i128> {
    with_zeros(decimal.digits, decimal.exponent.checked_sub(exponent)?)
}

/// The digits with this many zeros behind them; a negative count adds none.
fn with_zeros(digits: i128, zeros: i32) -> Option<i128> {
    digits.checked_mul(10_i128.checked_pow(u32::try_from(zeros).unwrap_or(0))?)
}

/// Rounds half away from zero.
fn divide_decimals(left: Decimal, right: Decimal) -> Option<Decimal> {
    let shift = left.exponent - right.exponent + PRECISION;
    let (numerator, denominator) = (with_zeros(left.digits, shift)?, with_zeros(right.digits, -shift)?);
    let quotient = numerator.checked_div(denominator)?;
    let rest = numerator.checked_rem(denominator)?;
    let away = rest.checked_abs()?.checked_mul(2)? >= denominator.checked_abs()?;
    let sign = if (numerator < 0) == (denominator < 0) { 1 } else { -1 };
    Some(Decimal {
        digits: if away { quotient + sign } else { quotient },
        exponent: -PRECISION,
    })
}
