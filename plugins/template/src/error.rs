//! What can be wrong with a template, and where.
//!
//! In: a code, a position, words. Out: text for the operator. Never: the text
//! of a value.

use alloc::string::String;
use core::fmt;

/// A place in a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Character within the line, from 1.
    pub column: usize,
}

/// What kind of mistake it is; the words never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Go's own parser would refuse it.
    Syntax,
    /// Go would take it, the profile does not.
    Unsupported,
    /// No function of that name.
    UnknownFunction,
    /// `{.name}` or `${.name}` in the text, which no template language here reads.
    SingleBrace,
    /// A value that is not there.
    Missing,
    /// A value of the wrong type, or the wrong number of arguments.
    Type,
    /// Source, nesting or result over its bound.
    TooLarge,
    /// A secret would decide what is rendered.
    SecretBranch,
    /// A secret would stand before the `?` of a URL.
    SecretInUrl,
    /// A header's value with a control character.
    Header,
    /// No URL a token may be asked of.
    Url,
}

impl Code {
    /// The stable slug, such as `template.missing`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "template.syntax",
            Self::Unsupported => "template.unsupported",
            Self::UnknownFunction => "template.unknown_function",
            Self::SingleBrace => "template.single_brace",
            Self::Missing => "template.missing",
            Self::Type => "template.type",
            Self::TooLarge => "template.too_large",
            Self::SecretBranch => "template.secret_branch",
            Self::SecretInUrl => "template.secret_in_url",
            Self::Header => "template.header",
            Self::Url => "template.url",
        }
    }
}

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: Code,
    position: Option<Position>,
    text: String,
}

impl Error {
    pub(crate) fn new(code: Code, position: Position, text: impl Into<String>) -> Self {
        Self {
            code,
            position: Some(position),
            text: text.into(),
        }
    }

    /// An error of the result as a whole.
    pub(crate) fn whole(code: Code, text: impl Into<String>) -> Self {
        Self {
            code,
            position: None,
            text: text.into(),
        }
    }

    /// What kind of mistake it is.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// Where in the template; none when the rendered text as a whole is wrong.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.position
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Position { line, column }) = self.position {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.text)
    }
}

impl core::error::Error for Error {}
