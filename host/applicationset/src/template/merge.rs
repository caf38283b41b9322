//! Merges the template of a generator with the template of the set. Lists are not merged element
//! by element.
//!
//! Source: Argo CD's `mergeGeneratorTemplate`, which fills what is empty in the generator's
//! template.

use serde_json::{Map, Value};

/// Fields whose objects count as one value: they are raw JSON, not fields of a type.
const WHOLE: [&str; 1] = ["valuesObject"];

/// Merges `own` over `base`. Where `own` has nothing, `false`, 0 or an empty string or list,
/// `base` is used.
pub(super) fn fill(own: &Value, base: &Value) -> Value {
    match (own, base) {
        (Value::Object(own), Value::Object(base)) => Value::Object(objects(own, base)),
        (own, base) if empty(own) && !base.is_null() => base.clone(),
        (own, _) => own.clone(),
    }
}

fn objects(own: &Map<String, Value>, base: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = own.clone();
    for (key, base) in base {
        let value = match own.get(key) {
            Some(own) if !own.is_null() && WHOLE.contains(&key.as_str()) => own.clone(),
            Some(own) => fill(own, base),
            None => base.clone(),
        };
        merged.insert(key.clone(), value);
    }
    merged
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}
