//! Whether two values of an Application's fields mean the same.
//!
//! In: two values. Out: a yes, or a no. Never: a copy; a field's absence taken for a
//! value that means something else.

use serde_json::{Map, Value};

/// Fields whose absence is not their zero: Argo CD has pointers there.
const DISTINCT: [&str; 5] = ["enabled", "automated", "revisionHistoryLimit", "count", "factor"];

/// Fields with keys of the user's own, in which every value counts.
const OPAQUE: [&str; 7] = [
    "labels",
    "annotations",
    "commonLabels",
    "commonAnnotations",
    "valuesObject",
    "map",
    "matchLabels",
];

/// Whether two values of one field mean the same.
pub(crate) fn fields(key: &str, a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => values(key, a, b),
        (Some(value), None) | (None, Some(value)) => is_nothing(key, value),
    }
}

fn values(key: &str, a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) if OPAQUE.contains(&key) => a == b,
        (Value::Object(a), Value::Object(b)) => members(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| values("", a, b)),
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (a, b) => a == b || (!key.is_empty() && is_nothing(key, a) && is_nothing(key, b)),
    }
}

fn members(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.iter().all(|(key, value)| fields(key, Some(value), b.get(key)))
        && b.iter()
            .filter(|(key, _)| !a.contains_key(*key))
            .all(|(key, value)| fields(key, None, Some(value)))
}

/// Whether a field's absence is not its zero.
pub(crate) fn is_distinct(key: &str) -> bool {
    DISTINCT.contains(&key)
}

/// Whether a field that has this value might as well be left out.
pub(crate) fn is_nothing(key: &str, value: &Value) -> bool {
    if value.is_null() {
        return true;
    }
    if is_distinct(key) {
        return false;
    }
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || (key == "project" && text == "default"),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) if OPAQUE.contains(&key) => members.is_empty(),
        Value::Object(members) => members.iter().all(|(key, value)| is_nothing(key, value)),
    }
}
