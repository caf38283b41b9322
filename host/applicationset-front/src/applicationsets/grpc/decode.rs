//! Decodes messages of callers into JSON, in the form that Kubernetes and Argo CD use. It refuses
//! bytes that are not such a message, that JSON could not represent without loss, or that are too
//! large.
//!
//! Security: decoding makes at most [`MAX_VALUES`] values, regardless of the bytes. No message type
//! contains itself, so no message is nested deeper than the schema.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::applicationsets::grpc::schema::{
    FieldCardinality, FieldKind, FieldSchema, MessageId, MessageSchema, Schema, Shape, Zero,
};
use tollgate_front::grpc::wire::{self, Payload};

/// Most values of one message. A set of 1,000 elements with 20 fields each has 20,000.
pub(crate) const MAX_VALUES: usize = 200_000;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("`{0}` is malformed")]
    Malformed(String),
    #[error("`{field}` of `{message}` has a value of another type")]
    Type { message: String, field: String },
    #[error("`{field}` of `{message}` occurs twice")]
    DuplicateField { message: String, field: String },
    /// An unknown field that is not zero. It would be lost.
    #[error("field {number} of `{message}` is not known to this server, the client may be newer")]
    Unknown { message: String, number: u32 },
    #[error("more than {allowed} values")]
    Values { allowed: usize },
}

/// Decodes a message into JSON.
///
/// A zero value is written only where Go's JSON has it and it has a meaning: for a pointer, or
/// without `omitempty`.
pub(super) fn decode(schema: &Schema, id: MessageId, bytes: &[u8]) -> Result<Value, Error> {
    let mut reader = Decoder {
        schema,
        remaining_values: MAX_VALUES,
    };
    Ok(reader.message(id, bytes)?.value)
}

struct Decoder<'a> {
    schema: &'a Schema,
    remaining_values: usize,
}

/// A value, and whether it is the one Go has if nothing was sent.
struct DecodedValue {
    value: Value,
    zero: bool,
}

impl DecodedValue {
    fn new(value: Value, zero: bool) -> Self {
        Self { value, zero }
    }
}

impl Decoder<'_> {
    fn charge(&mut self, values: usize) -> Result<(), Error> {
        let remaining_values = self.remaining_values.checked_sub(values);
        self.remaining_values = remaining_values.ok_or(Error::Values { allowed: MAX_VALUES })?;
        Ok(())
    }

    fn message(&mut self, id: MessageId, bytes: &[u8]) -> Result<DecodedValue, Error> {
        let malformed = || Error::Malformed(String::new());
        let message = self.schema.message(id).ok_or_else(malformed)?;
        match message.shape {
            Shape::Object => self.object(message, bytes),
            Shape::Raw => self.raw(message, bytes),
            Shape::Time | Shape::MicroTime => time(message, bytes),
            Shape::IntOrString => int_or_string(message, bytes),
        }
    }

    fn object(&mut self, message: &MessageSchema, bytes: &[u8]) -> Result<DecodedValue, Error> {
        let mut object = ObjectBuilder::new(message);
        for field in wire::fields(bytes) {
            let (number, payload) = field.ok_or_else(|| malformed(message))?;
            let Some(field) = message.fields.get(&number) else {
                if payload.is_zero() {
                    continue;
                }
                let message = message.name.clone();
                return Err(Error::Unknown { message, number });
            };
            self.charge(1)?;
            self.field(&mut object, field, payload)?;
        }
        for field in message.fields.values() {
            self.charge(fill(self.schema, &mut object, field))?;
        }
        Ok(DecodedValue::new(Value::Object(object.map), object.zero))
    }

    fn field(
        &mut self,
        object: &mut ObjectBuilder<'_>,
        field: &FieldSchema,
        payload: Payload<'_>,
    ) -> Result<(), Error> {
        match field.cardinality {
            FieldCardinality::Singular => {
                // protobuf lets the last one count. A message that can be read in two ways is refused.
                if object.seen.contains(&field.number) {
                    return Err(object.duplicate_field(field));
                }
                object.seen.push(field.number);
                let read = self.value(object.message, field, payload)?;
                object.put(field, read);
            }
            FieldCardinality::Repeated => {
                let read = self.value(object.message, field, payload)?;
                let list = object.map.entry(&field.name).or_insert_with(|| json!([]));
                if let Value::Array(list) = list {
                    list.push(read.value);
                }
                object.zero = false;
            }
            FieldCardinality::Map => {
                let (name, read) = self.entry(object.message, field, payload)?;
                let named = object.map.entry(&field.name).or_insert_with(|| json!({}));
                if let Value::Object(named) = named
                    && named.insert(name, read.value).is_some()
                {
                    return Err(object.duplicate_field(field));
                }
                object.zero = false;
            }
        }
        Ok(())
    }

    /// Reads an entry of a map: a message with the name as field 1 and the value as field 2.
    fn entry(
        &mut self,
        message: &MessageSchema,
        field: &FieldSchema,
        payload: Payload<'_>,
    ) -> Result<(String, DecodedValue), Error> {
        let Payload::Bytes(entry) = payload else {
            return Err(mistyped(message, field));
        };
        let (mut name, mut value) = (None, None);
        for part in wire::fields(entry) {
            match part.ok_or_else(|| malformed(message))? {
                (1, Payload::Bytes(bytes)) if name.is_none() => name = Some(text(message, field, bytes)?),
                (2, payload) if value.is_none() => value = Some(self.value(message, field, payload)?),
                _ => return Err(mistyped(message, field)),
            }
        }
        // By the encoding of protobuf, an entry may omit a name or value that is zero.
        let value = value.unwrap_or_else(|| DecodedValue::new(zero(self.schema, field.kind), true));
        Ok((name.unwrap_or_default(), value))
    }

    fn value(
        &mut self,
        message: &MessageSchema,
        field: &FieldSchema,
        payload: Payload<'_>,
    ) -> Result<DecodedValue, Error> {
        Ok(match (field.kind, payload) {
            (FieldKind::Text, Payload::Bytes(bytes)) => {
                let text = text(message, field, bytes)?;
                let zero = text.is_empty();
                DecodedValue::new(text.into(), zero)
            }
            (FieldKind::Bool, Payload::Varint(value)) => DecodedValue::new((value != 0).into(), value == 0),
            (FieldKind::Int64, Payload::Varint(value)) => DecodedValue::new(value.cast_signed().into(), value == 0),
            (FieldKind::Int32, Payload::Varint(value)) => {
                let value = int32(value).ok_or_else(|| mistyped(message, field))?;
                DecodedValue::new(value.into(), value == 0)
            }
            (FieldKind::Message(id), Payload::Bytes(bytes)) => self.message(id, bytes)?,
            _ => return Err(mistyped(message, field)),
        })
    }

    fn raw(&mut self, message: &MessageSchema, bytes: &[u8]) -> Result<DecodedValue, Error> {
        let mut text = None;
        for field in wire::fields(bytes) {
            match field.ok_or_else(|| malformed(message))? {
                (1, Payload::Bytes(bytes)) if text.is_none() => text = Some(bytes),
                _ => return Err(malformed(message)),
            }
        }
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return Ok(DecodedValue::new(Value::Null, true));
        };
        // Every value but the first follows one of these characters.
        let most = text.iter().filter(|byte| matches!(byte, b'{' | b'[' | b',')).count();
        self.charge(most)?;
        let value = serde_json::from_slice(text).map_err(|_| malformed(message))?;
        Ok(DecodedValue::new(value, false))
    }
}

struct ObjectBuilder<'a> {
    message: &'a MessageSchema,
    map: Map<String, Value>,
    seen: Vec<u32>,
    zero: bool,
}

impl<'a> ObjectBuilder<'a> {
    fn new(message: &'a MessageSchema) -> Self {
        Self {
            message,
            map: Map::new(),
            seen: Vec::new(),
            zero: true,
        }
    }

    fn put(&mut self, field: &FieldSchema, read: DecodedValue) {
        let kept = match field.zero {
            Zero::Kept => true,
            Zero::Dropped | Zero::Written => !read.zero,
        };
        self.zero &= !kept;
        match (field.inline, read.value) {
            (Some(_), Value::Object(inner)) => self.map.extend(inner),
            // Go has a nil pointer here.
            (_, Value::Null) => {}
            (_, value) => {
                if kept || field.zero == Zero::Written {
                    self.map.insert(field.name.clone(), value);
                }
            }
        }
    }

    fn duplicate_field(&self, field: &FieldSchema) -> Error {
        Error::DuplicateField {
            message: self.message.name.clone(),
            field: field.name.clone(),
        }
    }
}

/// Writes the zero value of a field that is always written and was not sent. Returns how many
/// values that are.
fn fill(schema: &Schema, object: &mut ObjectBuilder<'_>, field: &FieldSchema) -> usize {
    let value = match (field.inline, field.zero, field.cardinality) {
        (None, Zero::Written, _) if object.map.contains_key(&field.name) => return 0,
        (None, Zero::Written, FieldCardinality::Singular) => zero(schema, field.kind),
        (None, Zero::Written, FieldCardinality::Repeated) => Value::Array(Vec::new()),
        (None, Zero::Written, FieldCardinality::Map) => Value::Object(Map::new()),
        (Some(_), Zero::Dropped, _) if !object.seen.contains(&field.number) => zero(schema, field.kind),
        (_, _, _) => return 0,
    };
    match (field.inline, value) {
        (_, Value::Null) => 0,
        (Some(_), Value::Object(inner)) => {
            let filled = inner.len();
            object.map.extend(inner);
            filled
        }
        (_, value) => {
            object.map.insert(field.name.clone(), value);
            1
        }
    }
}

fn zero(schema: &Schema, kind: FieldKind) -> Value {
    let message = match kind {
        FieldKind::Text => return Value::String(String::new()),
        FieldKind::Bool => return Value::Bool(false),
        FieldKind::Int32 | FieldKind::Int64 => return Value::from(0),
        FieldKind::Message(id) => schema.message(id),
    };
    match message.map(|message| (message.shape, message)) {
        Some((Shape::Object, message)) => {
            let mut object = ObjectBuilder::new(message);
            for field in message.fields.values() {
                fill(schema, &mut object, field);
            }
            Value::Object(object.map)
        }
        Some((Shape::IntOrString, _)) => Value::from(0),
        Some((Shape::Raw | Shape::Time | Shape::MicroTime, _)) | None => Value::Null,
    }
}

fn time(message: &MessageSchema, bytes: &[u8]) -> Result<DecodedValue, Error> {
    if bytes.is_empty() {
        return Ok(DecodedValue::new(Value::Null, true));
    }
    let (mut seconds, mut nanoseconds) = (0, 0);
    for field in wire::fields(bytes) {
        match field.ok_or_else(|| malformed(message))? {
            (1, Payload::Varint(value)) => seconds = value.cast_signed(),
            (2, Payload::Varint(value)) => nanoseconds = int32(value).ok_or_else(|| malformed(message))?,
            _ => return Err(malformed(message)),
        }
    }
    // Kubernetes keeps whole seconds of `Time`, and whole microseconds of `MicroTime`.
    let (nanoseconds, format) = match message.shape {
        Shape::MicroTime => (nanoseconds, "%Y-%m-%dT%H:%M:%S%.6fZ"),
        _ => (0, "%Y-%m-%dT%H:%M:%SZ"),
    };
    let at = Timestamp::new(seconds, nanoseconds).map_err(|_| malformed(message))?;
    Ok(DecodedValue::new(at.strftime(format).to_string().into(), false))
}

fn int_or_string(message: &MessageSchema, bytes: &[u8]) -> Result<DecodedValue, Error> {
    let (mut is_text, mut number, mut text) = (false, 0, "");
    for field in wire::fields(bytes) {
        match field.ok_or_else(|| malformed(message))? {
            (1, Payload::Varint(kind @ (0 | 1))) => is_text = kind == 1,
            (2, Payload::Varint(value)) => number = int32(value).ok_or_else(|| malformed(message))?,
            (3, Payload::Bytes(bytes)) => text = std::str::from_utf8(bytes).map_err(|_| malformed(message))?,
            _ => return Err(malformed(message)),
        }
    }
    Ok(match is_text {
        true => DecodedValue::new(text.into(), false),
        false => DecodedValue::new(number.into(), number == 0),
    })
}

/// Negative numbers have ten bytes on the wire, like 64-bit ones.
fn int32(value: u64) -> Option<i32> {
    i32::try_from(value.cast_signed()).ok()
}

fn text(message: &MessageSchema, field: &FieldSchema, bytes: &[u8]) -> Result<String, Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| mistyped(message, field))?;
    Ok(text.to_owned())
}

fn malformed(message: &MessageSchema) -> Error {
    Error::Malformed(message.name.clone())
}

fn mistyped(message: &MessageSchema, field: &FieldSchema) -> Error {
    Error::Type {
        message: message.name.clone(),
        field: field.name.clone(),
    }
}
