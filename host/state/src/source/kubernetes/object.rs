//! Parses objects as the API server sends them and drops the parts that are not used, such as
//! managed fields and the status of an Application.
//!
//! Invariant: neither the type nor the depth of a value makes parsing fail, because one bad object
//! would block the whole list.
//! Security: `Debug` shows no values.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use tollgate_objects::decode::LAST_APPLIED;

/// The deepest nesting that is read. An API server stores up to 10,000 levels where a definition
/// preserves unknown fields, and `serde_json` fails at 128, of which a list takes two.
pub(super) const MAX_DEPTH: usize = 100;

/// An object: its name and version, and the parts that the gateway reads. `WHOLE` keeps everything
/// except managed fields, because the object is given out again.
#[derive(Clone, derive_more::Debug)]
#[debug("Object {{ namespace: {:?}, name: {:?}, .. }}", self.metadata.namespace, self.metadata.name)]
pub(super) struct Object<const WHOLE: bool = false> {
    pub(super) metadata: ObjectMeta,
    pub(super) value: Value,
    /// Whether parts below [`MAX_DEPTH`] are missing. Such an object must not be used.
    pub(super) is_truncated: bool,
}

impl<const WHOLE: bool> kube::Resource for Object<WHOLE> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<'de, const WHOLE: bool> serde::Deserialize<'de> for Object<WHOLE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_truncated = Cell::new(false);
        let limit = DepthLimit {
            left: MAX_DEPTH,
            is_exceeded: &is_truncated,
        };
        let value = if WHOLE {
            let mut value = ValueSeed(None, limit).deserialize(deserializer)?;
            if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
            value
        } else {
            ValueSeed(Some(Part::Object), limit).deserialize(deserializer)?
        };
        let text = |key: &str| Some(value.get("metadata")?.get(key)?.as_str()?.to_owned());
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            uid: text("uid"),
            ..ObjectMeta::default()
        };
        Ok(Self {
            metadata,
            value,
            is_truncated: is_truncated.get(),
        })
    }
}

/// The part of an object that is parsed, which decides the keys that are kept.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Metadata,
    Annotations,
    Spec,
    SourceHydrator,
    /// A source of an Application, or a list of sources.
    Source,
    Status,
}

impl Part {
    fn retention(self, key: &str) -> Retention {
        match (self, key) {
            (Self::Object, "metadata") => Retention::Part(Self::Metadata),
            (Self::Object, "spec") => Retention::Part(Self::Spec),
            (Self::Object, "status") => Retention::Part(Self::Status),
            (Self::Metadata, "annotations") => Retention::Part(Self::Annotations),
            // SECURITY: kubectl's annotation contains the Secret's values.
            (Self::Annotations, LAST_APPLIED) => Retention::KeyOnly,
            (Self::Object, "data" | "stringData")
            | (Self::Metadata, "name" | "namespace" | "labels" | "resourceVersion" | "uid" | "ownerReferences")
            | (Self::Status, "jwtTokensByRole")
            | (Self::Annotations, _) => Retention::All,
            (Self::Object | Self::Metadata | Self::Status, _) => Retention::Drop,
            // The large parts of an Application. Of its sources, only the repositories are kept.
            (Self::Spec, "syncPolicy" | "ignoreDifferences" | "info") => Retention::Drop,
            (Self::Spec, "source" | "sources") | (Self::SourceHydrator, "drySource" | "syncSource") => {
                Retention::Part(Self::Source)
            }
            (Self::Spec, "sourceHydrator") => Retention::Part(Self::SourceHydrator),
            (Self::Spec, _) | (Self::Source, "repoURL") => Retention::All,
            (Self::SourceHydrator | Self::Source, _) => Retention::Drop,
        }
    }
}

enum Retention {
    All,
    /// The key is kept, with an empty text: generators must tell a hidden annotation from an absent
    /// one.
    KeyOnly,
    Part(Part),
    Drop,
}

/// Reads a part of an object, or all of a value, with `null` for anything that is nested deeper than the levels
/// that are left.
#[derive(Clone, Copy)]
struct ValueSeed<'a>(Option<Part>, DepthLimit<'a>);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! keep_scalars {
    ($($visit:ident: $scalar:ty),*) => {
        $(fn $visit<E>(self, value: $scalar) -> Result<Value, E> {
            Ok(Value::from(value))
        })*
    };
}

/// A part that is not a mapping is kept, so that decoding reports it.
impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let Self(part, limit) = self;
        // Parts are nested as deep as they are here, so only what is kept whole is bounded.
        let Some(limit) = part.map_or_else(|| limit.below(), |_| Some(limit)) else {
            // Read to its end, because the rest of the list comes after it.
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut kept = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            match part.map_or(Retention::All, |part| part.retention(&key)) {
                Retention::All => {
                    kept.insert(key, members.next_value_seed(Self(None, limit))?);
                }
                Retention::KeyOnly => {
                    members.next_value::<IgnoredAny>()?;
                    kept.insert(key, Value::String(String::new()));
                }
                Retention::Part(part) => {
                    kept.insert(key, members.next_value_seed(Self(Some(part), limit))?);
                }
                Retention::Drop => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(kept))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let Self(part, limit) = self;
        let mut kept = Vec::new();
        match part {
            None | Some(Part::Source) => {
                let Some(below) = limit.below() else {
                    while items.next_element::<IgnoredAny>()?.is_some() {}
                    return Ok(Value::Null);
                };
                while let Some(item) = items.next_element_seed(Self(part, below))? {
                    kept.push(item);
                }
            }
            Some(
                Part::Object | Part::Metadata | Part::Annotations | Part::Spec | Part::SourceHydrator | Part::Status,
            ) => while items.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(Value::Array(kept))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    keep_scalars!(visit_str: &str, visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);
}

/// The levels that may still be nested, and whether more were.
#[derive(Clone, Copy)]
struct DepthLimit<'a> {
    left: usize,
    is_exceeded: &'a Cell<bool>,
}

impl DepthLimit<'_> {
    /// The limit within a mapping or list; `None` if that is too deep.
    fn below(self) -> Option<Self> {
        let left = self.left.checked_sub(1);
        self.is_exceeded.set(self.is_exceeded.get() || left.is_none());
        left.map(|left| Self { left, ..self })
    }
}
