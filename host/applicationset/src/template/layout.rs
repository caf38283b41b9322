//! Formats and parses dates by Go's layouts, which are an example date
//! (`2006-01-02T15:04:05Z07:00`).
//!
//! The time zone of this machine is never used: `Local` is UTC, as it is in Argo CD's images.
//!
//! Source: the constants of Go's `time` package.

use std::fmt::Write as _;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

const MONTHS: &str = "January February March April May June July August September October November December";
const DAYS: &str = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday";

/// The layout of times in JSON and YAML.
pub(super) const RFC_3339: &str = "2006-01-02T15:04:05.999999999Z07:00";

#[derive(Clone, Copy, PartialEq, Eq)]
enum LayoutElement {
    /// What `strftime` writes for this conversion (`%m`).
    Conversion(&'static str),
    /// `Z` for UTC or not, with or without colons, with minutes or seconds after the hours.
    Offset { zulu: bool, colon: bool, parts: u8 },
    /// The digits of the fraction, and whether trailing zeros are kept.
    Fraction { digits: usize, keep: bool },
}

/// The elements that their text alone identifies, longer ones first.
const FIXED: [(&str, &str); 22] = [
    ("January", "%B"),
    ("Monday", "%A"),
    ("2006", "%Y"),
    ("002", "%j"),
    ("__2", "%_j"),
    ("MST", "%Z"),
    ("Jan", "%b"),
    ("Mon", "%a"),
    ("01", "%m"),
    ("02", "%d"),
    ("03", "%I"),
    ("04", "%M"),
    ("05", "%S"),
    ("06", "%y"),
    ("15", "%H"),
    ("PM", "%p"),
    ("pm", "%P"),
    ("1", "%-m"),
    ("2", "%-d"),
    ("3", "%-I"),
    ("4", "%-M"),
    ("5", "%-S"),
];

/// The texts of an offset after its `Z` or `-`, whether they have colons, and how many parts.
const OFFSETS: [(&str, bool, u8); 5] = [
    ("070000", false, 3),
    ("07:00:00", true, 3),
    ("0700", false, 2),
    ("07:00", true, 2),
    ("07", false, 1),
];

/// Finds the next element: the text before it, the element, and the text after it.
fn next(layout: &str) -> Option<(&str, LayoutElement, &str)> {
    layout.char_indices().find_map(|(at, _)| {
        let (before, rest) = layout.split_at_checked(at)?;
        let (element, after) = element(rest)?;
        Some((before, element, after))
    })
}

fn element(rest: &str) -> Option<(LayoutElement, &str)> {
    if let Some(found) = offset(rest).or_else(|| fraction(rest)) {
        return Some(found);
    }
    // `_2006` is an underscore before a year, not a day.
    if let Some(after) = rest.strip_prefix("_2").filter(|after| !after.starts_with("006")) {
        return Some((LayoutElement::Conversion("%_d"), after));
    }
    FIXED.iter().find_map(|(text, conversion)| {
        let after = rest.strip_prefix(text)?;
        let is_short = matches!(*conversion, "%b" | "%a");
        let is_word = is_short && after.starts_with(|next: char| next.is_ascii_lowercase());
        (!is_word).then_some((LayoutElement::Conversion(conversion), after))
    })
}

fn offset(rest: &str) -> Option<(LayoutElement, &str)> {
    let zulu = rest.starts_with('Z');
    let inner = rest.strip_prefix(['Z', '-'])?;
    OFFSETS.into_iter().find_map(|(text, colon, parts)| {
        let after = inner.strip_prefix(text)?;
        Some((LayoutElement::Offset { zulu, colon, parts }, after))
    })
}

fn fraction(rest: &str) -> Option<(LayoutElement, &str)> {
    let inner = rest.strip_prefix(['.', ','])?;
    let digit = inner.chars().next().filter(|digit| matches!(digit, '0' | '9'))?;
    let after = inner.trim_start_matches(digit);
    if after.starts_with(|next: char| next.is_ascii_digit()) {
        return None;
    }
    let (digits, keep) = (inner.len() - after.len(), digit == '0');
    Some((LayoutElement::Fraction { digits, keep }, after))
}

pub(super) fn format(time: &Zoned, layout: &str) -> String {
    let mut text = String::new();
    let mut rest = layout;
    while let Some((before, element, after)) = next(rest) {
        text.push_str(before);
        // Writing to a string cannot fail.
        let _ = write_element(&mut text, time, element);
        rest = after;
    }
    text.push_str(rest);
    text
}

fn write_element(text: &mut String, time: &Zoned, element: LayoutElement) -> std::fmt::Result {
    match element {
        LayoutElement::Conversion(conversion) => write!(text, "{}", time.strftime(conversion)),
        LayoutElement::Offset { zulu, colon, parts } => write_offset(text, time.offset(), zulu, colon, parts),
        LayoutElement::Fraction { digits, keep } => write_fraction(text, time, digits, keep),
    }
}

fn write_offset(text: &mut String, offset: Offset, zulu: bool, colon: bool, parts: u8) -> std::fmt::Result {
    let seconds = offset.seconds();
    if zulu && seconds == 0 {
        text.push('Z');
        return Ok(());
    }
    text.push(if seconds < 0 { '-' } else { '+' });
    let seconds = seconds.unsigned_abs();
    let numbers = [seconds / 3600, seconds / 60 % 60, seconds % 60];
    (0..parts).zip(numbers).try_for_each(|(index, number)| {
        let separator = if colon && index > 0 { ":" } else { "" };
        write!(text, "{separator}{number:02}")
    })
}

fn write_fraction(text: &mut String, time: &Zoned, digits: usize, keep: bool) -> std::fmt::Result {
    let nanoseconds = format!("{:09}", time.subsec_nanosecond());
    let shown: String = nanoseconds.chars().take(digits).collect();
    let shown = if keep { &*shown } else { shown.trim_end_matches('0') };
    match shown {
        "" => Ok(()),
        shown => write!(text, ".{shown}"),
    }
}

/// Formats a time as `%v` does.
pub(super) fn written(time: &Zoned) -> String {
    format(time, "2006-01-02 15:04:05.999999999 -0700 MST")
}

pub(super) fn zero() -> Option<Zoned> {
    DateTime::constant(1, 1, 1, 0, 0, 0, 0).to_zoned(TimeZone::UTC).ok()
}

pub(super) fn is_zero(time: &Zoned) -> bool {
    zero().is_some_and(|zero| zero.timestamp() == time.timestamp())
}

/// A time zone by its name; UTC if the name is unknown.
pub(super) fn time_zone(name: &str) -> TimeZone {
    match name {
        "" | "Local" | "UTC" => TimeZone::UTC,
        other => TimeZone::get(other).unwrap_or(TimeZone::UTC),
    }
}

#[derive(Default)]
struct ParsedDate {
    year: i16,
    month: i8,
    day: i8,
    hour: i8,
    minute: i8,
    second: i8,
    nanosecond: i32,
    afternoon: Option<bool>,
    year_day: Option<i16>,
    offset: Option<i32>,
}

/// Parses `text`; `None` if it does not match `layout`.
pub(super) fn parse(layout: &str, text: &str) -> Option<Zoned> {
    let mut fields = ParsedDate {
        month: 1,
        day: 1,
        ..ParsedDate::default()
    };
    let (mut rest, mut text) = (layout, text);
    while let Some((before, element, after)) = next(rest) {
        text = text.strip_prefix(before)?;
        text = read_element(&mut fields, element, text)?;
        rest = after;
        // A fraction may follow the seconds even if the layout has none.
        let seconds = matches!(element, LayoutElement::Conversion("%S" | "%-S"));
        if seconds && fraction(rest).is_none() && text.starts_with(['.', ',']) {
            text = read_fraction(&mut fields, text, None)?;
        }
    }
    (text == rest).then_some(())?;
    finished(&fields)
}

fn finished(fields: &ParsedDate) -> Option<Zoned> {
    let hour = match (fields.afternoon, fields.hour) {
        (Some(true), hour) if hour < 12 => hour + 12,
        (Some(false), 12) => 0,
        (_, hour) => hour,
    };
    let date = Date::new(fields.year, fields.month, fields.day).ok()?;
    let time = Time::new(hour, fields.minute, fields.second, fields.nanosecond).ok()?;
    let date = match fields.year_day {
        Some(day) => date.with().day_of_year(day).build().ok()?,
        None => date,
    };
    let zone = match fields.offset {
        Some(seconds) => TimeZone::fixed(Offset::from_seconds(seconds).ok()?),
        None => TimeZone::UTC,
    };
    date.to_datetime(time).to_zoned(zone).ok()
}

fn read_element<'t>(fields: &mut ParsedDate, element: LayoutElement, text: &'t str) -> Option<&'t str> {
    let conversion = match element {
        LayoutElement::Conversion(conversion) => conversion,
        LayoutElement::Offset { zulu, colon, parts } => return read_offset(fields, text, zulu, colon, parts),
        LayoutElement::Fraction { digits, keep: true } => return read_fraction(fields, text, Some(digits)),
        LayoutElement::Fraction { .. } if text.starts_with(['.', ',']) => return read_fraction(fields, text, None),
        LayoutElement::Fraction { .. } => return Some(text),
    };
    let (most, least, text) = match conversion {
        "%B" | "%b" => {
            let (month, rest) = name(MONTHS, conversion == "%B", text)?;
            fields.month = month;
            return Some(rest);
        }
        "%A" | "%a" => return name(DAYS, conversion == "%A", text).map(|(_, rest)| rest),
        "%p" | "%P" => {
            let (half, rest) = text.split_at_checked(2)?;
            fields.afternoon = Some(match half {
                "PM" | "pm" => true,
                "AM" | "am" => false,
                _ => return None,
            });
            return Some(rest);
        }
        "%Z" => return read_zone(fields, text),
        "%Y" => (4, 4, text),
        "%j" => (3, 3, text),
        "%_j" => (3, 1, text.trim_start_matches(' ')),
        "%_d" => (2, 1, text.strip_prefix(' ').unwrap_or(text)),
        conversion if conversion.contains('-') => (2, 1, text),
        _ => (2, 2, text),
    };
    let (value, rest) = number(text, least, most)?;
    let small = i8::try_from(value).unwrap_or(i8::MAX);
    match conversion.trim_start_matches(['%', '-', '_']) {
        "m" => fields.month = small,
        "d" => fields.day = small,
        "j" => fields.year_day = Some(value),
        "H" | "I" => fields.hour = small,
        "M" => fields.minute = small,
        "S" => fields.second = small,
        "y" => fields.year = if value >= 69 { 1900 + value } else { 2000 + value },
        "Y" => fields.year = value,
        _ => {}
    }
    Some(rest)
}

/// Parses digits: at least `least`, at most `most`.
fn number(text: &str, least: usize, most: usize) -> Option<(i16, &str)> {
    let count = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at_checked(count)?;
    (count >= least).then_some(())?;
    Some((digits.parse().ok()?, rest))
}

/// Finds one of `names`, whole or by its first three letters, and returns its position from 1.
fn name<'t>(names: &str, is_long: bool, text: &'t str) -> Option<(i8, &'t str)> {
    (1_i8..).zip(names.split(' ')).find_map(|(index, name)| {
        let name = if is_long { name } else { name.get(..3)? };
        let (found, rest) = text.split_at_checked(name.len())?;
        found.eq_ignore_ascii_case(name).then_some((index, rest))
    })
}

fn read_zone<'t>(fields: &mut ParsedDate, text: &'t str) -> Option<&'t str> {
    let count = text.bytes().take(5).take_while(u8::is_ascii_uppercase).count();
    let (_, rest) = text.split_at_checked(count)?;
    (count >= 3).then_some(())?;
    // As in Go: an abbreviation that is unknown here counts as UTC.
    fields.offset = fields.offset.or(Some(0));
    Some(rest)
}

fn read_offset<'t>(fields: &mut ParsedDate, text: &'t str, zulu: bool, colon: bool, parts: u8) -> Option<&'t str> {
    if zulu && let Some(rest) = text.strip_prefix('Z') {
        fields.offset = Some(0);
        return Some(rest);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let mut rest = text.strip_prefix(['+', '-'])?;
    let mut seconds = 0;
    for (index, scale) in (0..parts).zip([3600, 60, 1]) {
        if index > 0 && colon {
            rest = rest.strip_prefix(':')?;
        }
        let (value, after) = number(rest, 2, 2)?;
        seconds += i32::from(value) * scale;
        rest = after;
    }
    fields.offset = Some(sign * seconds);
    Some(rest)
}

fn read_fraction<'t>(fields: &mut ParsedDate, text: &'t str, exactly: Option<usize>) -> Option<&'t str> {
    let inner = text.strip_prefix(['.', ','])?;
    let count = inner.bytes().take_while(u8::is_ascii_digit).count();
    let count = exactly.unwrap_or(count);
    let (digits, rest) = inner.split_at_checked(count)?;
    let digits: String = digits.chars().chain("000000000".chars()).take(9).collect();
    fields.nanosecond = digits.parse().ok()?;
    Some(rest)
}

pub(super) fn utc(moment: Timestamp) -> Zoned {
    moment.to_zoned(TimeZone::UTC)
}
