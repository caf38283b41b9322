//! Reads the [`BodyName`] of an object that a request creates, from the headers and bytes of its
//! body.
//!
//! Security: a name counts only if every other parser of the same bytes would read the same one.

use std::fmt;
use std::marker::PhantomData;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyName {
    Known(String),
    /// The cluster generates the name, or there is none.
    Generated,
    /// The body cannot be read: it has another format, is malformed, or is ambiguous.
    Unreadable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    /// JSON, or undeclared, which means JSON to kube-apiserver.
    Json,
    Yaml,
    /// A format whose names are not read, or an ambiguous declaration.
    Other,
}

impl BodyFormat {
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
        let media = field.map(|field| field.split(';').next().unwrap_or_default().trim());
        match media {
            Ok(media) if media.eq_ignore_ascii_case("application/json") => Self::Json,
            Ok(media) if media.eq_ignore_ascii_case("application/yaml") => Self::Yaml,
            Ok(_) | Err(_) => Self::Other,
        }
    }
}

impl BodyName {
    pub(crate) fn known(&self) -> Option<&str> {
        match self {
            Self::Known(name) => Some(name),
            Self::Generated | Self::Unreadable => None,
        }
    }
}

/// Reads `metadata.name` of an object.
///
/// - `bytes`: the whole body. The caller must bound its length.
///
/// Reads JSON and YAML, but not Protobuf and CBOR. A key that occurs twice, or in another case,
/// makes the body unreadable, because readers treat it differently.
pub(crate) fn name_in_body(format: BodyFormat, bytes: &[u8]) -> BodyName {
    let read = match format {
        BodyFormat::Json => serde_json::from_slice::<Object>(bytes).ok(),
        BodyFormat::Yaml if !has_two_readings(bytes) => serde_saphyr::from_slice::<Object>(bytes).ok(),
        BodyFormat::Yaml | BodyFormat::Other => None,
    };
    match read {
        Some(Object(Some(Metadata(Some(name))))) if !name.is_empty() => BodyName::Known(name),
        Some(Object(_)) => BodyName::Generated,
        None => BodyName::Unreadable,
    }
}

/// Whether readers of YAML may differ about a text. Tags give values other types, directives
/// rename tags, `<<` merges maps, and YAML 1.2 changed which non-ASCII characters end a line, and
/// with it a comment. kube-apiserver reads 1.1.
fn has_two_readings(bytes: &[u8]) -> bool {
    let merges = bytes.windows(2).any(|two| two == b"<<");
    merges || !bytes.is_ascii() || bytes.iter().any(|byte| matches!(byte, b'!' | b'%'))
}

struct Object(Option<Metadata>);

struct Metadata(Option<String>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_map(SingleKeyVisitor("metadata", PhantomData))
            .map(Self)
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_map(SingleKeyVisitor("name", PhantomData))
            .map(Self)
    }
}

struct SingleKeyVisitor<T>(&'static str, PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for SingleKeyVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with `{}`", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        let mut seen = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == self.0 && !seen {
                seen = true;
                found = map.next_value::<Option<T>>()?;
            // SECURITY: other readers take the last of several, or fold cases.
            } else if key.eq_ignore_ascii_case(self.0) {
                return Err(A::Error::custom("a key with two readings"));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}
