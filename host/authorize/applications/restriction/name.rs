//! The name of an object that a request creates.
//!
//! In: headers and bytes of a body. Out: [`Name`]. Never: a name that another
//! reader of the same bytes would read otherwise.

use std::fmt;
use std::marker::PhantomData;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

/// What a body says of its object's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// This one.
    Known(String),
    /// The cluster will make one up, or there is none.
    Generated,
    /// The body cannot be read: another format, broken, or with two readings.
    Unreadable,
}

/// What a request says its content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON, or nothing is said, which means JSON to kube-apiserver.
    Json,
    /// YAML.
    Yaml,
    /// Something whose names are not read, or nothing that has one reading.
    Other,
}

impl Format {
    /// The format `Content-Type` says; a field that is there twice, or has other
    /// letters than ASCII, says none.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut fields = headers.get_all(CONTENT_TYPE).iter();
        // SECURITY: which of several fields counts, readers differ about.
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

impl Name {
    /// The name if it is known.
    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Known(name) => Some(name),
            Self::Generated | Self::Unreadable => None,
        }
    }
}

/// Reads `metadata.name` of an object.
///
/// - `bytes`: the whole body; its length is the caller's to bound.
///
/// JSON and YAML are read; Protobuf and CBOR are not. A key that is there twice, or
/// in another case, makes the body unreadable: readers differ about it.
pub fn name_in_body(format: Format, bytes: &[u8]) -> Name {
    let read = match format {
        Format::Json => serde_json::from_slice::<Object>(bytes).ok(),
        Format::Yaml if !has_two_readings(bytes) => serde_saphyr::from_slice::<Object>(bytes).ok(),
        Format::Yaml | Format::Other => None,
    };
    match read {
        Some(Object(Some(Metadata(Some(name))))) if !name.is_empty() => Name::Known(name),
        Some(Object(_)) => Name::Generated,
        None => Name::Unreadable,
    }
}

/// Whether readers of YAML may differ about a text: tags give values other types,
/// directives rename tags, `<<` merges maps, and which letters outside ASCII end a
/// line, and with it a comment, changed with YAML 1.2. kube-apiserver reads 1.1.
fn has_two_readings(bytes: &[u8]) -> bool {
    let merges = bytes.windows(2).any(|two| two == b"<<");
    merges || !bytes.is_ascii() || bytes.iter().any(|byte| matches!(byte, b'!' | b'%'))
}

/// An object by its metadata.
struct Object(Option<Metadata>);

/// Metadata by its name.
struct Metadata(Option<String>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(One("metadata", PhantomData)).map(Self)
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(One("name", PhantomData)).map(Self)
    }
}

/// Reads one key of a map.
struct One<T>(&'static str, PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for One<T> {
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
