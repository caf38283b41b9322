//! The engine for `{{ key }}` without Go templates: parses a string once and renders it often. A
//! tag with an unknown key stays as it was written.

use super::{Error, excerpt};
use crate::Params;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

#[derive(Debug)]
pub(super) struct FastTemplate {
    /// The text before each tag with the tag's content.
    parts: Vec<(String, String)>,
    /// The text after the last tag.
    rest: String,
}

impl FastTemplate {
    /// Parses `text`; `None` if it has no tags.
    ///
    /// # Errors
    /// [`Error::Syntax`]: a tag is not closed and the string is templated.
    pub(super) fn new(text: &str) -> Result<Option<Self>, Error> {
        // As in Argo CD: without a line that has an opening and, after it, a closing pair of braces,
        // a string is not parsed at all, even if its braces are wrong.
        let is_tagged = |line: &str| line.split_once(OPEN).is_some_and(|(_, after)| after.contains(CLOSE));
        if !text.split('\n').any(is_tagged) {
            return Ok(None);
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
        let rest = rest.to_owned();
        Ok(Some(Self { parts, rest }))
    }

    /// Length of the rendered string in bytes, without rendering it.
    pub(super) fn length(&self, params: &Params) -> usize {
        let parts = self.parts.iter().map(|(before, tag)| {
            let inside = value(params, tag).map_or(tag.len() + OPEN.len() + CLOSE.len(), str::len);
            before.len() + inside
        });
        parts.fold(self.rest.len(), usize::saturating_add)
    }

    pub(super) fn render(&self, params: &Params) -> String {
        let mut text = String::with_capacity(self.length(params));
        for (before, tag) in &self.parts {
            text.push_str(before);
            match value(params, tag) {
                Some(value) => text.push_str(value),
                None => text.extend([OPEN, tag, CLOSE]),
            }
        }
        text.push_str(&self.rest);
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
