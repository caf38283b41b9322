//! Refuses keys that Argo CD would read as another key.
//!
//! Two kinds of keys are errors, in ApplicationSets and in patches of Applications: a key that
//! differs from a field's name only in case, and a key that is a template in place of a field.
//! Keys of maps belong to the author and are not checked, nor are keys that resemble no field.
//!
//! Source: Go's `encoding/json` reads what is nested in a `matrix` or `merge`, and what
//! `templatePatch` gives. It folds case, and takes `\u{17f}` for `s` and the Kelvin sign for `k`.
//! A cluster drops all other such keys before Argo CD sees them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use crate::message::truncated;

mod field_names;
#[cfg(test)]
mod tests;

use field_names::FIELD_NAMES;

/// What is wrong with a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is a field's name with different case.
    #[error("`{path}` is wrong: Argo CD may read it as `{known}`; write it that way or remove it")]
    CaseVariant { path: String, known: &'static str },
    /// It is a template where fields are expected.
    #[error("`{path}` is wrong: only keys of labels, annotations and other maps can be templates")]
    Template { path: String },
}

impl Error {
    fn with_path(mut self, change: impl FnOnce(&str) -> String) -> Self {
        let (Self::CaseVariant { path, .. } | Self::Template { path }) = &mut self;
        *path = change(path);
        self
    }

    fn within(self, parent: &str) -> Self {
        self.with_path(|path| match path {
            path if parent.is_empty() => path.to_owned(),
            path if path.starts_with('[') => format!("{parent}{path}"),
            path => format!("{parent}.{path}"),
        })
    }
}

/// Checks the keys of an ApplicationSet: of the object itself, and below `spec`.
pub(super) fn check_application_set(object: &Value) -> Result<(), Error> {
    let Value::Object(members) = object else { return Ok(()) };
    let checked = members.iter().try_for_each(|(key, value)| {
        check_key(key, "", TemplatedKeys::Refused)?;
        // A cluster drops such keys below the others, such as `metadata`.
        match key.as_str() {
            "spec" => check_below(value, key, TemplatedKeys::Refused).map_err(|error| error.within(key)),
            _ => Ok(()),
        }
    });
    checked.map_err(|error| error.with_path(truncated))
}

/// Checks the keys of a rendered patch of an Application, in which no key is a template any more.
pub(super) fn check_patch(patch: &Value) -> Result<(), Error> {
    check_below(patch, "", TemplatedKeys::Text).map_err(|error| error.with_path(truncated))
}

/// How `{{` in a key is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TemplatedKeys {
    Refused,
    Text,
}

fn check_below(value: &Value, parent: &str, templates: TemplatedKeys) -> Result<(), Error> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            let checked = check_below(item, parent, templates);
            checked.map_err(|error| error.within(&format!("[{index}]")))
        }),
        Value::Object(members) => members.iter().try_for_each(|(key, value)| {
            check_key(key, parent, templates)?;
            if is_user_defined(key, value) {
                return Ok(());
            }
            check_below(value, key, templates).map_err(|error| error.within(key))
        }),
    }
}

fn check_key(key: &str, parent: &str, templates: TemplatedKeys) -> Result<(), Error> {
    if templates == TemplatedKeys::Refused && key.contains("{{") {
        return Err(Error::Template { path: key.to_owned() });
    }
    match matching_field(key, parent) {
        Some(known) if known != key => Err(Error::CaseVariant {
            path: key.to_owned(),
            known,
        }),
        Some(_) | None => Ok(()),
    }
}

/// Whether the author chooses the keys below this one. `values` and `parameters` also name strings
/// and lists in other places; only objects under these names are free.
fn is_user_defined(key: &str, value: &Value) -> bool {
    key == ELEMENTS || (value.is_object() && MAPS.contains(&key))
}

/// The field that Argo CD takes a key for.
fn matching_field(key: &str, parent: &str) -> Option<&'static str> {
    static FOLDED: LazyLock<BTreeMap<String, &'static str>> = LazyLock::new(|| {
        FIELD_NAMES
            .split_whitespace()
            .map(|known| (folded(known), known))
            .collect()
    });
    let known = *FOLDED.get(&folded(key))?;
    // The only name that is written in two ways.
    Some(match (known, parent) {
        ("azureDevOps", "pullRequest") => "azuredevops",
        (known, _) => known,
    })
}

/// The key in the form in which Go's `encoding/json` compares keys.
fn folded(key: &str) -> String {
    let fold = |letter: char| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        letter => letter.to_ascii_lowercase(),
    };
    key.chars().map(fold).collect()
}

const ELEMENTS: &str = "elements";

/// Fields that are maps, or any JSON.
const MAPS: [&str; 10] = [
    "annotations",
    "commonAnnotations",
    "commonLabels",
    "labels",
    "map",
    "matchLabels",
    "options",
    "parameters",
    "values",
    "valuesObject",
];
