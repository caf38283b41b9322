//! Decides whether two values of an object's field mean the same, without copying them.
//!
//! Invariant: an absent field equals a value only if that value means the same as absence.

use serde_json::{Map, Value};

/// Which differences between an object's fields count.
#[derive(Debug)]
pub struct EquivalenceRules {
    /// Fields whose absence differs from their zero value: Argo CD has pointers there.
    pub significant_zeros: &'static [&'static str],
    /// Fields with keys of the user's own, in which every value counts.
    pub opaque: &'static [&'static str],
    /// Whether an absent `project` is `default`.
    pub has_default_project: bool,
}

/// The rules for fields of an Application.
pub const APPLICATION: EquivalenceRules = EquivalenceRules {
    significant_zeros: &["enabled", "automated", "revisionHistoryLimit", "count", "factor"],
    opaque: &[
        "labels",
        "annotations",
        "commonLabels",
        "commonAnnotations",
        "valuesObject",
        "map",
        "matchLabels",
    ],
    has_default_project: true,
};

impl EquivalenceRules {
    /// Whether two values of one field mean the same.
    pub fn fields_equal(&self, key: &str, a: Option<&Value>, b: Option<&Value>) -> bool {
        match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => self.values(key, a, b),
            (Some(value), None) | (None, Some(value)) => self.is_zero_value(key, value),
        }
    }

    fn values(&self, key: &str, a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Object(_), Value::Object(_)) | (Value::Array(_), Value::Array(_)) if self.opaque.contains(&key) => {
                a == b
            }
            (Value::Object(a), Value::Object(b)) => self.members(a, b),
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.values("", a, b))
            }
            // Go writes the number 1.0 as `1`.
            (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
            // Without a key it is an item of a list. A zero there is an item, and not an absent one.
            (a, b) => a == b || (!key.is_empty() && self.is_zero_value(key, a) && self.is_zero_value(key, b)),
        }
    }

    fn members(&self, a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
        let mut only_b = b.iter().filter(|(key, _)| !a.contains_key(*key));
        a.iter()
            .all(|(key, value)| self.fields_equal(key, Some(value), b.get(key)))
            && only_b.all(|(key, value)| self.is_zero_value(key, value))
    }

    /// Whether a field with this value means the same as no field.
    pub fn is_zero_value(&self, key: &str, value: &Value) -> bool {
        match value {
            Value::Null => true,
            _ if self.significant_zeros.contains(&key) => false,
            Value::Bool(value) => !value,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::String(text) => {
                text.is_empty() || (self.has_default_project && key == "project" && text == "default")
            }
            Value::Array(items) => items.is_empty(),
            Value::Object(members) if self.opaque.contains(&key) => members.is_empty(),
            Value::Object(members) => members.iter().all(|(key, value)| self.is_zero_value(key, value)),
        }
    }
}
