//! The requests and responses of the API for ApplicationSets, the same for REST and gRPC. A
//! transport decodes into a [`Request`], and encodes an [`ApiResponse`]. It decides nothing.

use std::sync::Arc;

use futures_util::stream::BoxStream;
use serde::Serialize;
use serde_json::Value;

pub(crate) mod content;
mod error;
mod fields;
mod query;

pub(crate) use error::{Error, refusal};
pub(crate) use fields::FieldFilter;
pub(crate) use query::Query;
pub(crate) use tollgate_front::grpc::Code;

/// Longest content of a request, in bytes: etcd stores no longer object (its request limit is 1.5
/// MiB).
pub(crate) const CONTENT_BYTES: u64 = 1_572_864;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) kind: RequestKind,
    pub(crate) query: Query,
    /// The set that was sent. `null` if the request has none.
    pub(crate) set: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "kebab-case")]
pub enum RequestKind {
    List,
    Watch,
    Get,
    ResourceTree,
    Events,
    Create,
    Update,
    Delete,
    Generate,
}

impl RequestKind {
    /// Whether the request writes nothing and sends no set.
    pub(crate) fn is_read(self) -> bool {
        match self {
            Self::List | Self::Watch | Self::Get | Self::ResourceTree | Self::Events => true,
            Self::Create | Self::Update | Self::Delete | Self::Generate => false,
        }
    }
}

pub(crate) enum ApiResponse {
    Document(Value),
    Events(EventStream),
}

impl ApiResponse {
    /// Adds warnings about the set that was sent to a document, if there are any.
    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        if let Self::Document(Value::Object(members)) = &mut self
            && !warnings.is_empty()
        {
            members.insert("warnings".to_owned(), warnings.into());
        }
        self
    }
}

/// Changes of sets, until the caller goes away or an error ends them.
pub(crate) type EventStream = BoxStream<'static, Result<WatchEvent, Error>>;

/// A change of a set. All watchers share the object, which is serialized when it is sent.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WatchEvent {
    #[serde(rename = "type")]
    pub(crate) event: EventType,
    #[serde(rename = "applicationSet")]
    pub(crate) set: Arc<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum EventType {
    Added,
    Modified,
    Deleted,
}
