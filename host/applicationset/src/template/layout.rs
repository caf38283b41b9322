//! Formats and parses dates by Go's layouts, which are an example date
//! (`2006-01-02T15:04:05Z07:00`).
//!
//! The time zone of this machine is never used: `Local` is UTC, as it is in Argo CD's images.
//!
//! Source: the constants of Go's `time` package.

use std::fmt::Write as _;

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

const MONTHS: &str = "January February March April May June July August September October November December";
const DAYS: &str = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Month,
    Weekday,
    Day,
    YearDay,
    Hour,
    Hour12,
    Minute,
    Second,
    /// Without the century.
    Year,
    LongYear,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Padding {
    None,
    Blank,
    Zero,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LayoutElement {
    /// The whole name, or its first three letters.
    Name(Field, bool),
    Number(Field, Padding),
    /// In capitals or not.
    AmPm(bool),
    Zone,
    /// `Z` for UTC or not, with or without colons, with minutes or seconds after the hours.
    Offset {
        zulu: bool,
        colon: bool,
        parts: u8,
    },
    /// The digits of the fraction, and whether trailing zeros are kept.
    Fraction {
        digits: usize,
        keep: bool,
    },
}

/// The elements that their text alone identifies, longer ones first.
const FIXED: [(&str, LayoutElement); 22] = [
    ("January", LayoutElement::Name(Field::Month, true)),
    ("Monday", LayoutElement::Name(Field::Weekday, true)),
    ("2006", LayoutElement::Number(Field::LongYear, Padding::Zero)),
    ("002", LayoutElement::Number(Field::YearDay, Padding::Zero)),
    ("__2", LayoutElement::Number(Field::YearDay, Padding::Blank)),
    ("MST", LayoutElement::Zone),
    ("Jan", LayoutElement::Name(Field::Month, false)),
    ("Mon", LayoutElement::Name(Field::Weekday, false)),
    ("01", LayoutElement::Number(Field::Month, Padding::Zero)),
    ("02", LayoutElement::Number(Field::Day, Padding::Zero)),
    ("03", LayoutElement::Number(Field::Hour12, Padding::Zero)),
    ("04", LayoutElement::Number(Field::Minute, Padding::Zero)),
    ("05", LayoutElement::Number(Field::Second, Padding::Zero)),
    ("06", LayoutElement::Number(Field::Year, Padding::Zero)),
    ("15", LayoutElement::Number(Field::Hour, Padding::Zero)),
    ("PM", LayoutElement::AmPm(true)),
    ("pm", LayoutElement::AmPm(false)),
    ("1", LayoutElement::Number(Field::Month, Padding::None)),
    ("2", LayoutElement::Number(Field::Day, Padding::None)),
    ("3", LayoutElement::Number(Field::Hour12, Padding::None)),
    ("4", LayoutElement::Number(Field::Minute, Padding::None)),
    ("5", LayoutElement::Number(Field::Second, Padding::None)),
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
        return Some((LayoutElement::Number(Field::Day, Padding::Blank), after));
    }
    FIXED.iter().find_map(|(text, element)| {
        let after = rest.strip_prefix(text)?;
        let is_short = matches!(element, LayoutElement::Name(_, false));
        let is_word = is_short && after.starts_with(|next: char| next.is_ascii_lowercase());
        (!is_word).then_some((*element, after))
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
        LayoutElement::Name(field, is_long) => {
            let name = match field {
                Field::Month => MONTHS.split(' ').nth(usize::try_from(time.month() - 1).unwrap_or(0)),
                _ => DAYS
                    .split(' ')
                    .nth(usize::try_from(time.weekday().to_monday_zero_offset()).unwrap_or(0)),
            };
            let letters = name.unwrap_or_default().chars();
            text.extend(letters.take(if is_long { usize::MAX } else { 3 }));
            Ok(())
        }
        LayoutElement::Number(field, padding) => {
            let number = match field {
                Field::Month => time.month().into(),
                Field::Day => time.day().into(),
                Field::YearDay => time.day_of_year(),
                Field::Hour => time.hour().into(),
                Field::Hour12 => (i16::from(time.hour()) + 11) % 12 + 1,
                Field::Minute => time.minute().into(),
                Field::Second => time.second().into(),
                Field::Year => time.year().rem_euclid(100),
                Field::LongYear => time.year(),
                Field::Weekday => 0,
            };
            let width = digits(field);
            match padding {
                Padding::None => write!(text, "{number}"),
                Padding::Blank => write!(text, "{number:width$}"),
                Padding::Zero => write!(text, "{number:0width$}"),
            }
        }
        LayoutElement::AmPm(is_upper) => {
            let name = if time.hour() >= 12 { "PM" } else { "AM" };
            let lower = name.to_ascii_lowercase();
            text.write_str(if is_upper { name } else { &lower })
        }
        LayoutElement::Zone => {
            let info = time.time_zone().to_offset_info(time.timestamp());
            text.write_str(info.abbreviation())
        }
        LayoutElement::Offset { zulu, colon, parts } => write_offset(text, time.offset(), (zulu, colon, parts)),
        LayoutElement::Fraction { digits, keep } => write_fraction(text, time, digits, keep),
    }
}

fn digits(field: Field) -> usize {
    match field {
        Field::LongYear => 4,
        Field::YearDay => 3,
        _ => 2,
    }
}

fn write_offset(text: &mut String, offset: Offset, (zulu, colon, parts): (bool, bool, u8)) -> std::fmt::Result {
    let seconds = offset.seconds();
    if zulu && seconds == 0 {
        text.push('Z');
        return Ok(());
    }
    let sign = if seconds < 0 { '-' } else { '+' };
    let seconds = seconds.unsigned_abs();
    let separator = if colon { ":" } else { "" };
    write!(text, "{sign}{:02}", seconds / 3600)?;
    if parts >= 2 {
        write!(text, "{separator}{:02}", seconds / 60 % 60)?;
    }
    if parts >= 3 {
        write!(text, "{separator}{:02}", seconds % 60)?;
    }
    Ok(())
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
        let seconds = matches!(element, LayoutElement::Number(Field::Second, _));
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
    let date = DateTime::new(
        fields.year,
        fields.month,
        fields.day,
        hour,
        fields.minute,
        fields.second,
        fields.nanosecond,
    )
    .ok()?;
    let date = match fields.year_day {
        Some(day) => date.with().day_of_year(day).build().ok()?,
        None => date,
    };
    let zone = match fields.offset {
        Some(seconds) => TimeZone::fixed(Offset::from_seconds(seconds).ok()?),
        None => TimeZone::UTC,
    };
    date.to_zoned(zone).ok()
}

fn read_element<'t>(fields: &mut ParsedDate, element: LayoutElement, text: &'t str) -> Option<&'t str> {
    let (field, padding) = match element {
        LayoutElement::Name(field, is_long) => {
            let length = if is_long { usize::MAX } else { 3 };
            if field == Field::Weekday {
                return name(DAYS, length, text).map(|(_, rest)| rest);
            }
            let (month, rest) = name(MONTHS, length, text)?;
            fields.month = month;
            return Some(rest);
        }
        LayoutElement::Number(field, padding) => (field, padding),
        LayoutElement::AmPm(_) => {
            let (half, rest) = text.split_at_checked(2)?;
            fields.afternoon = Some(match half {
                "PM" | "pm" => true,
                "AM" | "am" => false,
                _ => return None,
            });
            return Some(rest);
        }
        LayoutElement::Zone => return read_zone(fields, text),
        LayoutElement::Offset { zulu, colon, parts } => return read_offset(fields, text, (zulu, colon, parts)),
        LayoutElement::Fraction { digits, keep: true } => return read_fraction(fields, text, Some(digits)),
        LayoutElement::Fraction { .. } if text.starts_with(['.', ',']) => return read_fraction(fields, text, None),
        LayoutElement::Fraction { .. } => return Some(text),
    };
    let most = digits(field);
    let (value, rest) = match (padding, field) {
        (Padding::Zero, _) => number(text, most, most)?,
        (Padding::Blank, Field::YearDay) => number(text.trim_start_matches(' '), 1, most)?,
        (Padding::Blank, _) => number(text.strip_prefix(' ').unwrap_or(text), 1, most)?,
        (Padding::None, _) => number(text, 1, most)?,
    };
    let small = i8::try_from(value).unwrap_or(i8::MAX);
    match field {
        Field::Month => fields.month = small,
        Field::Day => fields.day = small,
        Field::YearDay => fields.year_day = Some(value),
        Field::Hour | Field::Hour12 => fields.hour = small,
        Field::Minute => fields.minute = small,
        Field::Second => fields.second = small,
        Field::Year => fields.year = if value >= 69 { 1900 + value } else { 2000 + value },
        Field::LongYear => fields.year = value,
        Field::Weekday => {}
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

/// Finds one of `names` by its first `length` letters, and returns its position from 1.
fn name<'t>(names: &str, length: usize, text: &'t str) -> Option<(i8, &'t str)> {
    (1_i8..).zip(names.split(' ')).find_map(|(index, name)| {
        let short = name.get(..length.min(name.len()))?;
        let (found, rest) = text.split_at_checked(short.len())?;
        found.eq_ignore_ascii_case(short).then_some((index, rest))
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

fn read_offset<'t>(fields: &mut ParsedDate, text: &'t str, (zulu, colon, parts): (bool, bool, u8)) -> Option<&'t str> {
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
