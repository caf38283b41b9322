//! The result of a render: text, secrets by name, and operations on them. Operations on public text
//! are applied at once; those on secrets are left to the sender, which has the bytes.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::{Code, Error};
use crate::{MAX_ENCODINGS, MAX_OUTPUT_BYTES, MAX_PARTS, escape};

/// A piece of rendered output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Public text.
    Text(String),
    /// The secret of that name.
    Secret(String),
    /// An operation on the joined parts. At least one of them is or contains a secret.
    Applied {
        /// The operation to apply to the joined parts.
        operation: Operation,
        /// The parts to join, in order.
        parts: Vec<Self>,
    },
}

/// An operation on text or a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `urlquery`: `application/x-www-form-urlencoded`, with `+` for a space.
    Form,
    /// `pathescape`: percent-encodes all but the unreserved characters of RFC 3986.
    Percent,
    /// `json`: a JSON string with its quotes.
    Json,
    /// `b64`: base64 (RFC 4648, section 4), padded.
    Base64,
    /// `trim`: removes white space, as Unicode defines it, at both ends.
    Trim,
}

/// Applies `operation` to the joined `parts`. The result is text if all parts are, else a
/// [`Part::Applied`].
///
/// # Errors
/// [`Code::TooLarge`] above [`MAX_PARTS`], [`MAX_ENCODINGS`] or [`MAX_OUTPUT_BYTES`].
pub fn apply(operation: Operation, parts: Vec<Part>) -> Result<Vec<Part>, Error> {
    let parts = merged(parts);
    let applied = match parts.as_slice() {
        [] => Part::Text(escape::escape(operation, "")),
        [Part::Text(text)] => Part::Text(escape::escape(operation, text)),
        _ => Part::Applied { operation, parts },
    };
    let result = merged(Vec::from([applied]));
    Size::of(&result).check()?;
    Ok(result)
}

/// Drops empty texts and joins adjacent ones.
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

/// The size of a result.
#[derive(Default)]
pub(crate) struct Size {
    bytes: usize,
    parts: usize,
    /// Nesting of operations.
    depth: usize,
}

impl Size {
    fn of(parts: &[Part]) -> Self {
        let mut size = Self::default();
        for part in parts {
            size.add(part);
        }
        size
    }

    pub(crate) fn add_text(&mut self, text: &str) {
        self.parts += 1;
        self.add_bytes(text);
    }

    /// Adds text that continues the preceding text.
    pub(crate) fn add_bytes(&mut self, text: &str) {
        self.bytes += text.len();
    }

    pub(crate) fn add(&mut self, part: &Part) {
        match part {
            Part::Text(text) => self.add_text(text),
            Part::Secret(_) => self.parts += 1,
            Part::Applied { parts, .. } => {
                let inner = Self::of(parts);
                self.bytes += inner.bytes;
                self.parts += inner.parts + 1;
                self.depth = self.depth.max(inner.depth + 1);
            }
        }
    }

    /// Checks the size against the limits.
    ///
    /// # Errors
    /// [`Code::TooLarge`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { bytes, parts, depth } = self;
        if *bytes > MAX_OUTPUT_BYTES {
            let text = format!("the rendered text has {bytes} bytes; at most {MAX_OUTPUT_BYTES} are allowed");
            return Err(Error::without_position(Code::TooLarge, text));
        }
        if *parts > MAX_PARTS || *depth > MAX_ENCODINGS {
            let text = format!(
                "the result has {parts} parts in {depth} encodings; at most {MAX_PARTS} in {MAX_ENCODINGS} are allowed"
            );
            return Err(Error::without_position(Code::TooLarge, text));
        }
        Ok(())
    }
}

impl Part {
    /// The name of the first secret in the part.
    #[must_use]
    pub fn first_secret(&self) -> Option<&str> {
        match self {
            Self::Text(_) => None,
            Self::Secret(name) => Some(name),
            Self::Applied { parts, .. } => parts.iter().find_map(Self::first_secret),
        }
    }
}
