//! The fields of all messages and their form in JSON, as tables for [`crate::applicationsets::grpc::decode`] and
//! [`crate::applicationsets::grpc::encode`]. They are made of the descriptors that `build.rs` makes of `proto/*.proto`,
//! before any request needs them.

use std::collections::BTreeMap;

use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, ExtensionDescriptor, FieldDescriptor, Kind as Declared,
    MessageDescriptor,
};

/// A `FileDescriptorSet`.
pub(super) const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/grpc.bin"));

/// The package of the options in `json.proto`.
const OPTIONS: &str = "tollgate";

/// Why the descriptors cannot be used. They are compiled in, so each is an error in the program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// They cannot be decoded.
    #[error("the descriptors of the gRPC API cannot be read")]
    Descriptors(#[from] prost_reflect::DescriptorError),
    /// A message that is required by name does not exist.
    #[error("the descriptors of the gRPC API have no `{0}`")]
    Missing(String),
    /// A field has a type that is not supported.
    #[error("`{field}` has a type or an option that is not supported")]
    Unsupported {
        /// Its full name.
        field: String,
    },
}

/// All messages.
#[derive(Debug)]
pub(super) struct Schema {
    messages: Vec<Message>,
    names: BTreeMap<String, MessageId>,
}

/// Identifies a message of a [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageId(usize);

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    /// Its full name, with its package.
    pub(super) name: String,
    pub(super) shape: Shape,
    /// Fields by number.
    pub(super) fields: BTreeMap<u32, Field>,
    /// Whether its JSON has `apiVersion` and `kind`, which the message does not have.
    pub(super) is_object: bool,
}

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// Its name in JSON.
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) count: FieldCardinality,
    pub(super) zero: Zero,
    pub(super) placement: JsonPlacement,
}

/// The type of one value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Bool,
    Int32,
    Int64,
    Message(MessageId),
}

/// How many values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldCardinality {
    Singular,
    Repeated,
    /// A map with text keys.
    Named,
}

/// How JSON represents a zero value; see `json.proto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zero {
    Dropped,
    Kept,
    Written,
}

/// Where JSON has the fields of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonPlacement {
    /// Under the field's name.
    Named,
    /// In the parent object.
    Inline,
}

/// The JSON form of a message; see `json.proto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Object,
    Raw,
    Time,
    MicroTime,
    IntOrString,
}

impl Schema {
    /// Builds the tables of this program's descriptors.
    ///
    /// # Errors
    /// [`Error`], which cannot occur in a program that passed its tests.
    pub(super) fn new() -> Result<Self, Error> {
        let pool = DescriptorPool::decode(DESCRIPTORS)?;
        let options = Options::new(&pool)?;
        let mut described: Vec<MessageDescriptor> = pool.all_messages().collect();
        described.retain(|message| !message.is_map_entry() && !message.package_name().starts_with("google."));
        let name = |message: &MessageDescriptor| message.full_name().to_owned();
        let names = described.iter().map(name).zip((0..).map(MessageId)).collect();
        let messages = described.iter().map(|message| options.message(message, &names));
        Ok(Self {
            messages: messages.collect::<Result<_, _>>()?,
            names,
        })
    }

    /// The message of the full name `name`.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub(super) fn id(&self, name: &str) -> Result<MessageId, Error> {
        let id = self.names.get(name).copied();
        id.ok_or_else(|| Error::Missing(name.to_owned()))
    }

    /// A message. `None` for an id of another schema.
    pub(super) fn message(&self, id: MessageId) -> Option<&Message> {
        self.messages.get(id.0)
    }
}

/// The options of `json.proto`.
struct Options {
    zero: ExtensionDescriptor,
    inline: ExtensionDescriptor,
    shape: ExtensionDescriptor,
}

impl Options {
    fn new(pool: &DescriptorPool) -> Result<Self, Error> {
        let extension = |name: &str| {
            let name = format!("{OPTIONS}.{name}");
            let found = pool.get_extension_by_name(&name);
            found.ok_or(Error::Missing(name))
        };
        Ok(Self {
            zero: extension("zero")?,
            inline: extension("inline")?,
            shape: extension("shape")?,
        })
    }

    fn message(&self, message: &MessageDescriptor, names: &BTreeMap<String, MessageId>) -> Result<Message, Error> {
        let unsupported = || Error::Unsupported {
            field: message.full_name().to_owned(),
        };
        let shape = match number(&message.options(), &self.shape) {
            None | Some(0) => Shape::Object,
            Some(1) => Shape::Raw,
            Some(2) => Shape::Time,
            Some(3) => Shape::MicroTime,
            Some(4) => Shape::IntOrString,
            Some(_) => return Err(unsupported()),
        };
        let fields = message.fields().filter(|_| shape == Shape::Object);
        let fields = fields.map(|field| Ok((field.number(), self.field(&field, names)?)));
        let metadata = message.get_field_by_name("metadata");
        Ok(Message {
            name: message.full_name().to_owned(),
            shape,
            fields: fields.collect::<Result<_, Error>>()?,
            is_object: metadata.is_some_and(|field| {
                let declared = field.kind();
                let declared = declared.as_message().map(MessageDescriptor::full_name);
                matches!(declared, Some("kubernetes.ObjectMeta" | "kubernetes.ListMeta"))
            }),
        })
    }

    fn field(&self, field: &FieldDescriptor, names: &BTreeMap<String, MessageId>) -> Result<Field, Error> {
        let unsupported = || Error::Unsupported {
            field: field.full_name().to_owned(),
        };
        let declared = field.kind();
        let entry = declared.as_message().filter(|_| field.is_map());
        let (declared, count) = match (entry, field.cardinality()) {
            (Some(entry), _) => match entry.map_entry_key_field().kind() {
                Declared::String => (entry.map_entry_value_field().kind(), FieldCardinality::Named),
                _ => return Err(unsupported()),
            },
            (None, Cardinality::Repeated) => (declared, FieldCardinality::Repeated),
            (None, Cardinality::Optional | Cardinality::Required) => (declared, FieldCardinality::Singular),
        };
        let kind = match &declared {
            Declared::String => Kind::Text,
            Declared::Bool => Kind::Bool,
            Declared::Int32 => Kind::Int32,
            Declared::Int64 => Kind::Int64,
            Declared::Message(message) => {
                let id = names.get(message.full_name()).copied();
                Kind::Message(id.ok_or_else(unsupported)?)
            }
            _ => return Err(unsupported()),
        };
        // Numbers in lists may be packed, which is not supported.
        if count == FieldCardinality::Repeated && !matches!(kind, Kind::Text | Kind::Message(_)) {
            return Err(unsupported());
        }
        let options = field.options();
        let zero = match number(&options, &self.zero) {
            None | Some(0) => Zero::Dropped,
            Some(1) => Zero::Kept,
            Some(2) => Zero::Written,
            Some(_) => return Err(unsupported()),
        };
        let inline = options.get_extension(&self.inline).as_bool() == Some(true);
        let placement = match (inline, kind, count) {
            (false, _, _) => JsonPlacement::Named,
            (true, Kind::Message(_), FieldCardinality::Singular) => JsonPlacement::Inline,
            (true, _, _) => return Err(unsupported()),
        };
        Ok(Field {
            number: field.number(),
            name: field.json_name().to_owned(),
            kind,
            count,
            zero,
            placement,
        })
    }
}

fn number(options: &DynamicMessage, extension: &ExtensionDescriptor) -> Option<i32> {
    options.get_extension(extension).as_enum_number()
}

#[cfg(test)]
mod tests {
    use super::{FieldCardinality, JsonPlacement, Kind, Schema, Shape, Zero};

    #[test]
    fn options_are_read() {
        let schema = Schema::new().expect("descriptors");
        let id = schema.id("argocd.KustomizeSelector").expect("a message");
        let inline = &schema.message(id).expect("a message").fields[&1];
        assert_eq!(inline.placement, JsonPlacement::Inline);
        let id = schema.id("kubernetes.Time").expect("a message");
        assert_eq!(schema.message(id).expect("a message").shape, Shape::Time);
        let id = schema.id("argocd.ApplicationSet").expect("a message");
        let set = schema.message(id).expect("a message");
        assert!(set.is_object);
        assert_eq!(set.fields[&1].zero, Zero::Written);
        assert_eq!(set.fields[&3].zero, Zero::Dropped);
        let id = schema.id("kubernetes.ObjectMeta").expect("a message");
        let labels = &schema.message(id).expect("a message").fields[&11];
        assert_eq!((labels.kind, labels.count), (Kind::Text, FieldCardinality::Named));
        assert!(schema.id("argocd.Nothing").is_err());
    }
}
