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
    rest: String,
}

impl FastTemplate {
    /// Parses `text`; `None` if it has no tags.
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

    /// The pieces of the rendered string.
    fn pieces<'s>(&'s self, params: &'s Params) -> impl Iterator<Item = &'s str> {
        let parts = self
            .parts
            .iter()
            .flat_map(move |(before, tag)| match value(params, tag) {
                Some(value) => [before.as_str(), value, "", ""],
                None => [before.as_str(), OPEN, tag, CLOSE],
            });
        parts.chain([self.rest.as_str()])
    }

    /// Length of the rendered string in bytes, without rendering it.
    pub(super) fn length(&self, params: &Params) -> usize {
        self.pieces(params).map(str::len).fold(0, usize::saturating_add)
    }

    pub(super) fn render(&self, params: &Params) -> String {
        let mut text = String::with_capacity(self.length(params));
        text.extend(self.pieces(params));
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
