//! Applies `templatePatch`, in YAML or JSON, to the `metadata` and `spec` of a rendered
//! Application.
//!
//! Security: a patch never changes the project that the template gave.
//!
//! Source: Kubernetes' strategic merge patch with the types of Argo CD's `Application`: lists are
//! replaced, but `metadata.finalizers` are merged; below `valuesObject` there are no types, so
//! nested objects cannot be merged there.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::decode::fields::type_in_words;
use super::{Exceeded, GenerationBudget, json, keys, yaml};
use crate::message::truncated;

#[cfg(test)]
mod tests;

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";
/// The only list of an Application that is merged.
const MERGED_LIST: &str = "finalizers";
/// The only field without a type.
const UNTYPED: &str = "valuesObject";
/// Maximum number of entries of that list and of its directives: each is compared with each.
const MAX_LIST_ITEMS: usize = 1_000;
/// Fields of an Application that a set sets.
const PATCHABLE_FIELDS: [&str; 2] = ["metadata", "spec"];
/// Fields that a set never sets.
const IGNORED_FIELDS: [&str; 4] = ["apiVersion", "kind", "status", "operation"];

/// Why a patch cannot be applied to an Application.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither YAML nor JSON.
    #[error("it is neither YAML nor JSON: {0}")]
    Syntax(String),
    /// Not an object.
    #[error("it is {0}, not an object")]
    Kind(&'static str),
    /// An unknown directive, or one in a place where it does not apply.
    #[error("the directive `{0}` is wrong here")]
    Directive(String),
    /// `$retainKeys` does not list what the patch sets.
    #[error("`$retainKeys` must name `{0}`, which the patch sets")]
    Retain(String),
    /// Values that cannot be merged because no type says how.
    #[error("`{0}` cannot be merged: below `valuesObject` only whole values can be replaced")]
    Untyped(String),
    /// A list whose entries must be compared is too long.
    #[error("a list of `finalizers` has {observed} entries, at most {allowed} are allowed")]
    Long {
        /// Number of entries.
        observed: usize,
        /// Allowed.
        allowed: usize,
    },
    /// A limit of the set's budget was exceeded.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// The patch starts an operation.
    #[error("it must not set `operation`")]
    Operation,
    /// A field that Applications do not have.
    #[error("an Application has no field `{0}`")]
    Field(String),
    /// A key could be taken for another field.
    #[error(transparent)]
    Key(#[from] keys::Error),
}

impl Error {
    /// Shortens the texts so that they fit in an answer.
    pub(super) fn truncated(mut self) -> Self {
        match &mut self {
            Self::Syntax(text)
            | Self::Directive(text)
            | Self::Retain(text)
            | Self::Untyped(text)
            | Self::Field(text) => *text = truncated(text),
            Self::Kind(_) | Self::Long { .. } | Self::Exceeded(_) | Self::Operation | Self::Key(_) => {}
        }
        self
    }
}

/// Applies the patch `text` to an Application's `metadata` and `spec`. A patch that is blank or
/// `null` changes nothing.
pub(crate) fn apply(parts: Value, text: &str, budget: &GenerationBudget) -> Result<Value, Error> {
    let patch = read(text, budget)?;
    keys::check_patch(&patch)?;
    let mut patch = match patch {
        Value::Null => return Ok(parts),
        Value::Object(fields) => fields,
        other => return Err(Error::Kind(type_in_words(&other))),
    };
    // Before `IGNORED_FIELDS`, which would drop it without a word. `null` starts nothing.
    if patch.get("operation").is_some_and(|value| !value.is_null()) {
        return Err(Error::Operation);
    }
    patch.retain(|key, _| !IGNORED_FIELDS.contains(&key.as_str()));
    // SECURITY: Argo CD decodes the whole object with a case-insensitive decoder.
    let is_field = |key: &String| PATCHABLE_FIELDS.contains(&key.as_str()) || directive(key);
    if let Some(key) = patch.keys().find(|key| !is_field(key)) {
        return Err(Error::Field(key.clone()));
    }
    for key in PATCHABLE_FIELDS {
        match patch.get(key) {
            None | Some(Value::Null | Value::Object(_)) => {}
            Some(_) => return Err(Error::Kind("an object whose `metadata` or `spec` is none")),
        }
    }
    let project = parts.pointer("/spec/project").cloned();
    let parts = match parts {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let mut patched = Value::Object(merge(parts, patch, FieldTypes::Known)?);
    restore_project(&mut patched, project);
    Ok(patched)
}

/// Parses a patch: as JSON if it begins like a JSON object, else as YAML.
///
/// # Errors
/// [`Error::Syntax`] if it is neither, [`Error::Exceeded`] if a limit was exceeded.
pub fn read(text: &str, budget: &GenerationBudget) -> Result<Value, Error> {
    budget.check_deadline()?;
    let mut charge = |bytes| budget.charge_bytes(bytes);
    let read = match text.trim_start().starts_with('{') {
        true => json::read(text, &mut charge),
        false => yaml::read(text, yaml::DuplicateKeys::LastWins, &mut charge),
    };
    read.map_err(|error| match error {
        yaml::Error::Syntax(what) => Error::Syntax(what),
        yaml::Error::Limit(exceeded) => Error::Exceeded(exceeded),
    })
}

/// Checks that a list is short enough to compare its entries with each other.
fn check_list_length(items: &[Value]) -> Result<(), Error> {
    match (items.len(), MAX_LIST_ITEMS) {
        (observed, allowed) if observed > allowed => Err(Error::Long { observed, allowed }),
        (_, _) => Ok(()),
    }
}

fn restore_project(patched: &mut Value, project: Option<Value>) {
    let fields = patched.as_object_mut();
    let spec = fields.map(|fields| fields.entry("spec").or_insert_with(|| Map::new().into()));
    let Some(spec) = spec.and_then(Value::as_object_mut) else {
        return;
    };
    match project {
        Some(project) => spec.insert("project".to_owned(), project),
        // The template gave no project, so the patch must not add one.
        None => spec.remove("project"),
    };
}

/// Whether the fields of an object have types that say how to merge them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldTypes {
    Known,
    None,
}

fn merge(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    types: FieldTypes,
) -> Result<Map<String, Value>, Error> {
    match patch.get(DIRECTIVE).cloned() {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some(Value::String(directive)) if directive == "delete" => return Ok(Map::new()),
        Some(other) => return Err(Error::Directive(format!("{DIRECTIVE}: {other}"))),
    }
    apply_retain_keys(&mut original, &mut patch)?;
    let order = take_element_order(&mut patch)?;
    // Deletions come first, so that their position in the patch does not matter.
    let (deletions, fields): (Vec<_>, Vec<_>) = patch.into_iter().partition(|(key, _)| key.starts_with(DELETE_FROM));
    for (key, value) in deletions {
        delete_from(&mut original, &key, &value)?;
    }
    for (key, value) in fields {
        merge_field(&mut original, &key, value, types)?;
    }
    if let Some(order) = order {
        reorder(&mut original, &order);
    }
    Ok(original)
}

fn merge_field(original: &mut Map<String, Value>, key: &str, value: Value, types: FieldTypes) -> Result<(), Error> {
    if value.is_null() {
        original.remove(key);
        return Ok(());
    }
    let merged = match (original.remove(key), value) {
        (Some(Value::Object(_)), Value::Object(_)) | (Some(Value::Array(_)), Value::Array(_))
            if types == FieldTypes::None =>
        {
            return Err(Error::Untyped(key.to_owned()));
        }
        (Some(Value::Object(before)), Value::Object(after)) => {
            let below = match key {
                UNTYPED => FieldTypes::None,
                _ => FieldTypes::Known,
            };
            Some(Value::Object(merge(before, after, below)?))
        }
        (Some(Value::Array(before)), Value::Array(after)) if key == MERGED_LIST => {
            check_list_length(&before)?;
            check_list_length(&after)?;
            Some(Value::Array(merge_list(&before, after)))
        }
        (Some(Value::Array(_)), Value::Array(after)) => Some(Value::Array(plain_list(after))),
        (_, value) => without_directives(value),
    };
    if let Some(merged) = merged {
        original.insert(key.to_owned(), merged);
    }
    Ok(())
}

/// A value for a field that had none: without nulls and directives; `None` if it is itself a
/// directive.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(mut fields) => {
            fields.retain(|key, value| !value.is_null() && !directive(key));
            let fields = fields.into_iter();
            let fields = fields.filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(fields.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

/// A list that replaces another one; directives in it have no effect.
fn plain_list(mut items: Vec<Value>) -> Vec<Value> {
    for fields in items.iter_mut().filter_map(Value::as_object_mut) {
        fields.retain(|key, _| !directive(key));
    }
    items
}

fn directive(key: &str) -> bool {
    key == DIRECTIVE || key == RETAIN || key.starts_with(DELETE_FROM) || key.starts_with(ORDER)
}

/// The scalars of both lists, without duplicates. Those of the patch come in its order, before
/// those that only the original has, unless the original had them earlier.
fn merge_list(original: &[Value], patch: Vec<Value>) -> Vec<Value> {
    let mut wanted: Vec<Value> = Vec::new();
    for item in patch {
        if !wanted.contains(&item) {
            wanted.push(item);
        }
    }
    let position = |item: &Value| original.iter().position(|known| known == item);
    let mut kept: Vec<&Value> = Vec::new();
    for item in original {
        if !wanted.contains(item) && !kept.contains(&item) {
            kept.push(item);
        }
    }
    let mut merged = Vec::with_capacity(kept.len() + wanted.len());
    let mut kept = kept.into_iter().peekable();
    for item in &wanted {
        if let Some(after) = position(item) {
            while let Some(earlier) = kept.next_if(|earlier| position(earlier).is_some_and(|before| before < after)) {
                merged.push(earlier.clone());
            }
        }
        merged.push(item.clone());
    }
    merged.extend(kept.cloned());
    merged
}

/// `$retainKeys`: fields that it does not name are removed first.
fn apply_retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), Error> {
    let Some(keys) = patch.remove(RETAIN) else {
        return Ok(());
    };
    let keys = keys.as_array().ok_or_else(|| Error::Directive(RETAIN.to_owned()))?;
    let keys: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let named = |key: &str| keys.contains(key);
    let unnamed = patch.iter().find(|(key, value)| {
        !value.is_null() && !key.starts_with(DELETE_FROM) && !key.starts_with(ORDER) && !named(key)
    });
    // Kubernetes refuses such a patch, too.
    if let Some((key, _)) = unnamed {
        return Err(Error::Retain(key.clone()));
    }
    original.retain(|key, _| named(key));
    Ok(())
}

/// `$deleteFromPrimitiveList/<key>`.
fn delete_from(original: &mut Map<String, Value>, key: &str, items: &Value) -> Result<(), Error> {
    let wrong = || Error::Directive(key.to_owned());
    let list = key.strip_prefix(DELETE_FROM).ok_or_else(wrong)?;
    let items = match items {
        Value::Null => return Ok(()),
        Value::Array(items) => items,
        _ => return Err(wrong()),
    };
    match original.get_mut(list) {
        None | Some(Value::Null) => {}
        Some(Value::Array(known)) => {
            check_list_length(items)?;
            known.retain(|item| !items.contains(item));
        }
        Some(_) => return Err(wrong()),
    }
    Ok(())
}

/// `$setElementOrder/finalizers`; no other list has an order to set.
fn take_element_order(patch: &mut Map<String, Value>) -> Result<Option<Vec<Value>>, Error> {
    let keys: Vec<String> = patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    let mut order = None;
    for key in keys {
        let list = patch.remove(&key);
        match (key.strip_prefix(ORDER), list) {
            (Some(MERGED_LIST), Some(Value::Array(items))) => {
                check_list_length(&items)?;
                order = Some(items);
            }
            _ => return Err(Error::Directive(key)),
        }
    }
    Ok(order)
}

fn reorder(original: &mut Map<String, Value>, order: &[Value]) {
    let Some(Value::Array(items)) = original.get_mut(MERGED_LIST) else {
        return;
    };
    let position = |item: &Value| order.iter().position(|known| known == item);
    let mut named: Vec<Value> = items.iter().filter(|item| position(item).is_some()).cloned().collect();
    named.sort_by_key(position);
    let mut named = named.into_iter();
    // Items that the order does not name keep their position.
    for item in items.iter_mut().filter(|item| position(item).is_some()) {
        if let Some(next) = named.next() {
            *item = next;
        }
    }
}
