//! The requests and responses of the API for ApplicationSets, the same for REST and gRPC. A
//! transport decodes into a [`Request`], and encodes an [`ApiResponse`]. It decides nothing.

use std::fmt;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use serde_json::{Value, json};

use tollgate_applicationset::plan::Cascade;
use tollgate_state::write::WritableKind;

pub mod code;
pub mod content;
mod error;
pub mod query;

pub use code::Code;
pub use error::Error;

/// Longest content of a request, in bytes: etcd stores no longer object (its request limit is 1.5
/// MiB).
pub const CONTENT_BYTES: u64 = 1_572_864;

/// A request to the API.
#[derive(Clone, Debug)]
pub enum Request {
    /// Lists the sets the caller may see.
    List(Filter),
    /// Gets one set.
    Get(ApplicationSetRef),
    /// Creates a set, or with `upsert` changes an existing one.
    Create(Create),
    /// Replaces the stored set.
    Update(Update),
    /// Previews what a set would generate, and what that would change.
    Generate {
        /// The ApplicationSet.
        set: Value,
    },
    /// Deletes a set.
    Delete(Delete),
    /// Lists its Applications.
    ResourceTree(ApplicationSetRef),
    /// Lists the Events about it.
    Events(ApplicationSetRef),
    /// Watches the sets the caller may see.
    Watch(Watch),
}

impl Request {
    /// Name of the request in records.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::List(_) => "list",
            Self::Get(_) => "get",
            Self::Create(_) => "create",
            Self::Update(_) => "update",
            Self::Generate { .. } => "generate",
            Self::Delete(_) => "delete",
            Self::ResourceTree(_) => "resource-tree",
            Self::Events(_) => "events",
            Self::Watch(_) => "watch",
        }
    }
}

/// The name and namespace of one ApplicationSet, as a request has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplicationSetRef {
    /// Its name.
    pub name: String,
    /// Its namespace; empty for the control plane's.
    pub namespace: String,
}

/// A filter of sets. An empty field filters nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Sets of one of these projects.
    pub projects: Vec<String>,
    /// Sets with labels of this selector, in Kubernetes' syntax.
    pub selector: String,
    /// Sets of this namespace.
    pub namespace: String,
}

/// A new ApplicationSet.
#[derive(Clone, Debug)]
pub struct Create {
    /// The object.
    pub set: Value,
    /// Whether to change a set of this name if it exists.
    pub upsert: bool,
    /// Whether to store it, or only to preview it.
    pub mode: WriteMode,
    /// Number of Applications the caller expects to be deleted. Without it, no more are deleted
    /// than the settings allow unasked.
    pub deletions: Option<u64>,
}

/// A changed ApplicationSet.
#[derive(Clone, Debug)]
pub struct Update {
    /// The object; `metadata.resourceVersion` is the version that was read.
    pub set: Value,
    /// The set that the path names. The object's own name has to be equal.
    pub target: ApplicationSetRef,
    /// Whether to store it, or only to preview it.
    pub mode: WriteMode,
    /// Number of Applications the caller expects to be deleted. Without it, no more are deleted
    /// than the settings allow unasked.
    pub deletions: Option<u64>,
}

/// Whether a change is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// Stores the change.
    #[default]
    Commit,
    /// Only previews it.
    DryRun,
}

/// Deletion of an ApplicationSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// The set to delete.
    pub target: ApplicationSetRef,
    /// What happens to its Applications. If absent, the set itself decides.
    pub cascade: Option<Cascade>,
    /// Number of Applications the caller expects to be deleted. Without it, no more are deleted
    /// than the settings allow unasked.
    pub deletions: Option<u64>,
}

/// A watch of sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// The set of this name. Empty for all.
    pub name: String,
    /// Filter of the sets.
    pub filter: Filter,
    /// Skips sets older than this version, if versions are numbers. Empty for all.
    pub resource_version: String,
}

/// The response to a request, before a transport encodes it.
pub enum ApiResponse {
    /// One document.
    Document(Value),
    /// Changes of sets, until the caller goes away.
    Events(BoxStream<'static, WatchEvent>),
}

/// A change of a set. All watchers share the object, which is serialized when it is sent.
#[derive(Clone, Debug)]
pub struct WatchEvent {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub event: &'static str,
    /// The set.
    pub set: Arc<Value>,
}

impl Serialize for WatchEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_struct("WatchEvent", 2)?;
        members.serialize_field("type", self.event)?;
        members.serialize_field("applicationSet", &*self.set)?;
        members.end()
    }
}

impl fmt::Debug for ApiResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Document(_) => "ApiResponse::Document",
            Self::Events(_) => "ApiResponse::Events",
        })
    }
}

/// A list in Kubernetes' format.
pub fn list_of(items: Vec<Value>) -> Value {
    let mut list = json!({
        "apiVersion": WritableKind::ApplicationSet.api_version(),
        "kind": "ApplicationSetList",
        "metadata": {},
    });
    if let Some(members) = list.as_object_mut() {
        members.insert("items".to_owned(), Value::Array(items));
    }
    list
}
