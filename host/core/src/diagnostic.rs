//! Findings about a file an operator wrote: what is wrong and where. Each is printed as one line,
//! `file:line:column: severity: message (hint)`.
//!
//! Security: a finding contains no secret value and no output of a plugin.

use std::fmt;
use std::sync::Arc;

/// A position in a file. Lines and columns count from 1; 0 means unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Location {
    /// Path as the operator would type it.
    pub file: Arc<str>,
    /// Line, from 1; 0 when only the file is known.
    pub line: u32,
    /// Column, from 1; 0 when only the line is known.
    pub column: u32,
}

impl Location {
    /// A position of which only the line is known.
    pub fn new(file: impl Into<Arc<str>>, line: u32) -> Self {
        Self {
            file: file.into(),
            line,
            column: 0,
        }
    }

    /// The same file, `lines` further down.
    #[must_use]
    pub fn below(&self, lines: u32) -> Self {
        Self {
            file: self.file.clone(),
            line: self.line.saturating_add(lines),
            column: 0,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => f.write_str(&self.file),
            (line, 0) => write!(f, "{}:{line}", self.file),
            (line, column) => write!(f, "{}:{line}:{column}", self.file),
        }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    /// The file is not used; the last good configuration stays in force.
    Error,
    /// The file is used; it probably does not do what its author meant.
    Warning,
}

/// One finding about one position in an operator's file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Diagnostic {
    /// Whether the file can be used at all.
    pub severity: Severity,
    /// Where, as far as known.
    pub location: Option<Location>,
    /// What is wrong: lower case, no final period, values in backticks.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// A finding that refuses the file.
    pub fn error(location: impl Into<Option<Location>>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            location: location.into(),
            message: message.into(),
            hint: None,
        }
    }

    /// A finding that does not refuse the file.
    pub fn warning(location: impl Into<Option<Location>>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(location, message)
        }
    }

    /// The same finding with advice.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Whether the file cannot be used.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        write!(f, "{}: {}", self.severity, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// The result of one load and all its findings. `value` is `None` exactly when a finding is an
/// error.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// The result, when no finding is an error.
    pub value: Option<T>,
    /// Every finding, in file order.
    pub diagnostics: Vec<Diagnostic>,
}

impl<T> Loaded<T> {
    /// Keeps `value` only when no finding is an error.
    pub fn new(value: T, diagnostics: Vec<Diagnostic>) -> Self {
        let refused = diagnostics.iter().any(Diagnostic::is_error);
        Self {
            value: (!refused).then_some(value),
            diagnostics,
        }
    }

    /// Applies `make` to the value and keeps the findings.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Loaded<U> {
        Loaded {
            value: self.value.map(make),
            diagnostics: self.diagnostics,
        }
    }

    /// A result without a value, because the input was refused.
    pub fn refused(diagnostics: Vec<Diagnostic>) -> Self {
        Self {
            value: None,
            diagnostics,
        }
    }
}

/// Writes a finding to the log, at its own level.
pub fn log(finding: &Diagnostic) {
    match finding.severity {
        Severity::Error => tracing::error!("{finding}"),
        Severity::Warning => tracing::warn!("{finding}"),
    }
}

/// At most `most` bytes of `text`, followed by `…` if it was cut.
pub fn shortened(text: &str, most: usize) -> String {
    let end = text.floor_char_boundary(most);
    match text.get(..end) {
        Some(start) if end < text.len() => format!("{start}…"),
        Some(_) | None => text.to_owned(),
    }
}

/// `text` without control characters, cut to `most` bytes.
pub fn one_line(text: &str, most: usize) -> String {
    let visible = |letter: char| if letter.is_control() { ' ' } else { letter };
    let mut line: String = text.chars().take(most).map(visible).collect();
    line.truncate(line.floor_char_boundary(most));
    line
}

/// The first line of a text, at most 300 characters, without control characters.
pub fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// An error with its causes: `what: why: why`.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    let texts: Vec<String> = chain.map(ToString::to_string).collect();
    texts.join(": ")
}
