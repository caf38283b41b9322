//! Encodes JSON responses, in the form that Kubernetes and Argo CD use, as protobuf messages.
//! Fields that a message lacks are omitted and reported.
//!
//! Invariant: no value changes on the way.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::applicationsets::grpc::schema::{
    FieldCardinality, FieldKind, FieldSchema, MessageId, MessageSchema, Schema, Shape,
};
use tollgate_front::grpc::wire::{put_bytes, put_varint};

const MAX_REPORTED_FIELDS: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` is not {wanted}")]
pub(crate) struct Error {
    pub(crate) path: String,
    pub(crate) wanted: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncodedMessage {
    pub(crate) bytes: Bytes,
    /// Names of fields that the messages in it cannot represent, the first few. They come from a
    /// newer Argo CD, and the API of this version would not show them either.
    pub(crate) omitted_fields: Vec<String>,
}

pub(super) fn encode(schema: &Schema, id: MessageId, value: &Value) -> Result<EncodedMessage, Error> {
    let mut writer = Encoder {
        schema,
        omitted_fields: Vec::new(),
    };
    let root = FieldPath { parent: None, name: "" };
    let mut bytes = Vec::new();
    writer.message(id, value, &root, &mut bytes)?;
    Ok(EncodedMessage {
        bytes: bytes.into(),
        omitted_fields: writer.omitted_fields,
    })
}

struct Encoder<'a> {
    schema: &'a Schema,
    omitted_fields: Vec<String>,
}

struct FieldPath<'a> {
    parent: Option<&'a Self>,
    name: &'a str,
}

impl FieldPath<'_> {
    fn type_error(&self, wanted: &'static str) -> Error {
        Error {
            path: self.text(),
            wanted,
        }
    }

    fn text(&self) -> String {
        match self.parent {
            Some(parent) if parent.name.is_empty() => self.name.to_owned(),
            Some(parent) => format!("{}.{}", parent.text(), self.name),
            None => self.name.to_owned(),
        }
    }
}

impl Encoder<'_> {
    fn message(&mut self, id: MessageId, value: &Value, path: &FieldPath<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let message = self.schema.message(id).ok_or_else(|| path.type_error("known"))?;
        match message.shape {
            Shape::Object => {
                let object = value.as_object().ok_or_else(|| path.type_error("an object"))?;
                for name in object.keys() {
                    if !(self.is_known(message, name) || message.is_object && matches!(&**name, "apiVersion" | "kind"))
                    {
                        self.record_omitted(path, name);
                    }
                }
                self.object(message, object, path, out)
            }
            Shape::Raw => {
                put_bytes(out, 1, value.to_string().as_bytes());
                Ok(())
            }
            Shape::Time | Shape::MicroTime => time(message.shape, value, path, out),
            Shape::IntOrString => int_or_string(value, path, out),
        }
    }

    /// Records the name of a field that its message does not have, except at the top level of a
    /// response.
    fn record_omitted(&mut self, path: &FieldPath<'_>, name: &str) {
        if path.parent.is_some() && self.omitted_fields.len() < MAX_REPORTED_FIELDS {
            let here = FieldPath {
                parent: Some(path),
                name,
            };
            self.omitted_fields.push(here.text());
        }
    }

    fn is_known(&self, message: &MessageSchema, name: &str) -> bool {
        message.fields.values().any(|field| match field.inline {
            Some(id) => {
                let inner = self.schema.message(id);
                inner.is_some_and(|inner| self.is_known(inner, name))
            }
            None => field.name == name,
        })
    }

    fn object(
        &mut self,
        message: &MessageSchema,
        object: &Map<String, Value>,
        path: &FieldPath<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        for field in message.fields.values() {
            if let Some(id) = field.inline {
                self.inline(field, id, object, path, out)?;
                continue;
            }
            let Some(value) = object.get(&field.name).filter(|value| !value.is_null()) else {
                continue;
            };
            let here = FieldPath {
                parent: Some(path),
                name: &field.name,
            };
            match field.cardinality {
                FieldCardinality::Singular => self.value(field.number, field.kind, value, &here, out)?,
                FieldCardinality::Repeated => {
                    for value in value.as_array().ok_or_else(|| here.type_error("a list"))? {
                        self.value(field.number, field.kind, value, &here, out)?;
                    }
                }
                FieldCardinality::Map => {
                    for (name, value) in value.as_object().ok_or_else(|| here.type_error("an object"))? {
                        self.entry(field, name, value, &here, out)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a message whose fields are inlined in its parent's JSON, if one of them is present.
    fn inline(
        &mut self,
        field: &FieldSchema,
        id: MessageId,
        object: &Map<String, Value>,
        path: &FieldPath<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let message = self.schema.message(id).ok_or_else(|| path.type_error("known"))?;
        let mut given = object.iter().filter(|(_, value)| !value.is_null());
        if given.any(|(name, _)| self.is_known(message, name)) {
            let mut inner = Vec::new();
            self.object(message, object, path, &mut inner)?;
            put_bytes(out, field.number, &inner);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        field: &FieldSchema,
        name: &str,
        value: &Value,
        path: &FieldPath<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let here = FieldPath {
            parent: Some(path),
            name,
        };
        let mut inner = Vec::new();
        put_bytes(&mut inner, 1, name.as_bytes());
        self.value(2, field.kind, value, &here, &mut inner)?;
        put_bytes(out, field.number, &inner);
        Ok(())
    }

    fn value(
        &mut self,
        number: u32,
        kind: FieldKind,
        value: &Value,
        path: &FieldPath<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        match kind {
            FieldKind::Text => {
                let text = value.as_str().ok_or_else(|| path.type_error("a text"))?;
                put_bytes(out, number, text.as_bytes());
            }
            FieldKind::Bool => {
                let value = value.as_bool().ok_or_else(|| path.type_error("true or false"))?;
                put_varint(out, number, u64::from(value));
            }
            FieldKind::Int64 => {
                let value = value.as_i64().ok_or_else(|| path.type_error("a whole number"))?;
                put_varint(out, number, value.cast_unsigned());
            }
            FieldKind::Int32 => put_varint(out, number, int32(value, path)?.cast_unsigned()),
            FieldKind::Message(id) => {
                let mut inner = Vec::new();
                self.message(id, value, path, &mut inner)?;
                put_bytes(out, number, &inner);
            }
        }
        Ok(())
    }
}

/// A 32-bit number, which is encoded like a 64-bit one.
fn int32(value: &Value, path: &FieldPath<'_>) -> Result<i64, Error> {
    let value = value.as_i64().filter(|value| i32::try_from(*value).is_ok());
    value.ok_or_else(|| path.type_error("a whole number of 32 bits"))
}

fn time(shape: Shape, value: &Value, path: &FieldPath<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
    // A `null` is a zero time in Go, in a list too.
    if value.is_null() {
        return Ok(());
    }
    let at: Option<Timestamp> = value.as_str().and_then(|text| text.parse().ok());
    let at = at.ok_or_else(|| path.type_error("a time as RFC 3339 has it"))?;
    put_varint(out, 1, at.as_second().cast_unsigned());
    let nanoseconds = match shape {
        Shape::MicroTime => at.subsec_nanosecond().div_euclid(1_000) * 1_000,
        _ => 0,
    };
    put_varint(out, 2, i64::from(nanoseconds).cast_unsigned());
    Ok(())
}

fn int_or_string(value: &Value, path: &FieldPath<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
    match value {
        Value::String(text) => {
            put_varint(out, 1, 1);
            put_bytes(out, 3, text.as_bytes());
        }
        number => {
            put_varint(out, 1, 0);
            put_varint(out, 2, int32(number, path)?.cast_unsigned());
        }
    }
    Ok(())
}
