//! Why a command failed, in one line with a code and a hint.

use std::error::Error;
use std::{fmt, io};

use crate::terminal;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    /// Its stable code, such as `gateway.url`.
    pub code: String,
    pub(crate) message: String,
    hint: Option<String>,
    /// Everything that was refused, one line each.
    pub(crate) details: Vec<String>,
}

impl Failure {
    /// A failure with a stable code and a message.
    pub fn new(code: &str, message: impl fmt::Display) -> Self {
        Self {
            code: code.to_owned(),
            message: message.to_string(),
            hint: None,
            details: Vec::new(),
        }
    }

    /// Prefixes the message with the name of the object, for commands that take several.
    pub(crate) fn about(mut self, name: &str) -> Self {
        self.message = format!("`{name}`: {}", self.message);
        self
    }

    /// Adds lines that are printed below the failure.
    pub fn with_details(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    /// Says what to do about it.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The output is closed, or its format cannot represent the result.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new("host.output", error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one_line = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            terminal::escape_line(&words.join(" ")).into_owned()
        };
        write!(f, "{}: {}", one_line(&self.code), one_line(&self.message))?;
        match &self.hint {
            Some(hint) => write!(f, " ({})", one_line(hint)),
            None => Ok(()),
        }
    }
}

/// The innermost cause. [`Error::source`] of an I/O error skips the error that it wraps.
pub(crate) fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut at = error;
    loop {
        let wrapped = at.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = wrapped.map(|inner| -> &'a (dyn Error + 'static) { inner });
        match inner.or_else(|| at.source()) {
            Some(next) => at = next,
            None => return at,
        }
    }
}
