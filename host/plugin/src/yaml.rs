//! Parses the YAML of a manifest into one document, or into a finding with line and column.
//!
//! Security: a finding contains no text of the manifest.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use tollgate_core::diagnostic::{Diagnostic, Location};

/// Reads one document; nothing of the text is repeated in errors.
pub(super) fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { with_snippet: false })
}

pub(super) fn location(position: &serde_saphyr::Location, file: &Arc<str>) -> Location {
    let number = |value: u64| u32::try_from(value).unwrap_or(0);
    Location {
        file: file.clone(),
        line: number(position.line()),
        column: number(position.column()),
    }
}

pub(super) fn diagnostic(error: &serde_saphyr::Error, file: &Arc<str>) -> Diagnostic {
    let start = error
        .location()
        .map_or_else(|| Location::new(file.clone(), 0), |position| location(&position, file));
    let text = error.to_string();
    let line = text
        .lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ")
        .to_owned();
    Diagnostic::error(start, line)
}
