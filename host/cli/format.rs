//! How results are printed.
//!
//! In: a value. Out: one JSON or YAML document; tables are each command's own.
//! Never: a document cut in two.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

/// Format of the results of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

impl Format {
    /// Writes the value as one document with one line break at its end.
    ///
    /// # Errors
    /// As [`Format::document`], and what `out` says.
    pub fn print<T: Serialize>(self, value: &T, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.document(value)?.trim_end())
    }

    /// The value as one document, in JSON where a table is asked for.
    ///
    /// # Errors
    /// The value has a part that the format has no words for.
    pub fn document<T: Serialize>(self, value: &T) -> io::Result<String> {
        match self {
            Self::Table | Self::Json => serde_json::to_string_pretty(value).map_err(io::Error::other),
            Self::Yaml => serde_saphyr::to_string(value).map_err(io::Error::other),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Format;

    #[test]
    fn both_documents_say_the_same() {
        let value = json!({"a": [1, "two", null], "b: c": true});
        let json: Value = serde_json::from_str(&Format::Json.document(&value).unwrap()).unwrap();
        let yaml: Value = serde_saphyr::from_str(&Format::Yaml.document(&value).unwrap()).unwrap();
        assert_eq!((&json, &yaml), (&value, &value));
        assert!(Format::Yaml.document(&value).unwrap().starts_with("a:"));
    }
}
