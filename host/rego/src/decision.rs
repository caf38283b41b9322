//! Reads the value of the rule `decision` into a [`Decision`].
//!
//! Security: only `true` allows, and an obligation that no code carries out is an error.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue};
use regorus::Value;
use regorus::value::Object;

use crate::error::Error;
use crate::front::Front;
use tollgate_core::header_names::is_host_owned;

const MAX_REASON_BYTES: usize = 512;
/// Maximum number of entries of one map of an obligation.
const MAX_ENTRIES: usize = 32;
const MAX_VALUE_BYTES: usize = 1024;

/// What a bundle decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request may pass.
    pub allow: bool,
    /// Why, for the caller: printable, at most 512 bytes, possibly empty.
    pub reason: String,
    /// Keys besides `allow` and `reason`, as the policy gave them: `headers` and `log` for
    /// extensions. They are checked, and the fields below hold the same.
    pub obligations: serde_json::Map<String, serde_json::Value>,
    /// Header fields to set on the way to the backend. None of them belongs to the host.
    pub set_headers: Vec<(HeaderName, HeaderValue)>,
    /// Header fields to remove on the way to the backend. None of them belongs to the host.
    pub remove_headers: Vec<HeaderName>,
    /// Texts for the decision record.
    pub log: BTreeMap<String, String>,
}

impl Decision {
    /// Bytes of names and texts in the obligations.
    pub fn obligation_bytes(&self) -> usize {
        let set = self.set_headers.iter();
        let set = set.map(|(name, value)| name.as_str().len() + value.len());
        let removed = self.remove_headers.iter().map(|name| name.as_str().len());
        let logged = self.log.iter().map(|(key, text)| key.len() + text.len());
        set.sum::<usize>() + removed.sum::<usize>() + logged.sum::<usize>()
    }

    /// A denial without obligations. `reason` is a text an operator wrote.
    pub(crate) fn denied(reason: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            ..Self::default()
        }
    }
}

pub(crate) fn read(front: Front, value: &Value) -> Result<Decision, Error> {
    let object = match value {
        Value::Object(object) => object,
        Value::Undefined => return Err(Error::Undefined),
        other => return Err(Error::NotAnObject(type_of(other))),
    };
    let mut allow = &Value::Undefined;
    let mut decision = Decision::denied("");
    for (key, value) in object.iter_sorted() {
        let key: &str = key
            .as_string()
            .map_err(|_| Error::UnknownObligation(type_of(key).to_owned()))?;
        match (front, key) {
            (_, "allow") => allow = value,
            (_, "reason") => decision.reason = reason(value)?,
            (Front::Extensions, "headers") => {
                headers(value, &mut decision)?;
                decision.obligations.insert(key.to_owned(), json(value));
            }
            (
                Front::Extensions | Front::Kubernetes | Front::Applications | Front::Argocd | Front::ControlPlane,
                "log",
            ) => {
                decision.log = log(value)?;
                decision.obligations.insert(key.to_owned(), json(value));
            }
            (
                Front::Extensions
                | Front::Kubernetes
                | Front::Applications
                | Front::ApplicationSets
                | Front::Argocd
                | Front::ControlPlane,
                unknown,
            ) => {
                return Err(Error::UnknownObligation(
                    unknown.chars().filter(|c| !c.is_control()).take(64).collect(),
                ));
            }
        }
    }
    match allow {
        Value::Bool(allow) => decision.allow = *allow,
        other => return Err(Error::NotABoolean(type_of(other))),
    }
    Ok(decision)
}

/// Checks that a reason is one printable line that a caller may see.
pub(crate) fn check_reason(text: &str) -> Result<(), &'static str> {
    if text.len() > MAX_REASON_BYTES {
        return Err("is longer than 512 bytes");
    }
    if text.chars().any(char::is_control) {
        return Err("has control characters");
    }
    Ok(())
}

fn reason(value: &Value) -> Result<String, Error> {
    let Value::String(text) = value else {
        return Err(Error::Reason("is not a text"));
    };
    check_reason(text).map_err(Error::Reason)?;
    Ok(text.to_string())
}

fn wrong(key: &'static str, problem: impl Into<String>) -> Error {
    Error::Obligation {
        key,
        problem: problem.into(),
    }
}

fn entries<'a>(key: &'static str, value: &'a Value) -> Result<&'a Object, Error> {
    let Value::Object(entries) = value else {
        return Err(wrong(key, "is not an object"));
    };
    if entries.len() > MAX_ENTRIES {
        let problem = format!("has {} entries, {MAX_ENTRIES} are allowed", entries.len());
        return Err(wrong(key, problem));
    }
    Ok(entries)
}

fn short_text<'a>(key: &'static str, value: &'a Value) -> Result<&'a str, Error> {
    let problem = match value {
        Value::String(text) if text.len() > MAX_VALUE_BYTES => {
            format!("has a text of {} bytes, {MAX_VALUE_BYTES} are allowed", text.len())
        }
        Value::String(text) if text.chars().any(char::is_control) => "has a text with control characters".to_owned(),
        Value::String(text) => return Ok(text),
        other => format!("has a value of type `{}`, a text is expected", type_of(other)),
    };
    Err(wrong(key, problem))
}

/// SECURITY: a name that only the host may write is an error, hence a denial. It is never silently
/// left out, as the policy meant something by it.
fn header_name(text: &str) -> Result<HeaderName, Error> {
    let name: HeaderName = text
        .parse()
        .map_err(|_| wrong("headers", "has a name that is no header name"))?;
    if is_host_owned(&name) {
        let problem = format!("names `{name}`, which only the gateway may write");
        return Err(wrong("headers", problem));
    }
    Ok(name)
}

fn headers(value: &Value, decision: &mut Decision) -> Result<(), Error> {
    for (key, value) in entries("headers", value)?.iter_sorted() {
        match (key.as_string().map(AsRef::as_ref).unwrap_or_default(), value) {
            ("set", value) => {
                for (name, value) in entries("headers", value)?.iter_sorted() {
                    let name = header_name(short_text("headers", name)?)?;
                    let value = HeaderValue::from_str(short_text("headers", value)?)
                        .map_err(|_| wrong("headers", "has a value that is no header value"))?;
                    decision.set_headers.push((name, value));
                }
            }
            ("remove", Value::Array(names)) if names.len() <= MAX_ENTRIES => {
                for name in names.iter() {
                    decision.remove_headers.push(header_name(short_text("headers", name)?)?);
                }
            }
            ("remove", Value::Set(names)) if names.len() <= MAX_ENTRIES => {
                for name in names.iter() {
                    decision.remove_headers.push(header_name(short_text("headers", name)?)?);
                }
            }
            ("remove", _) => {
                let problem = format!("has a `remove` that is no list of up to {MAX_ENTRIES} names");
                return Err(wrong("headers", problem));
            }
            _ => return Err(wrong("headers", "has a key other than `set` and `remove`")),
        }
    }
    Ok(())
}

fn log(value: &Value) -> Result<BTreeMap<String, String>, Error> {
    let mut log = BTreeMap::new();
    for (key, value) in entries("log", value)?.iter_sorted() {
        log.insert(short_text("log", key)?.to_owned(), short_text("log", value)?.to_owned());
    }
    Ok(log)
}

/// Converts a value to JSON. Call it only for checked values, so that the size is bounded.
fn json(value: &Value) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or(serde_json::Value::Null)
}

pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Set(_) => "set",
        Value::Object(_) => "object",
        Value::Undefined => "undefined",
    }
}
