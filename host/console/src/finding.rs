//! What the gateway found in a configuration, as the API tells it.

use serde::Deserialize;

use crate::text::Text;

#[derive(Debug, Deserialize)]
pub(crate) struct Finding {
    /// `error` or `warning`.
    pub(crate) severity: Text,
    #[serde(default)]
    pub(crate) location: Option<Location>,
    pub(crate) message: Text,
    #[serde(default)]
    pub(crate) hint: Option<Text>,
}

/// A position; 0 stands for an unknown line or column.
#[derive(Debug, Deserialize)]
pub(crate) struct Location {
    /// A file, or the key of an object that was sent.
    pub(crate) file: Text,
    line: u32,
    column: u32,
}

impl Location {
    pub(crate) fn text(&self) -> Text {
        Text::from(match (self.line, self.column) {
            (0, _) => self.file.raw().to_owned(),
            (line, 0) => format!("{}:{line}", self.file.raw()),
            (line, column) => format!("{}:{line}:{column}", self.file.raw()),
        })
    }
}
