//! Reads YAML texts into types of serde, with the position of a mistake.

use crate::diagnostic::{Diagnostic, Location, first_line};

/// Reads a YAML or JSON text.
///
/// # Errors
/// What is wrong with it, and where in the file at `path`.
pub fn deserialize<T: serde::de::DeserializeOwned>(path: &str, text: &str) -> Result<T, Diagnostic> {
    serde_saphyr::from_str(text).map_err(|error| {
        let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
        let number = |value: u64| u32::try_from(value).unwrap_or(0);
        let location = Location {
            file: path.into(),
            line: number(line),
            column: number(column),
        };
        let text = first_line(&error.to_string());
        // The location says that already.
        let position = format!("error: line {line} column {column}: ");
        Diagnostic::error(location, text.strip_prefix(&position).unwrap_or(&text))
    })
}
