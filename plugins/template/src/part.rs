//! What rendering gives: text, secrets by name, and what is done to them.
//!
//! In: parts. Out: parts encoded, public text at once. Never: a secret's bytes.

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
    /// The secret of that name, as it is.
    Secret(String),
    /// The parts joined, then changed as a whole. At least one of them is, or
    /// holds, a secret.
    Applied {
        /// What to do with the joined parts.
        operation: Operation,
        /// What to join, in order.
        parts: Vec<Self>,
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
    Size::of(&result).check()?;
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

/// How large a result is.
#[derive(Default)]
pub(crate) struct Size {
    bytes: usize,
    parts: usize,
    /// Operations over one another.
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

    /// Text that continues the text before it.
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

    /// Holds it against the bounds.
    ///
    /// # Errors
    /// [`Code::TooLarge`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { bytes, parts, depth } = self;
        if *bytes > MAX_OUTPUT_BYTES {
            let text = format!("the rendered text has {bytes} bytes; at most {MAX_OUTPUT_BYTES} are allowed");
            return Err(Error::whole(Code::TooLarge, text));
        }
        if *parts > MAX_PARTS || *depth > MAX_ENCODINGS {
            let text = format!(
                "the result has {parts} parts in {depth} encodings; at most {MAX_PARTS} in {MAX_ENCODINGS} are allowed"
            );
            return Err(Error::whole(Code::TooLarge, text));
        }
        Ok(())
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
