//! Reads the metadata of an object in the protocol buffers of Kubernetes, which typed clients send:
//! four bytes, and an envelope with the object. In every kind the metadata is field 1.
//!
//! A field that occurs several times is merged, as readers of Kubernetes do.
//!
//! Source: Kubernetes, `k8s.io/apimachinery/pkg/runtime/generated.proto` (`Unknown`) and
//! `pkg/apis/meta/v1/generated.proto` (`ObjectMeta`).

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use prost::Message;

use super::Unreadable;

const PREFIX: &[u8] = b"k8s\0";

/// The envelope.
#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(bytes = "bytes", tag = "2")]
    raw: bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Object {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(map = "string, string", tag = "11")]
    labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "12")]
    annotations: HashMap<String, String>,
}

pub(super) fn read_metadata(bytes: &[u8]) -> Result<ObjectMeta, Unreadable> {
    let envelope = bytes.strip_prefix(PREFIX).ok_or(Unreadable)?;
    let Unknown { raw } = Unknown::decode(envelope).map_err(|_| Unreadable)?;
    let Object { metadata } = Object::decode(raw).map_err(|_| Unreadable)?;
    let metadata = metadata.unwrap_or_default();
    let texts = |texts: HashMap<String, String>| Some(texts.into_iter().collect::<BTreeMap<_, _>>());
    Ok(ObjectMeta {
        name: Some(metadata.name),
        labels: texts(metadata.labels),
        annotations: texts(metadata.annotations),
        ..ObjectMeta::default()
    })
}
