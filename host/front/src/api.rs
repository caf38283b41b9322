//! What the parts of the gateway's own API share: queries, content, pages, errors and answers.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use tollgate_proxy::forward::Body;
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
    let mut response = json(Bytes::from_owner(text));
    *response.status_mut() = status;
    response
}
