//! Text that means a value and is none: `${.orgName}`, `{.token}`.
//!
//! The first is a mixture of shell and template, the second is kubectl's
//! JSONPath. Go sends both as they stand, so the request would carry the words
//! instead of the value.
//!
//! In: source and tokens. Out: an error with what to write, the whole text
//! corrected. Never: a guess outside such braces.

use alloc::format;
use alloc::string::{String, ToString as _};

use crate::error::{Code, Error};
use crate::lex::{self, Kind, Token};

/// What a template is for, which decides how a value has to be written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A body of `application/x-www-form-urlencoded`, or a query.
    Form,
    /// Anything else.
    Other,
}

/// One `{.name}` or `${.name}`.
struct Found<'a> {
    /// Where it begins and ends, in bytes of the text it was found in.
    start: usize,
    end: usize,
    /// What stands between the dot and the brace; nothing when no brace follows.
    name: Option<&'a str>,
}

/// The first of them in `text`.
fn find(text: &str) -> Option<Found<'_>> {
    let brace = text.find("{.")?;
    let before = text.get(..brace)?;
    let start = if before.ends_with('$') { brace - 1 } else { brace };
    let inside = text.get(brace + 2..)?;
    let name = inside
        .split_once('}')
        .map(|(name, _)| name)
        .filter(|name| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "._-".contains(c)));
    let end = brace + 2 + name.map_or(0, |name| name.len() + 1);
    Some(Found { start, end, name })
}

/// The action for the value with the key `name`.
fn action(name: &str, place: Place) -> String {
    let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let value = if plain {
        format!(".{name}")
    } else {
        format!("index . \"{name}\"")
    };
    match place {
        Place::Form => format!("{{{{ {value} | urlquery }}}}"),
        Place::Other => format!("{{{{ {value} }}}}"),
    }
}

/// Refuses the first of them in the texts of a template.
///
/// # Errors
/// [`Code::SingleBrace`], saying what to write.
pub(crate) fn refuse(source: &str, tokens: &[Token]) -> Result<(), Error> {
    for token in tokens {
        let Kind::Text(_, range) = &token.kind else { continue };
        let text = source.get(range.clone()).unwrap_or_default();
        let Some(found) = find(text) else { continue };
        let written = text.get(found.start..found.end).unwrap_or_default();
        let meant = action(found.name.unwrap_or("name"), Place::Other);
        let text = format!(
            "`{written}` is no value and would be sent as it is; write `{meant}`, or `{{{{ \"{written}\" }}}}` to \
             send it"
        );
        let at = lex::position(source, range.start + found.start);
        return Err(Error::new(Code::SingleBrace, at, text));
    }
    Ok(())
}

/// The template with every `{.name}` and `${.name}` of its texts written as the
/// action that was meant. A template without any, or that cannot be read, is
/// given back as it is.
#[must_use]
pub fn corrected(source: &str, place: Place) -> String {
    let Ok(tokens) = lex::lex(source) else {
        return source.to_string();
    };
    let mut result = String::with_capacity(source.len() + 64);
    let mut done = 0;
    for token in &tokens {
        let Kind::Text(_, range) = &token.kind else { continue };
        let mut at = range.start;
        while let Some(found) = source.get(at..range.end).and_then(find) {
            result.push_str(source.get(done..at + found.start).unwrap_or_default());
            match found.name {
                Some(name) => result.push_str(&action(name, place)),
                None => result.push_str("{{ \"{.\" }}"),
            }
            at += found.end;
            done = at;
        }
    }
    result.push_str(source.get(done..).unwrap_or_default());
    result
}
