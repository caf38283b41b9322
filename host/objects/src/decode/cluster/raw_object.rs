//! Reads JSON objects of a cluster's `config` without copying their secrets. Unknown keys,
//! duplicate keys and wrong types are mistakes.
//!
//! Security: no mistake contains a value.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;

use crate::fields::joined;

/// How similar a key must be to be suggested, 0 to 1.
const MIN_SIMILARITY: f64 = 0.8;

pub(super) type Mistakes = RefCell<Vec<String>>;

pub(super) struct RawObject<'a> {
    path: &'a str,
    entries: Vec<(Cow<'a, str>, &'a RawValue)>,
    mistakes: &'a Mistakes,
}

/// Keeps duplicate keys, unlike a map.
struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((Key(key), value)) = map.next_entry()? {
            entries.push((key, value));
        }
        Ok(entries)
    }
}

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> RawObject<'a> {
    /// Opens an object; `path` is its name in mistakes, empty at the top.
    ///
    /// Keys that are not `known`, and duplicate keys, are mistakes. Go's reader takes the last of
    /// two keys and ignores case and unknown keys, so there a typing error means a credential that
    /// is not used.
    pub(super) fn open(text: &'a str, path: &'a str, known: &[&str], mistakes: &'a Mistakes) -> Option<Self> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let entries = reader.deserialize_map(EntriesVisitor);
        let Ok(entries) = entries.and_then(|entries| reader.end().map(|()| entries)) else {
            // The parser's own message may quote a value.
            let what = if path.is_empty() { "config" } else { path };
            mistakes.borrow_mut().push(format!("`{what}` is not a JSON object"));
            return None;
        };
        let object = Self {
            path,
            entries,
            mistakes,
        };
        for (at, (key, _)) in object.entries.iter().enumerate() {
            let name = object.name(&visible(key));
            if object.entries.iter().take(at).any(|(earlier, _)| earlier == key) {
                object.mistake(format!("`{name}` occurs twice"));
            } else if !known.contains(&key.as_ref()) {
                object.mistake(match nearest(key, known) {
                    Some(meant) => format!("`{name}` is not known; did you mean `{meant}`?"),
                    None => format!("`{name}` is not known; known are `{}`", known.join("`, `")),
                });
            }
        }
        Some(object)
    }

    /// Opens the object under `key`; `None` if it is absent, null or (with a mistake) no object.
    pub(super) fn child(&self, key: &'a str, known: &[&str]) -> Option<Self> {
        Self::open(self.raw(key)?, key, known, self.mistakes)
    }

    pub(super) fn mistake(&self, message: impl Into<String>) {
        self.mistakes.borrow_mut().push(message.into());
    }

    pub(super) fn name(&self, key: &str) -> String {
        joined(self.path, key)
    }

    /// The JSON of a member, unless it is absent or null.
    pub(super) fn raw(&self, key: &str) -> Option<&'a str> {
        let entry = self.entries.iter().rev().find(|(name, _)| name == key);
        entry.map(|(_, raw)| raw.get()).filter(|raw| *raw != "null")
    }

    pub(super) fn is_set(&self, key: &str) -> bool {
        self.raw(key).is_some_and(|raw| raw != r#""""#)
    }

    /// A text; absent, null and empty are `None`.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.typed::<String>(key, "text").filter(|text| !text.is_empty())
    }

    /// A boolean; absent is `false`.
    pub(super) fn boolean(&self, key: &str) -> bool {
        self.typed(key, "true or false").unwrap_or_default()
    }

    fn typed<T: Deserialize<'a>>(&self, key: &str, kind: &str) -> Option<T> {
        let read = serde_json::from_str(self.raw(key)?);
        if read.is_err() {
            self.mistake(format!("`{}` must be {kind}", self.name(key)));
        }
        read.ok()
    }
}

fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let key = key.to_lowercase();
    let score = |candidate: &&str| strsim::jaro_winkler(&key, &candidate.to_lowercase());
    let best = known.iter().copied().max_by(|a, b| score(a).total_cmp(&score(b)))?;
    (score(&best) >= MIN_SIMILARITY).then_some(best)
}

/// A key as it may appear in a message: a misplaced value can look like a key.
fn visible(key: &str) -> String {
    const MAX_CHARACTERS: usize = 40;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_shown = key.chars().count() <= MAX_CHARACTERS && key.chars().all(plain);
    if is_shown { key } else { "…" }.to_owned()
}
