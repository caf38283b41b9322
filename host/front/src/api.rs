//! What the parts of the gateway's own API share: queries, content, pages, errors and answers.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tollgate_proxy::forward::Body;
use tollgate_state::write::WritableKind;
use zeroize::Zeroizing;

pub mod content;
mod error;
pub mod pages;
pub mod query;

pub use error::Error;

/// An answer of JSON that must not be cached.
pub fn json(text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(text.into()));
    let fields = response.headers_mut();
    fields.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The answer with a document, which may contain a secret.
pub fn answer(status: StatusCode, document: &impl Serialize) -> Response<Body> {
    let text = Zeroizing::new(serde_json::to_vec(document).unwrap_or_default());
    // Not copied, so that the only copy is wiped once it was sent.
    let mut response = json(Bytes::from_owner(text));
    *response.status_mut() = status;
    response
}

/// A list of objects, as Argo CD's API has it.
pub fn object_list(kind: WritableKind, items: Vec<Value>) -> Value {
    let mut list = serde_json::json!({
        "apiVersion": kind.api_version(),
        "kind": format!("{}List", kind.as_str()),
        "metadata": {},
    });
    if let Some(members) = list.as_object_mut() {
        members.insert("items".to_owned(), items.into());
    }
    list
}
