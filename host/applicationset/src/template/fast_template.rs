//! The engine for `{{ key }}` without Go templates: parses a string once and renders it often. A
//! tag with an unknown key stays as it was written.

use std::sync::LazyLock;

use regex::Regex;

use super::{Error, excerpt};
use crate::Params;

/// Matches if some line has an opening and, after it, a closing pair of braces. Strings without
/// such a line are not parsed at all, even if their braces are wrong.
static TEMPLATED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\{\{.*\}\}").ok());

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// A parsed string.
#[derive(Clone, Debug)]
pub(super) enum FastTemplate {
    /// No tags.
    Plain(String),
    /// The text before each tag with the tag's content, and the text after the last tag.
    Tagged { parts: Vec<(String, String)>, rest: String },
}

impl FastTemplate {
    /// Parses `text`.
    ///
    /// # Errors
    /// [`Error::Syntax`]: a tag is not closed and the string is templated.
    pub(super) fn new(text: &str) -> Result<Self, Error> {
        if !TEMPLATED.as_ref().is_some_and(|pattern| pattern.is_match(text)) {
            return Ok(Self::Plain(text.to_owned()));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPEN) {
            let Some((tag, after)) = after.split_once(CLOSE) else {
                return Err(Error::Syntax {
                    template: excerpt(text),
                    message: format!("no `{CLOSE}` ends what begins at `{}`", excerpt(after)),
                });
            };
            parts.push((before.to_owned(), tag.to_owned()));
            rest = after;
        }
        Ok(Self::Tagged {
            parts,
            rest: rest.to_owned(),
        })
    }

    /// Length of the rendered string in bytes, without rendering it.
    pub(super) fn length(&self, params: &Params) -> u64 {
        let length = match self {
            Self::Plain(text) => text.len(),
            Self::Tagged { parts, rest } => parts
                .iter()
                .map(|(before, tag)| {
                    let inside = value(params, tag).map_or(tag.len() + OPEN.len() + CLOSE.len(), str::len);
                    before.len() + inside
                })
                .fold(rest.len(), usize::saturating_add),
        };
        super::value::size(length)
    }

    /// Renders the string with these parameters.
    pub(super) fn render(&self, params: &Params) -> String {
        let (parts, rest) = match self {
            Self::Plain(text) => return text.clone(),
            Self::Tagged { parts, rest } => (parts, rest),
        };
        let mut text = String::with_capacity(usize::try_from(self.length(params)).unwrap_or(0));
        for (before, tag) in parts {
            text.push_str(before);
            match value(params, tag) {
                Some(value) => text.push_str(value),
                None => {
                    text.push_str(OPEN);
                    text.push_str(tag);
                    text.push_str(CLOSE);
                }
            }
        }
        text.push_str(rest);
        text
    }
}

/// Only string parameters are inserted.
fn value<'a>(params: &'a Params, tag: &str) -> Option<&'a str> {
    let key = tag.trim();
    if key.is_empty() {
        return None;
    }
    params.get(key)?.as_str()
}
