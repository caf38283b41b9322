//! `units.parse` and `units.parse_bytes` as OPA has them.

use num_bigint::{BigInt, Sign};
use regorus::Value;

use super::numbers::{Decimal, Wide, number, power_of_ten, read};

/// Decimals that OPA shows of a number with a unit.
const PLACES: i32 = 10;
/// Exponents beyond are refused. Each takes as many digits.
const MAX_EXPONENT: i32 = 50;

fn power(base: u32, exponent: u32) -> BigInt {
    BigInt::from(base).pow(exponent)
}

/// The factor of a unit such as `Ki`, in lower case but for the first letter if it counts.
fn factor(unit: &str) -> Option<BigInt> {
    let (letter, base) = match unit.strip_suffix('i') {
        Some(letter) if !letter.is_empty() => (letter, 1024),
        _ => (unit, 1000),
    };
    let exponent = match letter {
        "" => 0,
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        "t" | "T" => 4,
        "p" | "P" => 5,
        "e" | "E" => 6,
        _ => return None,
    };
    Some(power(base, exponent))
}

/// Takes a text apart into the number and its unit.
fn split(text: &str) -> Option<(Decimal, &str)> {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is_sign = |at: usize| matches!(bytes.get(at), Some(b'+' | b'-'));
    let mut end = 0;
    while let Some(byte) = bytes.get(end) {
        match byte {
            b'0'..=b'9' | b'.' | b'+' | b'-' => end += 1,
            b'e' | b'E' if is_digit(end + 1) || is_sign(end + 1) => end += 2,
            _ => break,
        }
    }
    let (amount, unit) = text.split_at_checked(end)?;
    let amount = Decimal::read(amount)?;
    (amount.exponent.abs() <= MAX_EXPONENT).then_some((amount, unit))
}

fn plain(arguments: &[Value]) -> Option<String> {
    let [Value::String(text)] = arguments else { return None };
    (!text.contains(' ')).then(|| text.replace('"', ""))
}

pub(super) fn parse(arguments: &[Value]) -> Option<Value> {
    let text = plain(arguments)?;
    let (amount, unit) = split(&text)?;
    let first = unit.chars().next().map_or(0, char::len_utf8);
    let (first, rest) = unit.split_at_checked(first)?;
    let unit = format!("{first}{}", rest.to_lowercase());
    // OPA multiplies by the float that is nearest to a thousandth.
    let (up, down) = if unit == "m" {
        let bits = 0.001_f64.to_bits();
        let mantissa = (bits & ((1 << 52) - 1)) | (1 << 52);
        let exponent = 1075_u64.checked_sub(bits >> 52)?;
        (BigInt::from(mantissa), power(2, u32::try_from(exponent).ok()?))
    } else {
        (factor(&unit)?, BigInt::from(1))
    };
    let top = amount.digits * up * power_of_ten(amount.exponent.max(0));
    let bottom = down * power_of_ten((-amount.exponent).max(0));
    if (&top % &bottom).sign() == Sign::NoSign {
        return Some(number(top / bottom));
    }
    // A half is rounded away from zero.
    let half = if top.sign() == Sign::Minus {
        -&bottom
    } else {
        bottom.clone()
    };
    let rounded = (top * power_of_ten(PLACES) * 2 + half) / (bottom * 2);
    read(&format!("{rounded}e-{PLACES}"))
}

pub(super) fn parse_bytes(arguments: &[Value]) -> Option<Value> {
    let text = plain(arguments)?.to_lowercase();
    let (amount, unit) = split(&text)?;
    let factor = factor(unit.strip_suffix('b').unwrap_or(unit)).filter(|_| unit != "b")?;
    let one = BigInt::from(1);
    let bytes = Wide::of_decimal(amount)?.times(&Wide::nearest(&factor, &one, 0)?)?;
    Some(number(bytes.whole()))
}
