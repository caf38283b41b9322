//! Parses durations as Go writes them, such as `1h30m` or `1.5s`. Negative durations are refused.

use std::time::Duration;

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It does not have the form of a duration.
    #[error("not a duration such as `10s` or `1m30s`")]
    Malformed,
    /// A number has no unit.
    #[error("a duration needs a unit: ns, us, ms, s, m or h")]
    NoUnit,
    /// It is negative.
    #[error("a duration must not be negative")]
    Negative,
    /// It is more than Go can hold, about 292 years.
    #[error("a duration may be at most about 292 years")]
    TooLong,
}

/// Reads a Go duration: decimal numbers, each with a unit, in any order;
/// `0` needs none. Fractions of a nanosecond are dropped.
///
/// Source: Go, `time.ParseDuration`; negative ones are refused here.
pub fn parse(text: &str) -> Result<Duration, Error> {
    if let Some(rest) = text.strip_prefix('-') {
        return Err(if rest.is_empty() {
            Error::Malformed
        } else {
            Error::Negative
        });
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(Error::Malformed);
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (part, after) = part(rest)?;
        total = total
            .checked_add(part)
            // Go's bound: a signed 64-bit number of nanoseconds.
            .filter(|total| *total <= i64::MAX as u128)
            .ok_or(Error::TooLong)?;
        rest = after;
    }
    let nanoseconds = u64::try_from(total).map_err(|_| Error::TooLong)?;
    Ok(Duration::from_nanos(nanoseconds))
}

/// Whole seconds as people write them: in the largest unit that divides them.
pub(crate) fn in_largest_unit(seconds: u64) -> String {
    let units = [(24 * 60 * 60, 'd'), (60 * 60, 'h'), (60, 'm')];
    let fitting = units
        .into_iter()
        .find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit));
    let (unit, name) = fitting.unwrap_or((1, 's'));
    format!("{}{name}", seconds.checked_div(unit).unwrap_or_default())
}

/// Reads a Go duration, or a whole number of days such as `30d`.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_days(text: &str) -> Result<Duration, Error> {
    let Some(days) = text.strip_suffix('d') else {
        return parse(text);
    };
    let days: u64 = days.parse().map_err(|_| Error::Malformed)?;
    let hours = days.checked_mul(24).ok_or(Error::TooLong)?;
    parse(&format!("{hours}h"))
}

/// Reads one number with its unit; gives its nanoseconds and the rest of the text.
fn part(text: &str) -> Result<(u128, &str), Error> {
    let (whole, after) = digits(text);
    let (fraction, after) = match after.strip_prefix('.') {
        Some(after) => digits(after),
        None => ("", after),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(Error::Malformed);
    }
    let end = after.find(|symbol: char| symbol.is_ascii_digit() || symbol == '.');
    let (unit, after) = after
        .split_at_checked(end.unwrap_or(after.len()))
        .ok_or(Error::Malformed)?;
    let unit: u128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" => return Err(Error::NoUnit),
        _ => return Err(Error::Malformed),
    };
    let whole: u64 = match whole {
        "" => 0,
        digits => digits.parse().map_err(|_| Error::TooLong)?,
    };
    let mut value = u128::from(whole).checked_mul(unit).ok_or(Error::TooLong)?;
    let mut scale = unit;
    for digit in fraction.chars().filter_map(|digit| digit.to_digit(10)) {
        scale /= 10;
        value = value.saturating_add(u128::from(digit).saturating_mul(scale));
    }
    Ok((value, after))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|symbol: char| !symbol.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or(("", text))
}

#[cfg(test)]
mod tests {
    use super::{Error, parse};

    #[test]
    fn go_durations() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("0s", 0),
            ("10s", 10_000_000_000),
            ("+5ms", 5_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("3us", 3_000),
            ("3µs", 3_000),
            ("1ns", 1),
            ("0.3ns", 0),
            ("1m1s", 61_000_000_000),
            ("1s1m", 61_000_000_000),
            ("2562047h47m16.854775807s", i64::MAX),
        ] {
            assert_eq!(
                parse(text).map(|found| found.as_nanos()),
                Ok(nanoseconds as u128),
                "{text}"
            );
        }
        for (text, error) in [
            ("", Error::Malformed),
            ("10", Error::NoUnit),
            ("1h5", Error::NoUnit),
            ("-1s", Error::Negative),
            ("s", Error::Malformed),
            (".s", Error::Malformed),
            ("1d", Error::Malformed),
            ("1 s", Error::Malformed),
            ("1S", Error::Malformed),
            ("-", Error::Malformed),
            ("2562048h", Error::TooLong),
            ("99999999999999999999s", Error::TooLong),
            ("3600000h", Error::TooLong),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}
