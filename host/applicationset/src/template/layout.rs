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

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

/// What an element of a layout stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayoutElement {
    LongMonth,
    Month,
    NumberMonth,
    ZeroMonth,
    LongDay,
    WeekDay,
    Day,
    UnderDay,
    ZeroDay,
    UnderYearDay,
    ZeroYearDay,
    Hour,
    Hour12,
    ZeroHour12,
    Minute,
    ZeroMinute,
    Second,
    ZeroSecond,
    LongYear,
    Year,
    Pm,
    LowPm,
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
    ("January", LayoutElement::LongMonth),
    ("Monday", LayoutElement::LongDay),
    ("2006", LayoutElement::LongYear),
    ("002", LayoutElement::ZeroYearDay),
    ("__2", LayoutElement::UnderYearDay),
    ("MST", LayoutElement::Zone),
    ("Jan", LayoutElement::Month),
    ("Mon", LayoutElement::WeekDay),
    ("01", LayoutElement::ZeroMonth),
    ("02", LayoutElement::ZeroDay),
    ("03", LayoutElement::ZeroHour12),
    ("04", LayoutElement::ZeroMinute),
    ("05", LayoutElement::ZeroSecond),
    ("06", LayoutElement::Year),
    ("15", LayoutElement::Hour),
    ("PM", LayoutElement::Pm),
    ("pm", LayoutElement::LowPm),
    ("1", LayoutElement::NumberMonth),
    ("2", LayoutElement::Day),
    ("3", LayoutElement::Hour12),
    ("4", LayoutElement::Minute),
    ("5", LayoutElement::Second),
];

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
    if let Some(offset) = offset(rest) {
        return Some(offset);
    }
    if let Some(fraction) = fraction(rest) {
        return Some(fraction);
    }
    // `_2006` is an underscore before a year, not a day.
    if let Some(after) = rest.strip_prefix("_2")
        && !rest.starts_with("_2006")
    {
        return Some((LayoutElement::UnderDay, after));
    }
    FIXED.iter().find_map(|(text, element)| {
        let after = rest.strip_prefix(text)?;
        let short = matches!(element, LayoutElement::Month | LayoutElement::WeekDay);
        let word = short && after.starts_with(|next: char| next.is_ascii_lowercase());
        (!word).then_some((*element, after))
    })
}

fn offset(rest: &str) -> Option<(LayoutElement, &str)> {
    let (zulu, inner) = match (rest.strip_prefix('Z'), rest.strip_prefix('-')) {
        (Some(inner), _) => (true, inner),
        (None, Some(inner)) => (false, inner),
        (None, None) => return None,
    };
    OFFSETS.iter().find_map(|(text, colon, parts)| {
        let after = inner.strip_prefix(text)?;
        let element = LayoutElement::Offset {
            zulu,
            colon: *colon,
            parts: *parts,
        };
        Some((element, after))
    })
}

fn fraction(rest: &str) -> Option<(LayoutElement, &str)> {
    let inner = rest.strip_prefix(['.', ','])?;
    let digit = inner.chars().next().filter(|digit| matches!(digit, '0' | '9'))?;
    let after = inner.trim_start_matches(digit);
    if after.starts_with(|next: char| next.is_ascii_digit()) {
        return None;
    }
    let digits = inner.len() - after.len();
    Some((
        LayoutElement::Fraction {
            digits,
            keep: digit == '0',
        },
        after,
    ))
}

/// Formats `time` by `layout`.
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
    let short = |name: &str| name.chars().take(3).collect::<String>();
    let hour12 = match time.hour() % 12 {
        0 => 12,
        hour => hour,
    };
    match element {
        LayoutElement::LongMonth => write!(text, "{}", month(time)),
        LayoutElement::Month => write!(text, "{}", short(month(time))),
        LayoutElement::NumberMonth => write!(text, "{}", time.month()),
        LayoutElement::ZeroMonth => write!(text, "{:02}", time.month()),
        LayoutElement::LongDay => write!(text, "{}", weekday(time)),
        LayoutElement::WeekDay => write!(text, "{}", short(weekday(time))),
        LayoutElement::Day => write!(text, "{}", time.day()),
        LayoutElement::UnderDay => write!(text, "{:2}", time.day()),
        LayoutElement::ZeroDay => write!(text, "{:02}", time.day()),
        LayoutElement::UnderYearDay => write!(text, "{:3}", time.day_of_year()),
        LayoutElement::ZeroYearDay => write!(text, "{:03}", time.day_of_year()),
        LayoutElement::Hour => write!(text, "{:02}", time.hour()),
        LayoutElement::Hour12 => write!(text, "{hour12}"),
        LayoutElement::ZeroHour12 => write!(text, "{hour12:02}"),
        LayoutElement::Minute => write!(text, "{}", time.minute()),
        LayoutElement::ZeroMinute => write!(text, "{:02}", time.minute()),
        LayoutElement::Second => write!(text, "{}", time.second()),
        LayoutElement::ZeroSecond => write!(text, "{:02}", time.second()),
        LayoutElement::LongYear => write!(text, "{:04}", time.year()),
        LayoutElement::Year => write!(text, "{:02}", time.year().rem_euclid(100)),
        LayoutElement::Pm => write!(text, "{}", if time.hour() >= 12 { "PM" } else { "AM" }),
        LayoutElement::LowPm => write!(text, "{}", if time.hour() >= 12 { "pm" } else { "am" }),
        LayoutElement::Zone => write!(text, "{}", zone(time)),
        LayoutElement::Offset { zulu, colon, parts } => write_offset(text, time.offset(), (zulu, colon, parts)),
        LayoutElement::Fraction { digits, keep } => write_fraction(text, time, digits, keep),
    }
}

fn month(time: &Zoned) -> &'static str {
    let index = usize::try_from(time.month() - 1).unwrap_or(0);
    MONTHS.get(index).copied().unwrap_or_default()
}

fn weekday(time: &Zoned) -> &'static str {
    let index = usize::try_from(time.weekday().to_monday_zero_offset()).unwrap_or(0);
    DAYS.get(index).copied().unwrap_or_default()
}

fn zone(time: &Zoned) -> String {
    let info = time.time_zone().to_offset_info(time.timestamp());
    info.abbreviation().to_owned()
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
    let shown = if keep {
        shown.as_str()
    } else {
        shown.trim_end_matches('0')
    };
    if shown.is_empty() {
        return Ok(());
    }
    write!(text, ".{shown}")
}

/// Formats a time as `%v` does.
pub(super) fn written(time: &Zoned) -> String {
    format(time, "2006-01-02 15:04:05.999999999 -0700 MST")
}

/// Go's zero time.
pub(super) fn zero() -> Option<Zoned> {
    DateTime::constant(1, 1, 1, 0, 0, 0, 0).to_zoned(TimeZone::UTC).ok()
}

/// Whether it is the zero time.
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

/// The fields of a date while it is parsed.
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
        year: 0,
        month: 1,
        day: 1,
        hour: 0,
        minute: 0,
        second: 0,
        nanosecond: 0,
        afternoon: None,
        year_day: None,
        offset: None,
    };
    let (mut rest, mut text) = (layout, text);
    while let Some((before, element, after)) = next(rest) {
        text = text.strip_prefix(before)?;
        text = read_element(&mut fields, element, text)?;
        rest = after;
        // A fraction may follow the seconds even if the layout has none.
        let seconds = matches!(element, LayoutElement::Second | LayoutElement::ZeroSecond);
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
    let (value, rest) = match element {
        LayoutElement::LongMonth => {
            return name(&MONTHS, usize::MAX, text).map(|(index, rest)| (fields.month = index, rest).1);
        }
        LayoutElement::Month => return name(&MONTHS, 3, text).map(|(index, rest)| (fields.month = index, rest).1),
        LayoutElement::LongDay => return name(&DAYS, usize::MAX, text).map(|(_, rest)| rest),
        LayoutElement::WeekDay => return name(&DAYS, 3, text).map(|(_, rest)| rest),
        LayoutElement::Zone => return read_zone(fields, text),
        LayoutElement::Offset { zulu, colon, parts } => return read_offset(fields, text, (zulu, colon, parts)),
        LayoutElement::Fraction { digits, keep } => {
            return match (keep, text.starts_with(['.', ','])) {
                (true, _) => read_fraction(fields, text, Some(digits)),
                (false, true) => read_fraction(fields, text, None),
                (false, false) => Some(text),
            };
        }
        LayoutElement::Pm | LayoutElement::LowPm => {
            let (half, rest) = text.split_at_checked(2)?;
            fields.afternoon = Some(match half {
                "PM" | "pm" => true,
                "AM" | "am" => false,
                _ => return None,
            });
            return Some(rest);
        }
        LayoutElement::LongYear => number(text, 4, 4)?,
        LayoutElement::ZeroYearDay => number(text, 3, 3)?,
        LayoutElement::UnderYearDay => number(text.trim_start_matches(' '), 1, 3)?,
        LayoutElement::UnderDay => number(text.strip_prefix(' ').unwrap_or(text), 1, 2)?,
        LayoutElement::NumberMonth
        | LayoutElement::Day
        | LayoutElement::Hour12
        | LayoutElement::Minute
        | LayoutElement::Second => number(text, 1, 2)?,
        LayoutElement::ZeroMonth
        | LayoutElement::ZeroDay
        | LayoutElement::Hour
        | LayoutElement::ZeroHour12
        | LayoutElement::ZeroMinute
        | LayoutElement::ZeroSecond
        | LayoutElement::Year => number(text, 2, 2)?,
    };
    let small = i8::try_from(value).unwrap_or(i8::MAX);
    match element {
        LayoutElement::LongYear => fields.year = value,
        LayoutElement::Year => fields.year = if value >= 69 { 1900 + value } else { 2000 + value },
        LayoutElement::ZeroYearDay | LayoutElement::UnderYearDay => fields.year_day = Some(value),
        LayoutElement::NumberMonth | LayoutElement::ZeroMonth => fields.month = small,
        LayoutElement::Day | LayoutElement::UnderDay | LayoutElement::ZeroDay => fields.day = small,
        LayoutElement::Hour | LayoutElement::Hour12 | LayoutElement::ZeroHour12 => fields.hour = small,
        LayoutElement::Minute | LayoutElement::ZeroMinute => fields.minute = small,
        _ => fields.second = small,
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
fn name<'t>(names: &[&str], length: usize, text: &'t str) -> Option<(i8, &'t str)> {
    (1_i8..).zip(names).find_map(|(index, name)| {
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
    let (sign, mut rest) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(rest), _) => (1, rest),
        (None, Some(rest)) => (-1, rest),
        (None, None) => return None,
    };
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

/// A point in time, in UTC.
pub(super) fn utc(moment: Timestamp) -> Zoned {
    moment.to_zoned(TimeZone::UTC)
}
