//! Keys that Argo CD reads as other keys.
//!
//! In: JSON that becomes an ApplicationSet, or a patch of an Application. Out: nothing,
//! or the first key that is wrong. Refuses: a key that is a field's name but for the
//! case of its letters; a key that is a template. Never: a key of a map, whose keys are
//! the author's own, nor one that is no field's.
//!
//! Source: Go's `encoding/json` reads what is nested in a `matrix` or `merge`, and what
//! `templatePatch` gives. It folds case, and takes `\u{17f}` for `s` and the sign of
//! Kelvin for `k`. A cluster drops all other such keys before Argo CD sees them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::template::told;

mod known;
#[cfg(test)]
mod tests;

use known::KNOWN;

/// What is wrong with a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is a field's name in another case.
    #[error("`{path}` is wrong: Argo CD can take it for `{known}`, write it like this or leave it out")]
    Alike {
        /// Where it stands.
        path: String,
        /// The field.
        known: &'static str,
    },
    /// It is a template, and its place has fields.
    #[error("`{path}` is wrong: only keys of labels, annotations and other maps can be templates")]
    Template {
        /// Where it stands.
        path: String,
    },
}

impl Error {
    fn within(self, parent: &str) -> Self {
        let below = |path: String| match (parent.is_empty(), path.starts_with('[')) {
            (true, _) => path,
            (false, true) => format!("{parent}{path}"),
            (false, false) => format!("{parent}.{path}"),
        };
        match self {
            Self::Alike { path, known } => Self::Alike {
                path: below(path),
                known,
            },
            Self::Template { path } => Self::Template { path: below(path) },
        }
    }

    fn told(self) -> Self {
        match self {
            Self::Alike { path, known } => Self::Alike {
                path: told(&path),
                known,
            },
            Self::Template { path } => Self::Template { path: told(&path) },
        }
    }
}

/// Judges the keys of an ApplicationSet: of the object itself, and below `spec`.
///
/// # Errors
/// [`Error`], the first there is.
pub(super) fn of_set(object: &Value) -> Result<(), Error> {
    let Value::Object(members) = object else { return Ok(()) };
    let judged = members.iter().try_for_each(|(key, value)| {
        one(key, "", Templates::Refused)?;
        if key == "spec" {
            return below(value, key, Templates::Refused).map_err(|error| error.within(key));
        }
        Ok(())
    });
    judged.map_err(Error::told)
}

/// Judges the keys of a patch of an Application, rendered: no key is a template there.
///
/// # Errors
/// [`Error::Alike`].
pub(super) fn of_patch(patch: &Value) -> Result<(), Error> {
    below(patch, "", Templates::Text).map_err(Error::told)
}

/// What `{{` in a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Templates {
    Refused,
    Text,
}

/// Judges what stands below the key `parent`.
fn below(value: &Value, parent: &str, templates: Templates) -> Result<(), Error> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            let judged = below(item, parent, templates);
            judged.map_err(|error| error.within(&format!("[{index}]")))
        }),
        Value::Object(members) => members.iter().try_for_each(|(key, value)| {
            one(key, parent, templates)?;
            if is_free(key, value) {
                return Ok(());
            }
            below(value, key, templates).map_err(|error| error.within(key))
        }),
    }
}

fn one(key: &str, parent: &str, templates: Templates) -> Result<(), Error> {
    if templates == Templates::Refused && key.contains("{{") {
        return Err(Error::Template { path: key.to_owned() });
    }
    match known(key, parent) {
        Some(known) if known != key => Err(Error::Alike {
            path: key.to_owned(),
            known,
        }),
        Some(_) | None => Ok(()),
    }
}

/// Whether what stands below is the author's own. `values` and `parameters` are also
/// names of texts and lists, which have fields.
fn is_free(key: &str, value: &Value) -> bool {
    key == ELEMENTS || (value.is_object() && MAPS.contains(&key))
}

/// The field Argo CD takes a key for.
fn known(key: &str, parent: &str) -> Option<&'static str> {
    static FOLDED: LazyLock<BTreeMap<String, &'static str>> =
        LazyLock::new(|| KNOWN.iter().map(|known| (folded(known), *known)).collect());
    let known = *FOLDED.get(&folded(key))?;
    // The one name that is written in two ways.
    Some(match (known, parent) {
        ("azureDevOps", "pullRequest") => "azuredevops",
        (known, _) => known,
    })
}

/// A key as Go's `encoding/json` compares it.
fn folded(key: &str) -> String {
    let fold = |letter: char| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        letter => letter.to_ascii_lowercase(),
    };
    key.chars().map(fold).collect()
}

/// `elements` of a list generator.
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
