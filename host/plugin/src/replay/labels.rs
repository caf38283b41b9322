//! Replaces the secrets of a case by labels such as `<secret apiKey>`, so that differences can be
//! printed.
//!
//! Security: no text that is printed contains a secret of the case, one of its encodings, or a
//! token.

use std::sync::Arc;

use secrecy::ExposeSecret;
use serde_json::Value;
use zeroize::Zeroizing;

use super::case::Case;
use crate::redact::Redactor;

/// Values shorter than this are found only where they stand alone.
const SHORT_BYTES: usize = 4;
/// Strings of responses shorter than this are words such as `Bearer`.
const ANSWER_BYTES: usize = 8;
const SHOWN_BYTES: usize = 400;

pub(super) struct SecretLabels {
    /// Sorted by length, the longest first, because one may be a prefix of another.
    known: Vec<(Zeroizing<String>, String)>,
    redactor: Redactor,
}

impl SecretLabels {
    pub(super) fn for_case(case: &Case) -> Self {
        let mut labels = Self {
            known: Vec::new(),
            redactor: Redactor::default(),
        };
        for (name, value) in &case.secret {
            if !case.public.contains(name) {
                labels.add(value.expose_secret(), format!("<secret {name}>"));
            }
        }
        labels.leaves(&case.ambient, "ambient", &|path| {
            let name = path.rsplit('.').next().unwrap_or_default();
            matches!(name, "token" | "access_token" | "SecretAccessKey" | "Token")
        });
        if let Some(token) = &case.expect.token {
            labels.add(token, "<the expected token>".to_owned());
        }
        for (at, exchange) in case.exchanges.iter().enumerate() {
            if let Some(json) = exchange.answer.as_ref().and_then(|answer| answer.json.as_ref()) {
                // Any string of an answer may be a token.
                labels.leaves(json, &format!("answer {} $", at + 1), &|_| true);
            }
        }
        labels.known.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        labels
    }

    fn add(&mut self, value: &str, label: String) {
        // The first label stays: a value of the Secret keeps its name if an answer repeats it.
        if value.is_empty() || self.known.iter().any(|(known, _)| known.as_str() == value) {
            return;
        }
        self.redactor.add(Arc::new(Zeroizing::new(value.as_bytes().to_vec())));
        self.known.push((Zeroizing::new(value.to_owned()), label));
    }

    /// The strings of `node` whose path is wanted.
    fn leaves(&mut self, node: &Value, path: &str, wanted: &dyn Fn(&str) -> bool) {
        match node {
            Value::String(text) if wanted(path) && (text.len() >= ANSWER_BYTES || has_secret_name(path)) => {
                self.add(text, format!("<{path}>"));
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.leaves(item, &format!("{path}[{at}]"), wanted);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    self.leaves(member, &format!("{path}.{name}"), wanted);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// `text` in one line, with labels instead of secrets.
    pub(super) fn show(&self, text: &str) -> String {
        let mut shown = text.to_owned();
        for (value, label) in &self.known {
            if value.len() >= SHORT_BYTES {
                shown = shown.replace(value.as_str(), label);
            } else {
                shown = replace_isolated(&shown, value, label);
            }
        }
        self.redactor.redact_line(&shown, SHOWN_BYTES)
    }

    /// A field's value. Credentials are shown only by label or length.
    pub(super) fn field(&self, name: &str, value: &str) -> String {
        if !matches!(name, "authorization" | "proxy-authorization" | "cookie") {
            return self.show(value);
        }
        let (scheme, rest) = value.split_once(' ').unwrap_or(("", value));
        let separator = if scheme.is_empty() { "" } else { " " };
        format!("{scheme}{separator}{}", self.token(rest))
    }

    /// The label of a token, or its length if it is unknown.
    pub(super) fn token(&self, token: &str) -> String {
        let known = self.known.iter().find(|(known, _)| known.as_str() == token);
        known.map_or_else(|| format!("<{} bytes>", token.len()), |(_, label)| label.clone())
    }
}

/// Whether the value at `path` is named like a secret, and counts as one however short it is.
fn has_secret_name(path: &str) -> bool {
    const WORDS: [&str; 4] = ["token", "secret", "password", "key"];
    let name = path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    !name.ends_with("_type") && WORDS.iter().any(|word| name.contains(word))
}

/// Replaces `value` where no letter or digit stands beside it.
fn replace_isolated(text: &str, value: &str, label: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(value) {
        let letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
        let left = before.chars().next_back().or_else(|| out.chars().next_back());
        out.push_str(before);
        out.push_str(if letter(left) || letter(after.chars().next()) {
            value
        } else {
            label
        });
        rest = after;
    }
    out.push_str(rest);
    out
}
