//! Decodes the JSON body of requests that create something, into [`NewToken`] or [`NewSession`].
//! Answers 400 or 415 if it cannot.
//!
//! Invariant: unknown keys are refused, because ignoring one would ignore something the caller
//! wants.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::platform::api::Error;
use crate::rejection::Rejection;
use tollgate_config::duration;
use tollgate_proxy::forward::{Body, BufferedBody};

pub(crate) const CONTENT_BYTES: u64 = 16 * 1024;

/// Longest name of a token, in characters.
const NAME_CHARACTERS: usize = 255;

/// Most characters of a parser's error that a response repeats.
const MAX_ERROR_CHARS: usize = 200;

/// Lifetime of a token if the request gives none.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NewToken {
    pub(crate) name: String,
    pub(crate) agent: AgentName,
    pub(crate) expires_at: Option<Timestamp>,
    /// Its lifetime as a Go duration or in days, such as `8h` or `30d`.
    pub(crate) lifetime: Option<String>,
    pub(crate) user: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum AgentName {
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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {}

/// Decodes JSON of `T`, which must be declared as JSON: a page of another site can send text on
/// behalf of its reader, but not JSON.
pub(crate) fn read<T: DeserializeOwned>(fields: &HeaderMap, content: &[u8]) -> Result<T, Error> {
    if !media_type(fields).is_some_and(|name| name.eq_ignore_ascii_case("application/json")) {
        return Err(Error::ContentType);
    }
    serde_json::from_slice(content).map_err(|error| unexpected(&error))
}

/// The declared media type, empty if there is none that can be read. `None` if there are several.
pub(crate) fn media_type(fields: &HeaderMap) -> Option<&str> {
    let mut types = fields.get_all(CONTENT_TYPE).iter();
    let (first, second) = (types.next(), types.next());
    let name = first.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = name.split(';').next().unwrap_or_default().trim();
    second.is_none().then_some(name)
}

/// The error for content that a parser refuses.
pub(crate) fn unexpected(error: &dyn std::fmt::Display) -> Error {
    let text: String = error.to_string().chars().take(MAX_ERROR_CHARS).collect();
    wrong(format!("is not what is expected: {text}"))
}

/// Reads content to its end. It must declare a length of at most `allowed` bytes.
pub(crate) async fn buffer(body: Body, allowed: u64) -> Result<Bytes, Rejection> {
    match body.buffer_if_short(allowed).await? {
        BufferedBody::Whole(content) => Ok(content),
        BufferedBody::Stream(_) => Err(Error::ContentLength { allowed }.into()),
    }
}

impl NewSession {
    /// Same as [`read`], but also accepts empty content.
    pub(crate) fn read(fields: &HeaderMap, content: &[u8]) -> Result<Self, Error> {
        if content.is_empty() {
            return Ok(Self::default());
        }
        read(fields, content)
    }
}

impl NewToken {
    /// The name without surrounding blanks.
    pub(crate) fn name(&self) -> Result<&str, Error> {
        let name = self.name.trim();
        let length = name.chars().count();
        if length == 0 || length > NAME_CHARACTERS || name.chars().any(char::is_control) {
            let why = format!("has a `name` of {length} characters, allowed are 1 to {NAME_CHARACTERS}, no control");
            return Err(wrong(why));
        }
        Ok(name)
    }

    /// When the token expires, in whole seconds.
    pub(crate) fn expiry(&self, now: Timestamp, longest: Duration) -> Result<Timestamp, Error> {
        let after = |life: Duration| now.checked_add(life).unwrap_or(Timestamp::MAX);
        let latest = after(longest);
        let end = match (self.expires_at, &self.lifetime) {
            (Some(_), Some(_)) => return Err(wrong("has both `expiresAt` and `lifetime`")),
            (Some(end), None) => end,
            (None, Some(text)) => {
                let life =
                    duration::parse_with_days(text).map_err(|error| wrong(format!("has a bad `lifetime`: {error}")))?;
                after(life)
            }
            (None, None) => after(DEFAULT_LIFETIME.min(longest)),
        };
        let end = Timestamp::from_second(end.as_second()).unwrap_or(end);
        if end <= now || end > latest {
            return Err(Error::Lifetime {
                found: end.to_string(),
                allowed: latest.to_string(),
            });
        }
        Ok(end)
    }
}

fn wrong(why: impl Into<String>) -> Error {
    Error::Content { why: why.into() }
}

#[cfg(test)]
mod tests;
