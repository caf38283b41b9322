//! Changes `spec.destinationServiceAccounts` of AppProjects. It refuses an object that differs
//! elsewhere, adding an entry that exists, removing one that does not, and entries Argo CD would
//! refuse.
//!
//! Invariant: no other key of the object changes.

use serde_json::{Map, Value, json};

use crate::impersonate::service_account;
use tollgate_config::ServiceAccountSemantics;
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_objects::DestinationServiceAccount;

/// The one key of `spec` that is written.
const ENTRIES: &str = "destinationServiceAccounts";
const MAX_ENTRIES: usize = 1_000;

/// Why a change of an AppProject is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Something other than the entries differs: the key of this path, such as `spec.roles`.
    #[error("`{0}` differs from what is stored; only `spec.destinationServiceAccounts` can be changed here")]
    Differs(String),
    /// It does not have the shape of an AppProject.
    #[error("`{key}` is not {expected}")]
    Shape {
        /// Path of the key.
        key: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// Entries that could not act, in Argo CD's words.
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
    /// The entry is there already.
    #[error("specified destination service account is already defined in project")]
    Present,
    /// The entry is not there.
    #[error("specified destination service account does not exist in project")]
    Absent,
}

/// An entry in its written form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Pattern of the cluster's API server URL.
    pub server: String,
    /// Pattern of the destination namespace.
    pub namespace: String,
    /// `name` or `namespace:name`.
    pub account: String,
}

impl Entry {
    fn to_value(&self) -> Value {
        json!({ "server": self.server, "namespace": self.namespace, "defaultServiceAccount": self.account })
    }

    fn matches(&self, entry: &Value) -> bool {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        text("server") == self.server
            && text("namespace") == self.namespace
            && text("defaultServiceAccount") == self.account
    }
}

/// Appends the entry to the object.
///
/// # Errors
/// [`Error::Present`], [`Error::Shape`]. Source: Argo CD, `argocd proj
/// add-destination-service-account`.
pub fn add(stored: &Value, entry: &Entry) -> Result<Value, Error> {
    let mut object = stored.clone();
    let entries = entries_mut(&mut object)?;
    if entries.iter().any(|known| entry.matches(known)) {
        return Err(Error::Present);
    }
    entries.push(entry.to_value());
    Ok(object)
}

/// Removes the entry from the object.
///
/// # Errors
/// [`Error::Absent`], [`Error::Shape`]. Source: Argo CD, `argocd proj
/// remove-destination-service-account`.
pub fn remove(stored: &Value, entry: &Entry) -> Result<Value, Error> {
    let mut object = stored.clone();
    let entries = entries_mut(&mut object)?;
    let before = entries.len();
    entries.retain(|known| !entry.matches(known));
    if entries.len() == before {
        return Err(Error::Absent);
    }
    Ok(object)
}

/// Replaces all entries of the object.
///
/// # Errors
/// [`Error::Shape`]. Source: Argo CD, `argocd proj set --dest-service-accounts`.
pub fn replace(stored: &Value, entries: &[Entry]) -> Result<Value, Error> {
    let mut object = stored.clone();
    *entries_mut(&mut object)? = entries.iter().map(Entry::to_value).collect();
    Ok(object)
}

fn shape(key: impl Into<String>, expected: &'static str) -> Error {
    let key = key.into();
    Error::Shape { key, expected }
}

fn entries_mut(object: &mut Value) -> Result<&mut Vec<Value>, Error> {
    let spec = object
        .as_object_mut()
        .map(|members| members.entry("spec").or_insert_with(|| json!({})));
    let spec = spec.ok_or_else(|| shape("project", "an object"))?;
    if spec.is_null() {
        *spec = json!({});
    }
    let spec = spec.as_object_mut().ok_or_else(|| shape("spec", "an object"))?;
    let entries = spec.entry(ENTRIES).or_insert_with(|| json!([]));
    if entries.is_null() {
        *entries = json!([]);
    }
    entries
        .as_array_mut()
        .ok_or_else(|| shape("spec.destinationServiceAccounts", "a list"))
}

/// Returns the stored object with the entries of the one that was sent.
///
/// An absent key and `null` are equal. Of `metadata` and the keys beside `spec`, only what is sent
/// is compared; what is not sent stays. Every key of `spec` has to be as it is stored.
///
/// # Errors
/// [`Error::Differs`] names the first key that differs, in order of names; [`Error::Shape`].
pub fn with_replaced_entries(stored: &Value, sent: &Value) -> Result<Value, Error> {
    let sent = sent.as_object().ok_or_else(|| shape("project", "an object"))?;
    let metadata = sent.get("metadata").and_then(Value::as_object);
    let metadata = metadata.ok_or_else(|| shape("project.metadata", "an object"))?;
    let spec = sent.get("spec").and_then(Value::as_object);
    let spec = spec.ok_or_else(|| shape("project.spec", "an object"))?;
    let beside = sent
        .iter()
        .filter(|(key, _)| !matches!(key.as_str(), "metadata" | "spec"));
    for (key, value) in beside {
        if is_different(stored.get(key), Some(value)) {
            return Err(Error::Differs(key.clone()));
        }
    }
    let own = stored.get("metadata");
    for (key, value) in metadata.iter().filter(|(key, _)| !is_server_managed(key)) {
        if is_different(own.and_then(|own| own.get(key)), Some(value)) {
            return Err(Error::Differs(format!("metadata.{key}")));
        }
    }
    let empty = Map::new();
    let own = stored.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let mut keys: Vec<&String> = own.keys().chain(spec.keys()).filter(|key| *key != ENTRIES).collect();
    keys.sort();
    if let Some(key) = keys.into_iter().find(|key| is_different(own.get(*key), spec.get(*key))) {
        return Err(Error::Differs(format!("spec.{key}")));
    }
    let new_entries = match spec.get(ENTRIES) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(entries)) => entries.clone(),
        Some(_) => return Err(shape("spec.destinationServiceAccounts", "a list")),
    };
    let mut object = stored.clone();
    let entries = entries_mut(&mut object)?;
    *entries = new_entries;
    // Sending no entries where none were stored is no change.
    let is_nothing = entries.is_empty() && own.get(ENTRIES).is_none_or(Value::is_null);
    Ok(if is_nothing { stored.clone() } else { object })
}

/// Whether the caller does not control the key, such as the version.
fn is_server_managed(key: &str) -> bool {
    matches!(
        key,
        "resourceVersion" | "managedFields" | "creationTimestamp" | "generation"
    )
}

fn is_different(stored: Option<&Value>, sent: Option<&Value>) -> bool {
    let some = |value: Option<&Value>| value.filter(|value| !value.is_null()).cloned();
    some(stored) != some(sent)
}

/// Whether the entries of an object can be stored.
///
/// # Errors
/// [`Error::Shape`] and [`Error::Invalid`]; both name the entry by its number
/// from 0.
pub fn validate(object: &Value, semantics: ServiceAccountSemantics) -> Result<(), Error> {
    let found = service_account::validate(&entries(object)?, semantics);
    if found.is_empty() {
        return Ok(());
    }
    let describe = |finding: &Diagnostic| {
        let at = finding.location.as_ref().map_or_else(String::new, ToString::to_string);
        format!("`{at}`: {}", finding.message)
    };
    Err(Error::Invalid(found.iter().map(describe).collect()))
}

/// The entries in the form that the gateway validates. Each has its key as its position.
///
/// # Errors
/// [`Error::Shape`], also for more than 1,000 entries.
pub fn entries(object: &Value) -> Result<Vec<DestinationServiceAccount>, Error> {
    let listed = object.get("spec").and_then(|spec| spec.get(ENTRIES));
    let listed = listed.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if listed.len() > MAX_ENTRIES {
        return Err(shape(
            "spec.destinationServiceAccounts",
            "a list of at most 1,000 entries",
        ));
    }
    let read = |(number, entry): (usize, &Value)| {
        let at = format!("spec.destinationServiceAccounts[{number}]");
        let members = entry.as_object().ok_or_else(|| shape(&at, "an object"))?;
        let known = ["server", "namespace", "defaultServiceAccount"];
        if let Some(key) = members.keys().find(|key| !known.contains(&key.as_str())) {
            let expected = "one of `server`, `namespace`, `defaultServiceAccount`";
            return Err(shape(format!("{at}.{key}"), expected));
        }
        let text = |key: &str| match members.get(key) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(shape(format!("{at}.{key}"), "text")),
        };
        Ok(DestinationServiceAccount {
            server: text("server")?,
            namespace: text("namespace")?,
            default_service_account: text("defaultServiceAccount")?,
            location: Location::new(at.as_str(), 0),
        })
    };
    listed.iter().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests;
