//! Accessors for members of JSON objects that follow Go's decoder: `null` counts as absent. A
//! value of the wrong type is an error.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::Error;

/// The member, unless it is null.
pub(crate) fn member<'v>(object: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    object.get(key).filter(|value| !value.is_null())
}

/// An object member; empty when absent.
pub(crate) fn section<'v>(
    parent: &'v Map<String, Value>,
    key: &str,
    path: &str,
) -> Result<&'v Map<String, Value>, Error> {
    static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    member(parent, key).map_or(Ok(&*EMPTY), |value| object(value, path))
}

pub(crate) fn object<'v>(value: &'v Value, path: &str) -> Result<&'v Map<String, Value>, Error> {
    value.as_object().ok_or_else(|| mistake(path, value, "an object"))
}

/// A string member; empty when absent.
pub(crate) fn text<'v>(object: &'v Map<String, Value>, key: &str, path: &str) -> Result<&'v str, Error> {
    match member(object, key) {
        None => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(mistake(&child_path(path, key), other, "text")),
    }
}

/// A boolean member; false when absent.
pub(crate) fn flag(object: &Map<String, Value>, key: &str, path: &str) -> Result<bool, Error> {
    match member(object, key) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(mistake(&child_path(path, key), other, "a boolean")),
    }
}

/// A list member; empty when absent.
pub(crate) fn list<'v>(object: &'v Map<String, Value>, key: &str, path: &str) -> Result<&'v [Value], Error> {
    match member(object, key) {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(other) => Err(mistake(&child_path(path, key), other, "a list")),
    }
}

/// A member that is a list of strings; empty when absent.
pub(crate) fn texts<'v>(object: &'v Map<String, Value>, key: &str, path: &str) -> Result<Vec<&'v str>, Error> {
    let items = list(object, key, path)?.iter().enumerate();
    let item = |(index, item): (usize, &'v Value)| {
        let path = || format!("{}[{index}]", child_path(path, key));
        item.as_str().ok_or_else(|| mistake(&path(), item, "text"))
    };
    items.map(item).collect()
}

/// A member that is a mapping to strings; empty when absent.
pub(crate) fn text_map<'v>(
    parent: &'v Map<String, Value>,
    key: &str,
    path: &str,
) -> Result<Vec<(&'v str, &'v str)>, Error> {
    let Some(value) = member(parent, key) else {
        return Ok(Vec::new());
    };
    let path = child_path(path, key);
    let entry = |(key, value): (&'v String, &'v Value)| match value {
        Value::String(text) => Ok((key.as_str(), text.as_str())),
        // Go decodes `null` in a map of strings as an empty string.
        Value::Null => Ok((key.as_str(), "")),
        other => Err(mistake(&child_path(&path, key), other, "text")),
    };
    object(value, &path)?.iter().map(entry).collect()
}

pub(crate) fn child_path(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

pub(crate) fn mistake(path: &str, observed: &Value, wanted: &'static str) -> Error {
    let path = if path.is_empty() { "the object" } else { path }.to_owned();
    let observed = type_in_words(observed);
    Error::Type { path, observed, wanted }
}

pub(crate) fn type_in_words(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
