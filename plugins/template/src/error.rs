//! Errors of templates: a code, a position and a message for the operator.
//!
//! Security: a message never contains the text of a secret.

use alloc::string::String;
use core::fmt;

/// A position in a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Character within the line, from 1.
    pub column: usize,
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Go's own parser refuses it.
    Syntax,
    /// Go accepts it, but this crate does not support it.
    Unsupported,
    /// There is no function of that name.
    UnknownFunction,
    /// `{.name}` or `${.name}` in the text, which would be sent unchanged.
    SingleBrace,
    /// A value is missing.
    Missing,
    /// A value has the wrong type, or a function gets the wrong number of arguments.
    Type,
    /// Source, nesting or result exceed their limit.
    TooLarge,
    /// A condition reads a secret.
    SecretBranch,
    /// A secret comes before the `?` of a URL.
    SecretInUrl,
    /// A header's value has a control character.
    Header,
    /// The URL is not allowed for a token request.
    Url,
}

impl Code {
    /// The slug, such as `template.missing`. Slugs never change.
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

    /// An error that concerns the result as a whole.
    pub(crate) fn without_position(code: Code, text: impl Into<String>) -> Self {
        Self {
            code,
            position: None,
            text: text.into(),
        }
    }

    /// The kind of the error.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// The position in the template. `None` if the error concerns the result as a whole.
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
