//! Template functions for dates and durations.

use std::rc::Rc;

use jiff::{SignedDuration, Timestamp, Zoned};

use super::Args;
use crate::template::value::{Heap, Value};
use crate::template::{ExecError, layout};

pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let first = args.arg(0);
    match args.name {
        "ago" => {
            let ago = Timestamp::now().duration_since(moment(first).timestamp());
            let seconds = ago.as_secs() + i64::from(ago.subsec_nanos() >= 500_000_000);
            heap.text(shown(i128::from(seconds) * SECOND))
        }
        "date" => written(heap, args.text(0)?, args.arg(1), "UTC"),
        "dateInZone" | "date_in_zone" => written(heap, args.text(0)?, args.arg(1), args.text(2)?),
        "dateModify" | "date_modify" => modified(args, false),
        "duration" => {
            let seconds: i64 = match first {
                Value::Text(text) => text.parse().unwrap_or(0),
                Value::Int64(number) => *number,
                _ => 0,
            };
            heap.text(shown(i128::from(seconds) * SECOND))
        }
        "durationRound" => heap.text(rounded(match first {
            Value::Text(text) => duration(text).unwrap_or(0),
            Value::Int64(number) => i128::from(*number),
            Value::Time(time) => Timestamp::now().duration_since(time.timestamp()).as_nanos(),
            _ => 0,
        })),
        "htmlDate" => written(heap, HTML_DATE, first, "UTC"),
        "htmlDateInZone" => written(heap, HTML_DATE, first, args.text(1)?),
        "mustDateModify" | "must_date_modify" => modified(args, true),
        "mustToDate" => {
            let (layout, text) = (args.text(0)?, args.text(1)?);
            let wrong = || args.error(format!("cannot parse `{text}` as `{layout}`"));
            layout::parse(layout, text).map(time).ok_or_else(wrong)
        }
        "now" => Ok(time(layout::utc(Timestamp::now()))),
        "toDate" => {
            let read = layout::parse(args.text(0)?, args.text(1)?).or_else(layout::zero);
            read.map(time).ok_or_else(|| args.error("no date"))
        }
        "unixEpoch" => match first {
            Value::Time(time) => heap.text(time.timestamp().as_second().to_string()),
            other => Err(args.wrong("time.Time", other)),
        },
        _ => Err(args.unknown()),
    }
}

const HTML_DATE: &str = "2006-01-02";
/// In nanoseconds.
const SECOND: i128 = 1_000_000_000;

fn time(time: Zoned) -> Value {
    Value::Time(Rc::new(time))
}

/// A time, or seconds since 1970; anything else means now.
fn moment(value: &Value) -> Zoned {
    match value {
        Value::Time(time) => (**time).clone(),
        Value::Int(seconds) | Value::Int64(seconds) => {
            layout::utc(Timestamp::from_second(*seconds).unwrap_or_else(|_| Timestamp::now()))
        }
        _ => layout::utc(Timestamp::now()),
    }
}

fn written(heap: &Heap<'_>, format: &str, value: &Value, zone: &str) -> Result<Value, ExecError> {
    heap.fits(format.len(), 64)?;
    let time = moment(value).with_time_zone(layout::time_zone(zone));
    heap.text(layout::format(&time, format))
}

fn modified(args: &Args<'_>, must: bool) -> Result<Value, ExecError> {
    let text = args.text(0)?;
    let Value::Time(before) = args.arg(1) else {
        return Err(args.wrong("time.Time", args.arg(1)));
    };
    let Some(nanoseconds) = duration(text) else {
        return match must {
            true => Err(args.error(format!("invalid duration `{text}`"))),
            false => Ok(args.arg(1).clone()),
        };
    };
    let by = i64::try_from(nanoseconds).map(SignedDuration::from_nanos);
    let after = by.ok().and_then(|by| before.checked_add(by).ok());
    after.map(time).ok_or_else(|| args.error("the date is out of range"))
}

/// Parses `1h30m`, `-1.5s` or `100ms` into nanoseconds.
fn duration(text: &str) -> Option<i128> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) if !text.starts_with('+') => (-1, text),
        _ => (1, text),
    };
    let size = tollgate_config::duration::parse(text).ok()?.as_nanos();
    i128::try_from(size).ok().map(|size| sign * size)
}

/// Formats a duration as Go does: `1h30m0s`, `1.5s`, `100ms`.
fn shown(nanoseconds: i128) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let size = nanoseconds.abs();
    if size == 0 {
        return "0s".to_owned();
    }
    let fraction = |number: i128, scale: i128| {
        let text = format!("{}.{:09}", number / scale, number % scale * (SECOND / scale));
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let units = [(1, "ns"), (1_000, "µs"), (1_000_000, "ms")];
    if let Some((scale, unit)) = units.into_iter().find(|(scale, _)| size < scale * 1_000) {
        return format!("{sign}{}{unit}", fraction(size, scale));
    }
    let (hours, minutes) = (size / (3600 * SECOND), size / (60 * SECOND) % 60);
    let seconds = fraction(size % (60 * SECOND), SECOND);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// Formats the largest unit only.
fn rounded(nanoseconds: i128) -> String {
    let size = nanoseconds.abs();
    let hour = 3600 * SECOND;
    let units = [
        (hour * 24 * 365, "y"),
        (hour * 24 * 30, "mo"),
        (hour * 24, "d"),
        (hour, "h"),
        (60 * SECOND, "m"),
        (SECOND, "s"),
    ];
    match units.into_iter().find(|(unit, _)| size > *unit) {
        Some((unit, name)) => format!("{}{name}", size / unit),
        None => "0s".to_owned(),
    }
}
