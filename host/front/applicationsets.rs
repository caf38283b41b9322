//! The API for ApplicationSets: what can be asked of it, by REST and by gRPC alike.
//!
//! In: what a transport decoded. Out: [`Request`], and the shape of answers. Never: a
//! word of one transport only; a decision.

use std::fmt;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use serde_json::{Value, json};

use tollgate_applicationset::plan::Cascade;
use tollgate_state::write::Kind;

pub mod code;
pub mod content;
mod error;
pub mod query;

pub use code::Code;
pub use error::Error;

/// Longest content of a request, in bytes: etcd takes no longer object (its request
/// limit is 1.5 MiB).
pub const CONTENT_BYTES: u64 = 1_572_864;

/// What is asked of the API.
#[derive(Clone, Debug)]
pub enum Request {
    /// Those the caller may see.
    List(Filter),
    /// One.
    Get(Named),
    /// A new one, or with `upsert` another state of one.
    Create(Create),
    /// Another state of one, in place of the stored one.
    Update(Update),
    /// What one would generate, and what that would change.
    Generate {
        /// The ApplicationSet.
        set: Value,
    },
    /// The end of one.
    Delete(Delete),
    /// Its Applications.
    ResourceTree(Named),
    /// What happened to it.
    Events(Named),
    /// What becomes of those the caller may see.
    Watch(Watch),
}

impl Request {
    /// The word of records for it.
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

/// One ApplicationSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its namespace; empty for the control plane's.
    pub namespace: String,
}

/// Which ones are meant; what is empty filters nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of one of these projects.
    pub projects: Vec<String>,
    /// With labels of this selector, as Kubernetes writes it.
    pub selector: String,
    /// In this namespace.
    pub namespace: String,
}

/// A new ApplicationSet.
#[derive(Clone, Debug)]
pub struct Create {
    /// The object.
    pub set: Value,
    /// What happens where there is one of the name.
    pub upsert: bool,
    /// Whether it is stored, or shown only.
    pub run: Run,
    /// Applications the caller expects to be deleted; without a number, no more are than
    /// the settings take unasked.
    pub deletions: Option<u64>,
}

/// Another state of an ApplicationSet.
#[derive(Clone, Debug)]
pub struct Update {
    /// The object; `metadata.resourceVersion` is the version that was read.
    pub set: Value,
    /// What the caller calls it; the object's own name has to be equal.
    pub named: Named,
    /// Whether it is stored, or shown only.
    pub run: Run,
    /// Applications the caller expects to be deleted; without a number, no more are than
    /// the settings take unasked.
    pub deletions: Option<u64>,
}

/// Whether a change is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Run {
    /// It is.
    #[default]
    Real,
    /// It is only shown.
    Dry,
}

/// The end of an ApplicationSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// Which.
    pub named: Named,
    /// What becomes of its Applications; as the set itself says where none is named.
    pub cascade: Option<Cascade>,
    /// Applications the caller expects to be deleted; without a number, no more are than
    /// the settings take unasked.
    pub deletions: Option<u64>,
}

/// What a watch shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// The one of this name; empty for all.
    pub name: String,
    /// Which of them.
    pub filter: Filter,
    /// Nothing older than this version, where versions are numbers; empty for all.
    pub resource_version: String,
}

/// What a request is answered with.
pub enum Answer {
    /// One document.
    Document(Value),
    /// What becomes of sets, until the caller goes away.
    Events(BoxStream<'static, Told>),
}

/// What became of a set. All who watch share the set; it is written out when it is sent.
#[derive(Clone, Debug)]
pub struct Told {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub event: &'static str,
    /// The set.
    pub set: Arc<Value>,
}

impl Serialize for Told {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_struct("Told", 2)?;
        members.serialize_field("type", self.event)?;
        members.serialize_field("applicationSet", &*self.set)?;
        members.end()
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Document(_) => "Answer::Document",
            Self::Events(_) => "Answer::Events",
        })
    }
}

/// A list as Kubernetes has it.
pub fn list_of(items: Vec<Value>) -> Value {
    let mut list = json!({
        "apiVersion": Kind::ApplicationSet.api_version(),
        "kind": "ApplicationSetList",
        "metadata": {},
    });
    if let Some(members) = list.as_object_mut() {
        members.insert("items".to_owned(), Value::Array(items));
    }
    list
}
