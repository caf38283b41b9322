//! What rendering gives: text, secrets by name, and what is done to them.
//!
//! In: parts. Out: parts encoded, public text at once. Never: a secret's bytes.

use alloc::string::String;
use alloc::vec::Vec;

use crate::error::{Code, Error};
use crate::{MAX_ENCODINGS, MAX_PARTS, escape};

/// A piece of rendered output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Public text.
    Text(String),
    /// The secret of that name, as it is.
    Secret(String),
    /// The parts joined, then changed as a whole. At least one of them is, or
    /// holds, a secret.
    Applied {
        /// What to do with the joined parts.
        operation: Operation,
        /// What to join, in order.
        parts: Vec<Part>,
    },
}

/// What can be done to text or a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `urlquery`: `application/x-www-form-urlencoded`, a space is `+`.
    Form,
    /// `pathescape`: all but the unreserved of RFC 3986 as `%XX`.
    Percent,
    /// `json`: a JSON string with its quotes.
    Json,
    /// `b64`: RFC 4648 section 4, padded.
    Base64,
    /// `trim`: without white space at both ends, as Unicode has it.
    Trim,
}

/// Does `operation` to the joined `parts`: at once when they are text, else as
/// an [`Part::Applied`].
///
/// # Errors
/// [`Code::TooLarge`] above [`MAX_PARTS`], [`MAX_ENCODINGS`] or
/// [`crate::MAX_OUTPUT_BYTES`].
pub fn apply(operation: Operation, parts: Vec<Part>) -> Result<Vec<Part>, Error> {
    let parts = merged(parts);
    let applied = match parts.as_slice() {
        [] => Part::Text(escape::escape(operation, "")),
        [Part::Text(text)] => Part::Text(escape::escape(operation, text)),
        _ => Part::Applied { operation, parts },
    };
    let result = merged(Vec::from([applied]));
    check(&result)?;
    Ok(result)
}

/// The parts without empty texts, neighbouring texts joined.
pub(crate) fn merged(parts: Vec<Part>) -> Vec<Part> {
    let mut result: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts {
        match (result.last_mut(), part) {
            (_, Part::Text(text)) if text.is_empty() => {}
            (Some(Part::Text(last)), Part::Text(text)) => last.push_str(&text),
            (_, part) => result.push(part),
        }
    }
    result
}

/// Checks the bounds of a result.
pub(crate) fn check(parts: &[Part]) -> Result<(), Error> {
    let size = Size::of(parts);
    if size.bytes > crate::MAX_OUTPUT_BYTES {
        return Err(Error::whole(
            Code::TooLarge,
            alloc::format!(
                "the rendered text has {} bytes; at most {} are allowed",
                size.bytes,
                crate::MAX_OUTPUT_BYTES
            ),
        ));
    }
    if size.parts > MAX_PARTS || size.depth > MAX_ENCODINGS {
        return Err(Error::whole(
            Code::TooLarge,
            alloc::format!(
                "the result has {} parts in {} encodings; at most {MAX_PARTS} in {MAX_ENCODINGS} are allowed",
                size.parts,
                size.depth
            ),
        ));
    }
    Ok(())
}

/// How large a result is.
#[derive(Default)]
struct Size {
    bytes: usize,
    parts: usize,
    depth: usize,
}

impl Size {
    fn of(parts: &[Part]) -> Self {
        let mut size = Self::default();
        for part in parts {
            size.parts += 1;
            match part {
                Part::Text(text) => size.bytes += text.len(),
                Part::Secret(_) => {}
                Part::Applied { parts, .. } => {
                    let inner = Self::of(parts);
                    size.bytes += inner.bytes;
                    size.parts += inner.parts;
                    size.depth = size.depth.max(inner.depth + 1);
                }
            }
        }
        size
    }
}

impl Part {
    /// The name of the first secret within.
    #[must_use]
    pub fn first_secret(&self) -> Option<&str> {
        match self {
            Self::Text(_) => None,
            Self::Secret(name) => Some(name),
            Self::Applied { parts, .. } => parts.iter().find_map(Self::first_secret),
        }
    }
}
