//! Parses objects as the API server sends them and drops the parts that are not used, such as
//! managed fields and the status of an Application.
//!
//! Invariant: no type of a value makes parsing fail, because one bad object would block the whole
//! list.
//! Security: `Debug` shows no values.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The annotation in which kubectl keeps what it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object: its name and version, and the parts that the gateway reads.
#[derive(Clone)]
pub(super) struct Object {
    pub(super) metadata: ObjectMeta,
    pub(super) value: Value,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("namespace", &self.metadata.namespace)
            .field("name", &self.metadata.name)
            .finish_non_exhaustive()
    }
}

impl kube::Resource for Object {
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

/// An object that is kept whole, except for its managed fields, because it is given out again.
#[derive(Clone, Debug)]
pub(super) struct UnprunedObject(Object);

impl From<UnprunedObject> for Object {
    fn from(object: UnprunedObject) -> Self {
        object.0
    }
}

impl kube::Resource for UnprunedObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        Object::kind(of)
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        Object::group(of)
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        Object::version(of)
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        Object::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

impl<'de> serde::Deserialize<'de> for UnprunedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        Ok(Self(Object::of(value)))
    }
}

impl<'de> serde::Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Part::Object.deserialize(deserializer).map(Self::of)
    }
}

impl Object {
    fn of(value: Value) -> Self {
        let text = |key: &str| Some(value.get("metadata")?.get(key)?.as_str()?.to_owned());
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            uid: text("uid"),
            ..ObjectMeta::default()
        };
        Self { metadata, value }
    }
}

/// The part of an object that is parsed, which decides the keys that are kept.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Metadata,
    Annotations,
    Spec,
    Status,
}

impl Part {
    /// How a key is treated.
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
            // The large parts of an Application. No other kind has these keys.
            (Self::Spec, "source" | "sources" | "syncPolicy" | "ignoreDifferences" | "info" | "sourceHydrator") => {
                Retention::Drop
            }
            (Self::Spec, _) => Retention::All,
        }
    }
}

/// How a value is treated.
enum Retention {
    All,
    /// The key is kept, with an empty text: generators must tell a hidden annotation from an absent
    /// one.
    KeyOnly,
    Part(Part),
    Drop,
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// A part that is not a mapping is kept, so that decoding reports it.
impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            match self.retention(&key) {
                Retention::All => {
                    kept.insert(key, members.next_value()?);
                }
                Retention::KeyOnly => {
                    members.next_value::<IgnoredAny>()?;
                    kept.insert(key, Value::String(String::new()));
                }
                Retention::Part(part) => {
                    kept.insert(key, members.next_value_seed(part)?);
                }
                Retention::Drop => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(kept))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Array(Vec::new()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}
