//! Reads single fields of the request messages of Argo CD's API, from protobuf and from JSON.
//!
//! Security: argocd-server reads the same bytes by its own rules: of a field that occurs twice it
//! takes the last, and it ignores the case of JSON's names. So what could be read in two ways is an
//! error here.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use super::methods::FieldPath;
use tollgate_front::grpc::wire::{self, Payload};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("the content is not a message of protobuf")]
    Protobuf,
    #[error("the content is not one JSON value")]
    Json,
    #[error("`{0}` is given more than once")]
    Duplicate(&'static str),
    #[error("`{0}` is of another type")]
    Type(&'static str),
}

/// The text at `path` of a protobuf message. `None` if it is absent or empty.
pub(crate) fn protobuf_text(message: &[u8], path: FieldPath) -> Result<Option<&str>, Error> {
    let Some(bytes) = protobuf_bytes(message, path)? else {
        return Ok(None);
    };
    let text = std::str::from_utf8(bytes).map_err(|_| Error::Type(path.name))?;
    // proto3 does not tell an empty text from none.
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Whether the repeated field at `path`, of one number, has an element.
pub(crate) fn protobuf_has(message: &[u8], path: FieldPath) -> Result<bool, Error> {
    let mut found = false;
    for field in wire::fields(message) {
        let (number, _) = field.ok_or(Error::Protobuf)?;
        found |= path.numbers().eq([number]);
    }
    Ok(found)
}

/// Whether the truth value at `path`, of one number, is set by any of its occurrences.
pub(crate) fn protobuf_is_set(message: &[u8], path: FieldPath) -> Result<bool, Error> {
    let mut is_set = false;
    for field in wire::fields(message) {
        match field.ok_or(Error::Protobuf)? {
            // argocd-server takes the last of several. Here any one counts, so that their order hides nothing.
            (number, Payload::Varint(value)) if path.numbers().eq([number]) => is_set |= value != 0,
            (number, _) if path.numbers().eq([number]) => return Err(Error::Type(path.name)),
            _ => {}
        }
    }
    Ok(is_set)
}

fn protobuf_bytes(message: &[u8], path: FieldPath) -> Result<Option<&[u8]>, Error> {
    let mut message = message;
    for expected in path.numbers() {
        let mut found = None;
        for field in wire::fields(message) {
            let (number, payload) = field.ok_or(Error::Protobuf)?;
            if number != expected {
                continue;
            }
            let Payload::Bytes(bytes) = payload else {
                return Err(Error::Type(path.name));
            };
            if found.replace(bytes).is_some() {
                return Err(Error::Duplicate(path.name));
            }
        }
        match found {
            Some(bytes) => message = bytes,
            None => return Ok(None),
        }
    }
    Ok(Some(message))
}

/// The text at `path` below `whole`. `None` if it is absent, `null` or empty.
///
/// - `name`: for errors.
pub(crate) fn json_text(whole: &[u8], path: &str, name: &'static str) -> Result<Option<String>, Error> {
    let Some(value) = json_value(whole, path, name)? else {
        return Ok(None);
    };
    let text: String = serde_json::from_str(value.get()).map_err(|_| Error::Type(name))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// The text that is the whole content. `None` if it is `null` or empty.
///
/// - `name`: for errors.
pub(crate) fn json_whole_text(whole: &[u8], name: &'static str) -> Result<Option<String>, Error> {
    if whole.is_empty() {
        return Ok(None);
    }
    let text: Option<String> = serde_json::from_slice(whole).map_err(|_| Error::Type(name))?;
    Ok(text.filter(|text| !text.is_empty()))
}

/// Whether there is a list at `path` below `whole`, even an empty one: argocd-server tells it from
/// no list.
pub(crate) fn json_has_list(whole: &[u8], path: &str, name: &'static str) -> Result<bool, Error> {
    match json_value(whole, path, name)? {
        None => Ok(false),
        Some(value) if value.get().starts_with('[') => Ok(true),
        Some(_) => Err(Error::Type(name)),
    }
}

/// Whether there is a value other than `false` at `path` below `whole`.
pub(crate) fn json_is_set(whole: &[u8], path: &str, name: &'static str) -> Result<bool, Error> {
    Ok(json_value(whole, path, name)?.is_some_and(|value| value.get() != "false"))
}

fn json_value<'a>(whole: &'a [u8], path: &str, name: &'static str) -> Result<Option<&'a RawValue>, Error> {
    // argocd-server takes no content for an empty message.
    if whole.is_empty() {
        return Ok(None);
    }
    let mut value: &RawValue = serde_json::from_slice(whole).map_err(|_| Error::Json)?;
    for segment in path.split('.') {
        if value.get() == "null" {
            return Ok(None);
        }
        let Members(members) = serde_json::from_str(value.get()).map_err(|_| Error::Type(name))?;
        let mut same = members.into_iter().filter(|(key, _)| is_same_name(key, segment));
        let Some((_, found)) = same.next() else {
            return Ok(None);
        };
        if same.next().is_some() {
            return Err(Error::Duplicate(name));
        }
        value = found;
    }
    Ok(Some(value).filter(|value| value.get() != "null"))
}

/// Whether Go's `encoding/json` takes `key` for the field `name`, which is ASCII. It folds all case,
/// that of `ſ` and of the Kelvin sign among it.
fn is_same_name(key: &str, name: &str) -> bool {
    let folded = key.chars().map(|letter| match letter {
        'ſ' => 's',
        '\u{212a}' => 'k',
        letter => letter.to_ascii_lowercase(),
    });
    folded.eq(name.chars().map(|letter| letter.to_ascii_lowercase()))
}

/// The members of a JSON object, each as often as it occurs.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(key) = map.next_key::<Key<'de>>()? {
                    members.push((key.0, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A text that is borrowed where it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests;
