//! When a token ends.
//!
//! In: an answer without its secrets, the configuration, the time the request
//! began. Out: an end and whether the token may be used twice. Never: a longer
//! life than a configured `ttl`.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// The last millisecond of the year 9999, the latest a date can say.
const LATEST_MS: f64 = 253_402_300_799_999.0;

/// How `expiry.path` is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    /// Seconds from now, a number or a string.
    Seconds,
    /// A date.
    Rfc3339,
    /// Seconds since 1970.
    Unix,
    /// Milliseconds since 1970.
    UnixMs,
}

/// What the configuration says.
#[derive(Debug)]
pub(crate) struct Expiry {
    /// RFC 9535 singular query and how to read what it finds.
    pub(crate) path: Option<(String, Format)>,
    /// The most, in milliseconds above 0.
    pub(crate) ttl_ms: Option<u64>,
}

/// When a token ends, as far as the answer and the configuration say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// Milliseconds since 1970; none when nobody says.
    pub(crate) at: Option<u64>,
    /// Whether there is anything left of it.
    pub(crate) over: bool,
    /// For the operator.
    pub(crate) warning: Option<String>,
}

impl Expiry {
    /// The end of a token got at `now` (milliseconds since 1970). `select` looks
    /// a path up in the answer and gives JSON.
    pub(crate) fn end(&self, now: u64, token_path: &str, select: &dyn Fn(&str) -> Option<String>) -> End {
        let mut end = match &self.path {
            Some((path, format)) => match select(path) {
                Some(node) => end_of(&node, *format, now, path),
                None => End {
                    warning: Some(format!("`expiry.path` `{path}` matched nothing; the end is unknown")),
                    ..End::default()
                },
            },
            None => sibling(token_path)
                .and_then(|path| Some((select(&path)?, path)))
                .map(|(node, path)| end_of(&node, Format::Seconds, now, &path))
                .unwrap_or_default(),
        };
        if let Some(ttl) = self.ttl_ms {
            let most = now.saturating_add(ttl);
            end.at = Some(end.at.map_or(most, |at| at.min(most)));
        }
        end
    }
}

/// Reads a node found at `path`.
fn end_of(node: &str, format: Format, now: u64, path: &str) -> End {
    let unknown = |what: &str| End {
        warning: Some(format!("`{path}` {what}; the end is unknown")),
        ..End::default()
    };
    let value: Value = match serde_json::from_str(node) {
        Ok(Value::Null) => return End::default(),
        Ok(value) => value,
        Err(_) => return unknown("is not JSON"),
    };
    let at = match format {
        Format::Seconds => number(&value).map(|seconds| as_f64(now) + seconds * 1000.0),
        Format::Unix => number(&value).map(|seconds| seconds * 1000.0),
        Format::UnixMs => number(&value),
        Format::Rfc3339 => date(&value),
    };
    match at {
        None => unknown(match format {
            Format::Rfc3339 => "is no date as RFC 3339 has it",
            Format::Seconds | Format::Unix | Format::UnixMs => "is no number",
        }),
        Some(at) if at > LATEST_MS => unknown("is after the year 9999"),
        Some(at) if at <= as_f64(now) => End {
            at: Some(now),
            over: true,
            warning: Some(format!(
                "`{path}` says that the token has ended already; it is used once"
            )),
        },
        Some(at) => End {
            at: Some(whole(at)),
            over: false,
            warning: None,
        },
    }
}

/// A number, or a string that is one, as PayPal and Azure send it.
fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number.filter(|number| number.is_finite())
}

fn date(value: &Value) -> Option<f64> {
    let at: Timestamp = value.as_str()?.parse().ok()?;
    Some(signed_f64(at.as_millisecond()))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of this age need 41 of the 53 bits"
)]
fn as_f64(milliseconds: u64) -> f64 {
    milliseconds as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "dates up to the year 9999 need 48 of the 53 bits"
)]
fn signed_f64(milliseconds: i64) -> f64 {
    milliseconds as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between now and the year 9999, as the caller checked"
)]
fn whole(milliseconds: f64) -> u64 {
    milliseconds as u64
}

/// The path of `expires_in` beside the node of `path`, which is a singular query.
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

/// Milliseconds of a Go duration: numbers with `h`, `m`, `s` or `ms`.
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
