//! Determines when a token expires, from the answer and the configuration.
//!
//! Invariant: a token never outlives the configured `ttl`.

use serde::Deserialize;
use serde_json::Value;
use tollgate_provider::Expiry;

/// The format of the value at `expiry.path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    /// Seconds from now, as a number or a string.
    Seconds,
    /// A date of RFC 3339.
    Rfc3339,
    /// Seconds since 1970.
    Unix,
    /// Milliseconds since 1970.
    UnixMs,
}

/// The settings for a token's lifetime.
#[derive(Debug)]
pub(crate) struct Lifetime {
    /// An RFC 9535 singular query, and the format of the value it finds.
    pub(crate) path: Option<(String, Format)>,
    /// The maximum lifetime in milliseconds, above 0.
    pub(crate) ttl_ms: Option<u64>,
}

impl Lifetime {
    /// The expiry of a token that was requested at `now` (milliseconds since 1970). `select` looks
    /// up a path in the answer.
    pub(crate) fn expiry(&self, now: u64, token_path: &str, select: &dyn Fn(&str) -> Option<Value>) -> Expiry {
        let expiry = match &self.path {
            Some((path, format)) => match select(path) {
                Some(value) => read(&value, *format, path, now),
                None => Expiry {
                    warning: Some(format!(
                        "expiry.path matched nothing at `{path}`: the lifetime is unknown"
                    )),
                    ..Expiry::unknown()
                },
            },
            None => {
                let expires_in = sibling(token_path).and_then(|path| select(&path));
                Expiry::after(expires_in.as_ref(), "expires_in", now)
            }
        };
        match self.ttl_ms {
            Some(ttl) => expiry.and(Expiry::at(now.saturating_add(ttl), now)),
            None => expiry,
        }
    }
}

fn read(value: &Value, format: Format, path: &str, now: u64) -> Expiry {
    match format {
        Format::Seconds => Expiry::after(Some(value), path, now),
        Format::Rfc3339 => Expiry::rfc3339(Some(value), path, now),
        Format::Unix => Expiry::epoch_or_rfc3339(Some(value), path, now),
        Format::UnixMs => {
            let milliseconds = match value {
                Value::String(text) => text.trim().parse().ok(),
                other => other.as_f64(),
            };
            let seconds = milliseconds.map(|milliseconds: f64| Value::from(milliseconds / 1000.0));
            Expiry::epoch_or_rfc3339(seconds.as_ref().or(Some(value)), path, now)
        }
    }
}

/// The path of the member `expires_in` next to the node at `path`, a singular query.
fn sibling(path: &str) -> Option<String> {
    let mut last = None;
    let mut quote = None;
    let mut escaped = false;
    for (at, character) in path.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if character == '\\' => escaped = true,
            Some(open) if character == open => quote = None,
            Some(_) => {}
            None => match character {
                '\'' | '"' => quote = Some(character),
                '.' | '[' => last = Some(at),
                _ => {}
            },
        }
    }
    Some(format!("{}.expires_in", path.get(..last?)?.trim_end()))
}

/// Milliseconds of a Go duration: integers with `h`, `m`, `s` or `ms`.
pub(crate) fn duration(text: &str) -> Option<u64> {
    let mut total = 0_u64;
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let factor = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = tail;
    }
    Some(total)
}

#[cfg(test)]
mod tests;
