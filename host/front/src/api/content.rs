//! Decodes the JSON content of requests that change something.
//! Answers 400 or 415 if it cannot.
//!
//! Invariant: unknown keys are refused, because ignoring one would ignore something the caller
//! wants.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Error;
use crate::Denial;
use tollgate_proxy::forward::{Body, BufferedBody};

/// Most bytes of the content of a request that changes something small.
pub const CONTENT_BYTES: u64 = 16 * 1024;

/// Most characters of a parser's error that a response repeats.
const MAX_ERROR_CHARS: usize = 200;

/// The agent that content names.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum AgentName {
    /// By number.
    Id(i64),
    /// By name, or by number in a string.
    Text(String),
}

impl std::fmt::Display for AgentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// Decodes JSON of `T`, which must be declared as JSON: a page of another site can send text on
/// behalf of its reader, but not JSON.
pub fn read<T: DeserializeOwned>(fields: &HeaderMap, content: &[u8]) -> Result<T, Error> {
    if !media_type(fields).is_some_and(|name| name.eq_ignore_ascii_case("application/json")) {
        return Err(Error::ContentType);
    }
    serde_json::from_slice(content).map_err(|error| unexpected(&error))
}

/// The declared media type, empty if there is none that can be read. `None` if there are several.
pub fn media_type(fields: &HeaderMap) -> Option<&str> {
    let mut types = fields.get_all(CONTENT_TYPE).iter();
    let (first, second) = (types.next(), types.next());
    let name = first.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = name.split(';').next().unwrap_or_default().trim();
    // Which of several types counts differs between readers.
    second.is_none().then_some(name)
}

/// The error for content that a parser refuses.
pub fn unexpected(error: &dyn std::fmt::Display) -> Error {
    let text: String = error.to_string().chars().take(MAX_ERROR_CHARS).collect();
    wrong(format!("is not what is expected: {text}"))
}

/// Reads content to its end. It must declare a length of at most `allowed` bytes.
pub async fn buffer(body: Body, allowed: u64) -> Result<Bytes, Denial> {
    match body.buffer_if_short(allowed).await? {
        BufferedBody::Whole(content) => Ok(content),
        // Without a declared length the size would be known only once the content is in memory.
        BufferedBody::Stream(_) => Err(Error::ContentLength { allowed }.into()),
    }
}

/// The error of content that cannot be used.
pub fn wrong(why: impl Into<String>) -> Error {
    Error::Content { why: why.into() }
}
