//! The requests and responses of the API for ApplicationSets, the same for REST and gRPC. A
//! transport decodes into a [`Request`], and encodes an [`ApiResponse`]. It decides nothing.

use std::sync::Arc;

use futures_util::stream::BoxStream;
use serde::Serialize;
use serde_json::{Value, json};

use tollgate_applicationset::plan::Cascade;
use tollgate_state::write::WritableKind;

pub(crate) mod code;
pub(crate) mod content;
mod error;
pub(crate) mod query;

pub(crate) use code::Code;
pub(crate) use error::Error;

/// Longest content of a request, in bytes: etcd stores no longer object (its request limit is 1.5
/// MiB).
pub(crate) const CONTENT_BYTES: u64 = 1_572_864;

#[derive(Clone, Debug)]
pub(crate) enum Request {
    List(Filter),
    Get(ApplicationSetRef),
    Create(Create),
    Update(Update),
    Generate { set: Value },
    Delete(Delete),
    ResourceTree(ApplicationSetRef),
    Events(ApplicationSetRef),
    Watch(Watch),
}

impl Request {
    pub(crate) fn as_str(&self) -> &'static str {
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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApplicationSetRef {
    pub(crate) name: String,
    /// Its namespace; empty for the control plane's.
    pub(crate) namespace: String,
}

/// A filter of sets. An empty field filters nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) projects: Vec<String>,
    pub(crate) selector: String,
    pub(crate) namespace: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Create {
    pub(crate) set: Value,
    pub(crate) upsert: bool,
    pub(crate) mode: WriteMode,
    /// Number of Applications the caller expects to be deleted. Without it, no more are deleted
    /// than the settings allow unasked.
    pub(crate) deletions: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Update {
    /// The object; `metadata.resourceVersion` is the version that was read.
    pub(crate) set: Value,
    /// The set that the path names. The object's own name has to be equal.
    pub(crate) target: ApplicationSetRef,
    pub(crate) mode: WriteMode,
    pub(crate) deletions: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WriteMode {
    #[default]
    Commit,
    DryRun,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delete {
    pub(crate) target: ApplicationSetRef,
    /// What happens to its Applications. If absent, the set itself decides.
    pub(crate) cascade: Option<Cascade>,
    pub(crate) deletions: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Watch {
    /// The set of this name. Empty for all.
    pub(crate) name: String,
    pub(crate) filter: Filter,
    /// Skips sets older than this version, if versions are numbers. Empty for all.
    pub(crate) resource_version: String,
}

pub(crate) enum ApiResponse {
    Document(Value),
    /// Changes of sets, until the caller goes away.
    Events(BoxStream<'static, WatchEvent>),
}

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

pub(crate) fn list_of(items: Vec<Value>) -> Value {
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
