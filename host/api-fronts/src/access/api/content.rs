//! The JSON content of requests that make a token or a session.

use std::time::Duration;

use http::HeaderMap;
use jiff::Timestamp;
use serde::Deserialize;

use tollgate_config::duration;
use tollgate_front::api::Error;
use tollgate_front::api::content::{AgentName, read, wrong};

/// Lifetime of a token if the request gives none.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Longest name of a token, in characters.
const NAME_CHARACTERS: usize = 255;

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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {}

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

impl NewSession {
    /// Same as [`read`], but also accepts empty content.
    pub(crate) fn read(fields: &HeaderMap, content: &[u8]) -> Result<Self, Error> {
        if content.is_empty() {
            return Ok(Self::default());
        }
        read(fields, content)
    }
}

#[cfg(test)]
mod tests;
