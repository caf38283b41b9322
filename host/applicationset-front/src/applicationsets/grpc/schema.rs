//! The schema of all messages and their form in JSON, for [`crate::applicationsets::grpc::decode`]
//! and [`crate::applicationsets::grpc::encode`]. It is built at startup from the descriptors that
//! `build.rs` makes of `proto/*.proto`.

use std::collections::BTreeMap;

use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, ExtensionDescriptor, FieldDescriptor, Kind as ProtoKind,
    MessageDescriptor,
};

/// A `FileDescriptorSet`.
pub(super) const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/grpc.bin"));

const OPTIONS: &str = "tollgate";

/// By their numbers in `json.proto`.
const ZEROS: [Zero; 3] = [Zero::Dropped, Zero::Kept, Zero::Written];

/// By their numbers in `json.proto`.
const SHAPES: [Shape; 5] = [
    Shape::Object,
    Shape::Raw,
    Shape::Time,
    Shape::MicroTime,
    Shape::IntOrString,
];

/// Why the descriptors cannot be used. They are compiled in, so each is an error in the program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the descriptors of the gRPC API cannot be read")]
    Descriptors(#[from] prost_reflect::DescriptorError),
    #[error("the descriptors of the gRPC API have no `{0}`")]
    Missing(String),
    #[error("`{0}` has a type or an option that is not supported")]
    Unsupported(String),
}

#[derive(Debug)]
pub(super) struct Schema {
    messages: Vec<MessageSchema>,
    names: BTreeMap<String, MessageId>,
    methods: BTreeMap<String, (MessageId, MessageId)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageId(usize);

#[derive(Debug)]
pub(super) struct MessageSchema {
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) fields: BTreeMap<u32, FieldSchema>,
    /// Whether its JSON has `apiVersion` and `kind`, which the message does not have.
    pub(super) is_object: bool,
}

#[derive(Debug)]
pub(super) struct FieldSchema {
    pub(super) number: u32,
    pub(super) name: String,
    pub(super) kind: FieldKind,
    pub(super) cardinality: FieldCardinality,
    pub(super) zero: Zero,
    /// The message whose fields JSON has beside those of its parent, if it is of this kind.
    pub(super) inline: Option<MessageId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    Text,
    Bool,
    Int32,
    Int64,
    Message(MessageId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldCardinality {
    Singular,
    Repeated,
    Map,
}

/// How JSON represents a zero value; see `json.proto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zero {
    Dropped,
    Kept,
    Written,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Object,
    Raw,
    Time,
    MicroTime,
    IntOrString,
}

impl Schema {
    pub(super) fn try_new() -> Result<Self, Error> {
        let pool = DescriptorPool::decode(DESCRIPTORS)?;
        let options = Options::try_new(&pool)?;
        let mut described: Vec<MessageDescriptor> = pool.all_messages().collect();
        described.retain(|message| !message.is_map_entry() && !message.package_name().starts_with("google."));
        let name = |message: &MessageDescriptor| message.full_name().to_owned();
        let names = described.iter().map(name).zip((0..).map(MessageId)).collect();
        let messages = described.iter().map(|message| options.message(message, &names));
        let mut schema = Self {
            messages: messages.collect::<Result<_, _>>()?,
            names,
            methods: BTreeMap::new(),
        };
        for service in pool.services() {
            for method in service.methods() {
                let ids = (
                    schema.id(method.input().full_name())?,
                    schema.id(method.output().full_name())?,
                );
                let path = format!("/{}/{}", service.full_name(), method.name());
                schema.methods.insert(path, ids);
            }
        }
        Ok(schema)
    }

    pub(super) fn method(&self, path: &str) -> Result<(MessageId, MessageId), Error> {
        let ids = self.methods.get(path).copied();
        ids.ok_or_else(|| Error::Missing(path.to_owned()))
    }

    pub(super) fn id(&self, name: &str) -> Result<MessageId, Error> {
        let id = self.names.get(name).copied();
        id.ok_or_else(|| Error::Missing(name.to_owned()))
    }

    pub(super) fn message(&self, id: MessageId) -> Option<&MessageSchema> {
        self.messages.get(id.0)
    }
}

struct Options {
    zero: ExtensionDescriptor,
    inline: ExtensionDescriptor,
    shape: ExtensionDescriptor,
}

impl Options {
    fn try_new(pool: &DescriptorPool) -> Result<Self, Error> {
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

    fn message(
        &self,
        message: &MessageDescriptor,
        names: &BTreeMap<String, MessageId>,
    ) -> Result<MessageSchema, Error> {
        let unsupported = || Error::Unsupported(message.full_name().to_owned());
        let shape = SHAPES.get(number(&message.options(), &self.shape));
        let shape = *shape.ok_or_else(unsupported)?;
        let fields = message.fields().filter(|_| shape == Shape::Object);
        let fields = fields.map(|field| Ok((field.number(), self.field(&field, names)?)));
        let metadata = message.get_field_by_name("metadata");
        Ok(MessageSchema {
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

    fn field(&self, field: &FieldDescriptor, names: &BTreeMap<String, MessageId>) -> Result<FieldSchema, Error> {
        let unsupported = || Error::Unsupported(field.full_name().to_owned());
        let declared = field.kind();
        let entry = declared.as_message().filter(|_| field.is_map());
        let (declared, cardinality) = match (entry, field.cardinality()) {
            (Some(entry), _) => match entry.map_entry_key_field().kind() {
                ProtoKind::String => (entry.map_entry_value_field().kind(), FieldCardinality::Map),
                _ => return Err(unsupported()),
            },
            (None, Cardinality::Repeated) => (declared, FieldCardinality::Repeated),
            (None, Cardinality::Optional | Cardinality::Required) => (declared, FieldCardinality::Singular),
        };
        let kind = match &declared {
            ProtoKind::String => FieldKind::Text,
            ProtoKind::Bool => FieldKind::Bool,
            ProtoKind::Int32 => FieldKind::Int32,
            ProtoKind::Int64 => FieldKind::Int64,
            ProtoKind::Message(message) => {
                let id = names.get(message.full_name()).copied();
                FieldKind::Message(id.ok_or_else(unsupported)?)
            }
            _ => return Err(unsupported()),
        };
        // Numbers in lists may be packed, which is not supported.
        if cardinality == FieldCardinality::Repeated && !matches!(kind, FieldKind::Text | FieldKind::Message(_)) {
            return Err(unsupported());
        }
        let options = field.options();
        let zero = ZEROS.get(number(&options, &self.zero));
        let is_inline = options.get_extension(&self.inline).as_bool() == Some(true);
        let inline = match (is_inline, kind, cardinality) {
            (false, _, _) => None,
            (true, FieldKind::Message(id), FieldCardinality::Singular) => Some(id),
            (true, _, _) => return Err(unsupported()),
        };
        Ok(FieldSchema {
            number: field.number(),
            name: field.json_name().to_owned(),
            kind,
            cardinality,
            zero: *zero.ok_or_else(unsupported)?,
            inline,
        })
    }
}

/// The number of an option's value. 0 if the option is not set.
fn number(options: &DynamicMessage, extension: &ExtensionDescriptor) -> usize {
    let number = options.get_extension(extension).as_enum_number();
    usize::try_from(number.unwrap_or_default()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::{FieldCardinality, FieldKind, Schema, Shape, Zero};

    #[test]
    fn schema_options_are_parsed() {
        let schema = Schema::try_new().expect("descriptors");
        let id = schema.id("argocd.KustomizeSelector").expect("a message");
        let inline = &schema.message(id).expect("a message").fields[&1];
        assert!(inline.inline.is_some());
        let id = schema.id("kubernetes.Time").expect("a message");
        assert_eq!(schema.message(id).expect("a message").shape, Shape::Time);
        let id = schema.id("argocd.ApplicationSet").expect("a message");
        let set = schema.message(id).expect("a message");
        assert!(set.is_object);
        assert_eq!(set.fields[&1].zero, Zero::Written);
        assert_eq!(set.fields[&3].zero, Zero::Dropped);
        let id = schema.id("kubernetes.ObjectMeta").expect("a message");
        let labels = &schema.message(id).expect("a message").fields[&11];
        assert_eq!(
            (labels.kind, labels.cardinality),
            (FieldKind::Text, FieldCardinality::Map)
        );
        assert!(schema.id("argocd.Nothing").is_err());
    }
}
