//! Reads the metadata of the object that a request writes from the headers and bytes of its content.
//!
//! Security: metadata counts only if every other parser of the same bytes would read the same.

use std::collections::BTreeMap;
use std::fmt;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

mod json_patch;
mod protobuf;
#[cfg(test)]
mod tests;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ContentFormat {
    /// JSON: an object, or the part of it that a patch changes. Undeclared content is JSON to
    /// kube-apiserver.
    Json,
    Yaml,
    /// An object in YAML, which most clients write as JSON (`application/apply-patch+yaml`).
    Apply,
    /// Operations (RFC 6902).
    JsonPatch,
    /// Protocol buffers of Kubernetes (`application/vnd.kubernetes.protobuf`).
    Protobuf,
    /// A format that is not read, or an ambiguous declaration.
    Other,
}

/// The content cannot be read: it has another format, is malformed, or is ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

impl ContentFormat {
    /// The format in `Content-Type`. A field that occurs twice, or has non-ASCII characters,
    /// declares none.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut fields = headers.get_all(CONTENT_TYPE).iter();
        // SECURITY: parsers differ on which of several fields counts.
        let field = match (fields.next(), fields.next()) {
            (None, _) => return Self::Json,
            (Some(_), Some(_)) => return Self::Other,
            (Some(field), None) => field.to_str(),
        };
        let media = field.map(|field| field.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
        match media.as_deref() {
            Ok("application/json" | "application/merge-patch+json" | "application/strategic-merge-patch+json") => {
                Self::Json
            }
            Ok("application/yaml") => Self::Yaml,
            Ok("application/apply-patch+yaml") => Self::Apply,
            Ok("application/json-patch+json") => Self::JsonPatch,
            Ok("application/vnd.kubernetes.protobuf") => Self::Protobuf,
            Ok(_) | Err(_) => Self::Other,
        }
    }
}

/// Reads name, annotations and labels. What a patch removes is left out.
///
/// - `bytes`: the whole content. The caller must bound its length.
///
/// # Errors
/// [`Unreadable`]: CBOR, a key that occurs twice or in another case, YAML that has two
/// readings, and a JSON patch of all annotations or labels at once.
pub(crate) fn read_metadata(format: ContentFormat, bytes: &[u8]) -> Result<ObjectMeta, Unreadable> {
    // What is skipped must be text, too: readers differ about other bytes.
    let json = || serde_json::from_str::<Object>(std::str::from_utf8(bytes).ok()?).ok();
    let yaml = || {
        let is_read = !has_two_readings(bytes);
        is_read
            .then(|| serde_saphyr::from_slice::<Object>(bytes).ok())
            .flatten()
    };
    let read = match format {
        ContentFormat::Json => json(),
        ContentFormat::Yaml => yaml(),
        // JSON that has no `<<` has one reading as YAML too.
        ContentFormat::Apply => json().or_else(yaml),
        ContentFormat::JsonPatch => return json_patch::read_metadata(bytes),
        ContentFormat::Protobuf => return protobuf::read_metadata(bytes),
        ContentFormat::Other => None,
    };
    read.map(|Object(metadata)| metadata).ok_or(Unreadable)
}

/// Whether readers of YAML may differ about a text. Tags give values other types, directives
/// rename tags, `<<` merges maps, and YAML 1.2 changed which non-ASCII characters end a line, and
/// with it a comment. kube-apiserver reads 1.1.
fn has_two_readings(bytes: &[u8]) -> bool {
    let merges = bytes.windows(2).any(|two| two == b"<<");
    merges || !bytes.is_ascii() || bytes.iter().any(|byte| matches!(byte, b'!' | b'%'))
}

struct Object(ObjectMeta);

struct Metadata(ObjectMeta);

/// A map of texts. `null` removes an entry.
struct Texts(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self(ObjectMeta::default()))
    }
}

impl<'de> Visitor<'de> for Object {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<Self, A::Error> {
        each_field(map, ["metadata"], |_, map| {
            if let Some(Metadata(metadata)) = map.next_value()? {
                self.0 = metadata;
            }
            Ok(())
        })?;
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self(ObjectMeta::default()))
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the metadata of an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<Self, A::Error> {
        each_field(map, ["name", "annotations", "labels"], |field, map| {
            let texts = |map: &mut A| Ok(map.next_value::<Option<Texts>>()?.map(|Texts(texts)| texts));
            match field {
                "name" => self.0.name = map.next_value()?,
                "annotations" => self.0.annotations = texts(map)?,
                _ => self.0.labels = texts(map)?,
            }
            Ok(())
        })?;
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self(BTreeMap::new()))
    }
}

impl<'de> Visitor<'de> for Texts {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        let mut removed = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            // A removed key counts as well: of `{"a":null,"a":"b"}`, a reader may take either.
            let is_again = self.0.contains_key(&key) || removed.contains(&key);
            if is_again || key == MERGE {
                return Err(A::Error::custom(TWO_READINGS));
            }
            match map.next_value::<Option<String>>()? {
                Some(value) => _ = self.0.insert(key, value),
                None => removed.push(key),
            }
        }
        Ok(self)
    }
}

/// The key that merges another map in YAML 1.1.
const MERGE: &str = "<<";
const TWO_READINGS: &str = "a key with two readings";

/// Reads a map, with `read` for each of `fields` that it has.
fn each_field<'de, A: MapAccess<'de>, const N: usize>(
    mut map: A,
    fields: [&'static str; N],
    mut read: impl FnMut(&'static str, &mut A) -> Result<(), A::Error>,
) -> Result<(), A::Error> {
    let mut seen = [false; N];
    while let Some(key) = map.next_key::<String>()? {
        let mut known = fields.into_iter().zip(&mut seen);
        match known.find(|(field, _)| field.eq_ignore_ascii_case(&key)) {
            Some((field, seen)) if field == key && !*seen => {
                *seen = true;
                read(field, &mut map)?;
            }
            // SECURITY: other readers take the last of several, or fold cases.
            Some(_) => return Err(A::Error::custom(TWO_READINGS)),
            None if key == MERGE => return Err(A::Error::custom(TWO_READINGS)),
            // Not kept: an object may have megabytes of other fields.
            None => _ = map.next_value::<IgnoredAny>()?,
        }
    }
    Ok(())
}
