//! Arithmetic as OPA has it, or a failure.
//!
//! OPA keeps a number as the text that it was written as, compares numbers as decimals, and computes
//! with 64 bits of mantissa what are not integers. The engine has integers of any size, and floats.
//!
//! Invariant: each float of the engine stands for the shortest decimal that reads as this float. OPA
//! has exactly that decimal. Then both order and compare numbers alike, as a float lies nearer to its
//! own decimal than to that of any other. What a float cannot stand for is a failure.

use num_bigint::{BigInt, Sign};
use regorus::Value;
use regorus::unstable::ArithOp;

/// Integers below are floats exactly: 2^53.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
/// Bits of the mantissa with which OPA computes.
const MANTISSA_BITS: u64 = 64;
/// Decimal exponents up to which OPA reads a decimal without a second rounding.
const MAX_EXPONENT: i32 = 50;
/// Range of the integers that OPA divides as integers.
const SMALL: std::ops::RangeInclusive<i64> = -(1 << 31)..=(1 << 31) - 1;

pub(crate) const TOO_MANY_DIGITS: &str =
    "the result of an operator or function of numbers needs more digits than are kept";
pub(crate) const DIVISION_BY_ZERO: &str = "division by zero";
pub(crate) const REMAINDER_BY_ZERO: &str = "remainder of a division by zero";
pub(crate) const REMAINDER_OF_FRACTION: &str = "remainder of a number that is not whole";
pub(crate) const NO_NUMBER: &str = "an operator of numbers has an operand that is no number";
pub(crate) const NO_SET: &str = "an operator of sets has an operand that is no set";

/// A decimal: digits times ten to the power of an exponent.
pub(super) struct Decimal {
    pub(super) digits: BigInt,
    pub(super) exponent: i32,
}

impl Decimal {
    /// A text such as `-1.5e3`.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let digits = mantissa.strip_prefix('-').unwrap_or(mantissa);
        let (whole, places) = digits
            .split_once('.')
            .map_or((digits, None), |(whole, places)| (whole, Some(places)));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !places.is_none_or(is_digits) {
            return None;
        }
        let places = i32::try_from(places.unwrap_or_default().len()).ok()?;
        Some(Self {
            digits: mantissa.replace('.', "").parse().ok()?,
            exponent: exponent.parse::<i32>().ok()?.checked_sub(places)?,
        })
    }
}

/// The shortest decimal of a float.
fn shortest(float: f64) -> Option<Decimal> {
    let text = format!("{float:e}");
    let (mantissa, exponent) = text.split_once('e')?;
    let places = mantissa.split_once('.').map_or(0, |(_, places)| places.len());
    Some(Decimal {
        digits: mantissa.replace('.', "").parse().ok()?,
        exponent: exponent.parse::<i32>().ok()?.checked_sub(i32::try_from(places).ok()?)?,
    })
}

pub(super) fn power_of_ten(exponent: i32) -> BigInt {
    BigInt::from(10).pow(u32::try_from(exponent).unwrap_or(0))
}

/// Whether two decimals are the same number.
fn is_same(one: &Decimal, other: &Decimal) -> bool {
    let least = one.exponent.min(other.exponent);
    let scaled = |decimal: &Decimal| &decimal.digits * power_of_ten(decimal.exponent - least);
    scaled(one) == scaled(other)
}

/// Whether a float stands for its decimal in all that functions and operators do with it. OPA indexes no
/// list with `1.0`, and shows it so.
fn stands(float: f64) -> bool {
    float.is_finite() && float.fract() != 0.0
}

/// Whether each number in a value, at any depth, is the same for OPA and the engine.
pub(crate) fn are_exact(value: &Value) -> bool {
    match value {
        Value::Number(_) => float(value).is_none_or(stands),
        Value::Array(items) => items.iter().all(are_exact),
        Value::Set(items) => items.iter().all(are_exact),
        Value::Object(entries) => entries.iter().all(|(key, value)| are_exact(key) && are_exact(value)),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Undefined => true,
    }
}

/// Whether OPA shows a number with signs and zeros that are not kept: `-0` and `007`.
fn is_shown_otherwise(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let has_more = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    text == "-0" || has_more
}

/// The number in a text of JSON or Rego, if the engine can keep all its digits.
pub(crate) fn read(text: &str) -> Option<Value> {
    let written = Decimal::read(text).filter(|_| !is_shown_otherwise(text))?;
    if !text.contains(['.', 'e', 'E']) {
        return Some(number(written.digits));
    }
    let float = text.parse::<f64>().ok()?;
    let shortest = shortest(float).filter(|_| stands(float))?;
    let is_small = |decimal: &Decimal| decimal.exponent.abs() <= 400;
    let is_kept = is_small(&written) && is_small(&shortest) && is_same(&written, &shortest);
    is_kept.then(|| Value::from(float))
}

pub(super) fn number(integer: BigInt) -> Value {
    Value::Number(integer.into())
}

fn from_float(float: f64) -> Value {
    match float.fract() == 0.0 && float.abs() < MAX_EXACT {
        true => format!("{float:.0}").parse().map_or(Value::from(float), number),
        false => Value::from(float),
    }
}

/// A whole number as an integer, which functions can give as a float.
pub(crate) fn normalized(value: Value) -> Value {
    match &value {
        Value::Number(_) => float(&value).map_or(value, from_float),
        _ => value,
    }
}

/// A number that the engine keeps as a float.
fn float(value: &Value) -> Option<f64> {
    match value {
        // Only a float has a point here.
        Value::Number(number) if number.format_decimal_with_width(1).contains('.') => number.as_f64(),
        _ => None,
    }
}

fn integer(value: &Value) -> Option<BigInt> {
    match value {
        Value::Number(number) if float(value).is_none() => number.as_big().map(|integer| (*integer).clone()),
        _ => None,
    }
}

pub(super) fn holds_fraction(value: &Value) -> bool {
    match value {
        Value::Number(_) => float(value).is_some(),
        Value::Array(items) => items.iter().any(holds_fraction),
        Value::Set(items) => items.iter().any(holds_fraction),
        Value::Object(entries) => entries
            .iter()
            .any(|(key, value)| holds_fraction(key) || holds_fraction(value)),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Undefined => false,
    }
}

/// A number as OPA computes with it, `mantissa * 2^exponent`; the mantissa has 64 bits, or is zero.
pub(super) struct Wide {
    mantissa: BigInt,
    exponent: i64,
}

fn shifted(number: BigInt, bits: i64) -> BigInt {
    number << u64::try_from(bits).unwrap_or(0)
}

impl Wide {
    /// The nearest to `numerator / denominator * 2^exponent`; of two, the even one.
    pub(super) fn nearest(numerator: &BigInt, denominator: &BigInt, exponent: i64) -> Option<Self> {
        let signed = |bits: u64| i64::try_from(bits).ok();
        if numerator.sign() == Sign::NoSign {
            return Some(Self {
                mantissa: BigInt::ZERO,
                exponent: 0,
            });
        }
        // So that the quotient has at least two bits more than are kept.
        let shift = signed(MANTISSA_BITS + 2)? + signed(denominator.bits())? - signed(numerator.bits())?;
        let (top, bottom) = (shifted(numerator.clone(), shift), shifted(denominator.clone(), -shift));
        let (mut quotient, remainder) = (&top / &bottom, &top % &bottom);
        let is_inexact = remainder.sign() != Sign::NoSign;
        let dropped = quotient.bits().checked_sub(MANTISSA_BITS)?;
        let is_negative = quotient.sign() == Sign::Minus;
        if is_negative {
            quotient = -quotient;
        }
        let mut kept = &quotient >> dropped;
        let rest = quotient - (&kept << dropped);
        let half = BigInt::from(1) << dropped.checked_sub(1)?;
        let is_odd = kept.bit(0);
        if rest > half || (rest == half && (is_inexact || is_odd)) {
            kept += 1;
        }
        let mut exponent = exponent - shift + signed(dropped)?;
        if kept.bits() > MANTISSA_BITS {
            kept >>= 1;
            exponent += 1;
        }
        Some(Self {
            mantissa: if is_negative { -kept } else { kept },
            exponent,
        })
    }

    fn of(value: &Value) -> Option<Self> {
        let one = BigInt::from(1);
        if let Some(integer) = integer(value) {
            return Self::nearest(&integer, &one, 0);
        }
        Self::of_decimal(shortest(float(value)?)?)
    }

    pub(super) fn of_decimal(Decimal { digits, exponent }: Decimal) -> Option<Self> {
        let one = BigInt::from(1);
        match exponent {
            0..=MAX_EXPONENT => Self::nearest(&(digits * power_of_ten(exponent)), &one, 0),
            _ if (-MAX_EXPONENT..0).contains(&exponent) => Self::nearest(&digits, &power_of_ten(-exponent), 0),
            _ => None,
        }
    }

    /// Without what is behind the point.
    pub(super) fn whole(&self) -> BigInt {
        let whole = shifted(self.mantissa.clone(), self.exponent.max(0));
        whole / (BigInt::from(1) << u64::try_from(-self.exponent).unwrap_or(0))
    }

    fn plus(&self, other: &Self) -> Option<Self> {
        let least = self.exponent.min(other.exponent);
        let scaled = |wide: &Self| shifted(wide.mantissa.clone(), wide.exponent - least);
        Self::nearest(&(scaled(self) + scaled(other)), &BigInt::from(1), least)
    }

    fn negated(&self) -> Self {
        Self {
            mantissa: -&self.mantissa,
            exponent: self.exponent,
        }
    }

    pub(super) fn times(&self, other: &Self) -> Option<Self> {
        let exponent = self.exponent + other.exponent;
        Self::nearest(&(&self.mantissa * &other.mantissa), &BigInt::from(1), exponent)
    }

    fn over(&self, other: &Self) -> Option<Self> {
        let sign = BigInt::from(if other.mantissa.sign() == Sign::Minus { -1 } else { 1 });
        let denominator = &other.mantissa * &sign;
        Self::nearest(&(&self.mantissa * sign), &denominator, self.exponent - other.exponent)
    }

    /// The number if OPA shows it as a decimal that a float stands for: the shortest that reads as this
    /// one with 64 bits. No other decimal with as few digits is as near to it.
    fn narrow(&self) -> Option<Value> {
        if self.mantissa.sign() == Sign::NoSign {
            return Some(Value::from(0_i64));
        }
        let magnitude = i64::try_from(self.mantissa.bits()).ok()? + self.exponent;
        if !(-170..=53).contains(&magnitude) {
            return None;
        }
        let mantissa: f64 = self.mantissa.to_string().parse().ok()?;
        let float = mantissa * 2_f64.powi(i32::try_from(self.exponent).ok()?);
        let Decimal { digits, exponent } = shortest(float).filter(|_| float.abs() < MAX_EXACT)?;
        let (up, down) = (self.exponent.max(0), (-self.exponent).max(0));
        let shown = shifted(digits * power_of_ten(exponent.max(0)), down);
        let scale = power_of_ten((-exponent).max(0));
        let exact = shifted(&self.mantissa * &scale, up);
        let distance: BigInt = (shown - exact) * 2;
        (distance.magnitude() < shifted(scale, up).magnitude()).then(|| from_float(float))
    }
}

pub(crate) fn apply(operator: &ArithOp, one: &Value, other: &Value) -> Result<Value, &'static str> {
    match (operator, one, other) {
        (_, Value::Number(_), Value::Number(_)) => compute(operator, one, other),
        (ArithOp::Sub, Value::Set(one), Value::Set(other)) => {
            let rest = one.iter().filter(|item| !other.contains(item)).cloned();
            Ok(Value::from(rest.collect::<std::collections::BTreeSet<_>>()))
        }
        (ArithOp::Sub, Value::Set(_), _) | (ArithOp::Sub, _, Value::Set(_)) => Err(NO_SET),
        _ => Err(NO_NUMBER),
    }
}

fn compute(operator: &ArithOp, one: &Value, other: &Value) -> Result<Value, &'static str> {
    if let (Ok(one), Ok(other)) = (one.as_i64(), other.as_i64()) {
        let result = match operator {
            ArithOp::Add => one.checked_add(other),
            ArithOp::Sub => one.checked_sub(other),
            ArithOp::Mul => one.checked_mul(other),
            ArithOp::Div if other != 0 && one != 0 && SMALL.contains(&one) && SMALL.contains(&other) => {
                one.checked_div(other).filter(|_| one.checked_rem(other) == Some(0))
            }
            ArithOp::Mod => one.checked_rem(other),
            ArithOp::Div => None,
        };
        if let Some(result) = result {
            return Ok(Value::from(result));
        }
    }
    let integers = integer(one).zip(integer(other));
    if let Some((one, other)) = &integers {
        let is_zero = other.sign() == Sign::NoSign;
        match operator {
            ArithOp::Add => return Ok(number(one + other)),
            ArithOp::Sub => return Ok(number(one - other)),
            ArithOp::Mul => return Ok(number(one * other)),
            ArithOp::Mod if is_zero => return Err(REMAINDER_BY_ZERO),
            ArithOp::Mod => return Ok(number(one % other)),
            ArithOp::Div if is_zero => return Err(DIVISION_BY_ZERO),
            ArithOp::Div => {
                // OPA's mantissa holds them.
                let fits = one.bits() <= MANTISSA_BITS && other.bits() <= MANTISSA_BITS;
                if fits && one.sign() != Sign::NoSign && (one % other).sign() == Sign::NoSign {
                    return Ok(number(one / other));
                }
            }
        }
    }
    if matches!(operator, ArithOp::Mod) {
        return Err(REMAINDER_OF_FRACTION);
    }
    let wide = |value| Wide::of(value).ok_or(TOO_MANY_DIGITS);
    let (one, other) = (wide(one)?, wide(other)?);
    let is_zero = |wide: &Wide| wide.mantissa.sign() == Sign::NoSign;
    let is_negative = |wide: &Wide| wide.mantissa.sign() == Sign::Minus;
    let result = match operator {
        ArithOp::Add => one.plus(&other),
        ArithOp::Sub => one.plus(&other.negated()),
        ArithOp::Div if is_zero(&other) => return Err(DIVISION_BY_ZERO),
        // OPA has a zero below zero, whose text is another.
        ArithOp::Mul if (is_zero(&one) && is_negative(&other)) || (is_zero(&other) && is_negative(&one)) => None,
        ArithOp::Div if is_zero(&one) && is_negative(&other) => None,
        ArithOp::Mul => one.times(&other),
        ArithOp::Div => one.over(&other),
        ArithOp::Mod => None,
    };
    result.as_ref().and_then(Wide::narrow).ok_or(TOO_MANY_DIGITS)
}

/// `sum` of a list or set.
pub(super) fn sum(arguments: &[Value]) -> Option<Value> {
    let items: Vec<&Value> = match arguments {
        [Value::Array(items)] => items.iter().collect(),
        [Value::Set(items)] => items.iter().collect(),
        _ => return None,
    };
    if let Some(sum) = items
        .iter()
        .try_fold(0_i64, |sum, item| sum.checked_add(item.as_i64().ok()?))
    {
        return Some(Value::from(sum));
    }
    if let Some(integers) = items.iter().map(|item| integer(item)).collect::<Option<Vec<_>>>() {
        return Some(number(integers.into_iter().sum()));
    }
    let zero = Wide {
        mantissa: BigInt::ZERO,
        exponent: 0,
    };
    let mut items = items.into_iter();
    items.try_fold(zero, |sum, item| sum.plus(&Wide::of(item)?))?.narrow()
}

/// `to_number`: of a text only if it is a number of JSON.
pub(super) fn to_number(arguments: &[Value]) -> Option<Value> {
    match arguments {
        [Value::Null] => Some(Value::from(0_i64)),
        [Value::Bool(value)] => Some(Value::from(i64::from(*value))),
        [number @ Value::Number(_)] => Some(number.clone()),
        [Value::String(text)] => read(text),
        _ => None,
    }
}

/// Whether a number is an integer of more than 64 bits, which OPA's functions round.
pub(super) fn is_beyond_mantissa(value: &Value) -> bool {
    integer(value).is_some_and(|integer| integer.bits() > MANTISSA_BITS)
}

#[cfg(test)]
mod tests {
    use regorus::Value;
    use regorus::unstable::ArithOp;

    use super::{DIVISION_BY_ZERO, TOO_MANY_DIGITS, apply, read};

    /// The results are those of OPA 1.22.0; none where its text has more digits.
    #[test]
    fn results_are_those_of_opa() {
        for (one, operator, other, result) in [
            ("0.1", ArithOp::Add, "0.2", Some("0.3")),
            ("0.7", ArithOp::Add, "0.1", Some("0.8")),
            ("1.1", ArithOp::Add, "2.2", None),
            ("0.7", ArithOp::Sub, "0.6", None),
            ("0.1", ArithOp::Mul, "3", Some("0.3")),
            ("0.1", ArithOp::Mul, "0.1", None),
            ("2.5", ArithOp::Mul, "4", Some("10")),
            ("1", ArithOp::Div, "3", None),
            ("10", ArithOp::Div, "4", Some("2.5")),
            ("0", ArithOp::Div, "-5", None),
            ("0", ArithOp::Mul, "-1.5", None),
            ("0", ArithOp::Div, "5", Some("0")),
            ("-7", ArithOp::Mod, "2", Some("-1")),
            ("18446744073709551616", ArithOp::Add, "1", Some("18446744073709551617")),
            ("9007199254740993", ArithOp::Mul, "2", Some("18014398509481986")),
            ("1000000000000000000", ArithOp::Div, "10", Some("100000000000000000")),
        ] {
            let (one, other) = (read(one).unwrap(), read(other).unwrap());
            let expected = result.map_or(Err(TOO_MANY_DIGITS), |result| Ok(read(result).unwrap()));
            assert_eq!(apply(&operator, &one, &other), expected, "{one} {operator:?} {other}");
        }
        let zero = Value::from(0_i64);
        assert_eq!(
            apply(&ArithOp::Div, &read("0.5").unwrap(), &zero),
            Err(DIVISION_BY_ZERO)
        );
    }

    #[test]
    fn texts_that_a_float_does_not_stand_for_are_not_read() {
        for text in [
            "0.30000000000000000001",
            "1e400",
            "1e23",
            "-0",
            "007",
            "-01",
            "00",
            "01.5",
            "0x10",
            "",
            "-",
            "1.",
            ".5",
            "1_000",
            "9007199254740993.0",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        for text in [
            "0",
            "-1",
            "0.1",
            "-0.5",
            "10",
            "1.50",
            "-2.5E-7",
            "0.30000000000000004",
            "12345678901234567890123",
        ] {
            assert!(read(text).is_some(), "{text}");
        }
    }
}
