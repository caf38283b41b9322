//! Refuses text that looks like a value but is not one, such as `${.orgName}` or `{.token}`, and
//! shows the corrected text.
//!
//! The first mixes shell and template syntax, the second is kubectl's JSONPath. Go renders both
//! unchanged, so the request would contain this text instead of the value.

use alloc::format;
use alloc::string::{String, ToString as _};

use crate::error::{Code, Error};
use crate::lex::{self, Kind, Token};

/// The format of the text that a template renders. It decides whether a value has to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFormat {
    /// A body of `application/x-www-form-urlencoded`, or a query.
    Form,
    /// Any other format.
    Other,
}

/// One `{.name}` or `${.name}`.
struct Found<'a> {
    /// Byte range in the searched text.
    start: usize,
    end: usize,
    /// The name between the dot and the brace. `None` if there is no valid name or no brace.
    name: Option<&'a str>,
}

/// The first one in `text`.
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

/// The action that prints the value with the key `name`.
fn action(name: &str, format: TargetFormat) -> String {
    let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let value = if plain {
        format!(".{name}")
    } else {
        format!("index . \"{name}\"")
    };
    match format {
        TargetFormat::Form => format!("{{{{ {value} | urlquery }}}}"),
        TargetFormat::Other => format!("{{{{ {value} }}}}"),
    }
}

/// Refuses a template whose text contains `{.name}` or `${.name}`.
///
/// # Errors
/// [`Code::SingleBrace`] at the first one, with what to write instead.
pub(crate) fn refuse(source: &str, tokens: &[Token]) -> Result<(), Error> {
    for token in tokens {
        let Kind::Text(_, range) = &token.kind else { continue };
        let text = source.get(range.clone()).unwrap_or_default();
        let Some(found) = find(text) else { continue };
        let written = text.get(found.start..found.end).unwrap_or_default();
        let meant = action(found.name.unwrap_or("name"), TargetFormat::Other);
        let text = format!(
            "`{written}` is no value and would be sent as it is; write `{meant}`, or `{{{{ \"{written}\" }}}}` to \
             send it"
        );
        let at = lex::position(source, range.start + found.start);
        return Err(Error::new(Code::SingleBrace, at, text));
    }
    Ok(())
}

/// The template with every `{.name}` and `${.name}` of its text replaced by the action that was
/// meant, and a `{.` or `${.` without a valid name by an action that prints it. A template that cannot be
/// tokenized is returned unchanged.
#[must_use]
pub fn corrected(source: &str, format: TargetFormat) -> String {
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
            let written = source.get(at + found.start..at + found.end).unwrap_or_default();
            match found.name {
                Some(name) => result.push_str(&action(name, format)),
                None => result.push_str(&format!("{{{{ \"{written}\" }}}}")),
            }
            at += found.end;
            done = at;
        }
    }
    result.push_str(source.get(done..).unwrap_or_default());
    result
}
