//! `.Name` of a value: a field, an entry of a map, or the result of a method.
//!
//! Security: no method is available that reads or changes anything outside its value.

use std::rc::Rc;

use jiff::{Span, Zoned, tz::TimeZone};

use super::exec::exec_error;
use super::value::{Heap, Value};
use super::versions::Version;
use super::{ExecError, layout};
use crate::MissingKey;

pub(super) fn field(
    heap: &Heap<'_>,
    value: &Value,
    name: &str,
    arguments: &[Value],
    missing_key: MissingKey,
) -> Result<Value, ExecError> {
    match value {
        Value::Missing => match missing_key {
            MissingKey::Error => Err(exec_error(format!("nil data; no entry for key `{name}`"))),
            MissingKey::Default | MissingKey::Zero => Ok(Value::Missing),
        },
        Value::Nil => Err(exec_error(format!("nil pointer evaluating interface {{}}.{name}"))),
        Value::Map(map) => match (map.get(name), missing_key) {
            _ if !arguments.is_empty() => Err(exec_error(format!("{name} is not a method but has arguments"))),
            (Some(value), _) => Ok(value),
            (None, MissingKey::Error) => Err(ExecError::MissingKey(format!("map has no entry for key `{name}`"))),
            (None, MissingKey::Default) => Ok(Value::Missing),
            (None, MissingKey::Zero) if map.element_type == super::value::ElementType::Text => heap.text(""),
            (None, MissingKey::Zero) => Ok(Value::Nil),
        },
        Value::Time(time) => of_time(heap, time, name, arguments),
        Value::Version(version) => of_version(heap, version, name, arguments),
        Value::Bool(_) | Value::Int(_) | Value::Int64(_) | Value::Float(_) | Value::Text(_) | Value::List(_) => {
            Err(unknown(value, name))
        }
    }
}

fn unknown(value: &Value, name: &str) -> ExecError {
    ExecError::MissingKey(format!("can't evaluate field {name} in type {}", value.type_name()))
}

fn of_time(heap: &Heap<'_>, time: &Rc<Zoned>, name: &str, arguments: &[Value]) -> Result<Value, ExecError> {
    let number = |number: i64| Ok(Value::Int(number));
    match (name, arguments) {
        ("Year", []) => number(time.year().into()),
        ("Day", []) => number(time.day().into()),
        ("Hour", []) => number(time.hour().into()),
        ("Minute", []) => number(time.minute().into()),
        ("Second", []) => number(time.second().into()),
        ("Nanosecond", []) => number(time.subsec_nanosecond().into()),
        ("YearDay", []) => number(time.day_of_year().into()),
        ("Month", []) => heap.text(layout::format(time, "January")),
        ("Weekday", []) => heap.text(layout::format(time, "Monday")),
        ("Unix", []) => Ok(Value::Int64(time.timestamp().as_second())),
        ("UnixMilli", []) => Ok(Value::Int64(time.timestamp().as_millisecond())),
        ("UnixMicro", []) => Ok(Value::Int64(time.timestamp().as_microsecond())),
        ("String", []) => heap.text(layout::written(time)),
        ("UTC", []) => Ok(Value::Time(Rc::new(time.with_time_zone(TimeZone::UTC)))),
        ("IsZero", []) => Ok(Value::Bool(layout::is_zero(time))),
        ("Format", [Value::Text(format)]) => {
            heap.fits(format.len(), 64)?;
            heap.text(layout::format(time, format))
        }
        ("AddDate", [Value::Int(years), Value::Int(months), Value::Int(days)]) => {
            let span = Span::new()
                .try_years(*years)
                .and_then(|span| span.try_months(*months))
                .and_then(|span| span.try_days(*days));
            let later = span.and_then(|span| time.checked_add(span));
            let later = later.map_err(|_| exec_error("the date is out of range"))?;
            Ok(Value::Time(Rc::new(later)))
        }
        _ => Err(unknown(&Value::Time(Rc::clone(time)), name)),
    }
}

fn of_version(heap: &Heap<'_>, version: &Rc<Version>, name: &str, arguments: &[Value]) -> Result<Value, ExecError> {
    let number = |number: u64| {
        i64::try_from(number)
            .map(Value::Int64)
            .map_err(|_| exec_error(format!("{number} overflows int64")))
    };
    match (name, arguments) {
        ("Major", []) => number(version.major),
        ("Minor", []) => number(version.minor),
        ("Patch", []) => number(version.patch),
        ("Prerelease", []) => heap.text(version.prerelease.as_str()),
        ("Metadata", []) => heap.text(version.metadata.as_str()),
        ("Original", []) => heap.text(version.original.as_str()),
        ("String", []) => heap.text(version.to_string()),
        ("Compare", [Value::Version(other)]) => Ok(Value::Int(version.order(other) as i64)),
        ("Equal", [Value::Version(other)]) => Ok(Value::Bool(version.order(other).is_eq())),
        ("LessThan", [Value::Version(other)]) => Ok(Value::Bool(version.order(other).is_lt())),
        ("GreaterThan", [Value::Version(other)]) => Ok(Value::Bool(version.order(other).is_gt())),
        _ => Err(unknown(&Value::Version(Rc::clone(version)), name)),
    }
}
