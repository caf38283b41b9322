//! Prints results as one complete JSON or YAML document. Each command prints its own tables.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Failure;
use crate::terminal;

/// The output format of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable text
    #[default]
    Table,
    /// JSON document
    Json,
    /// YAML document
    Yaml,
}

impl Format {
    /// Writes the value as one document with one line break at its end.
    pub fn print<T: Serialize>(self, value: &T, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.document(value)?.trim_end())
    }

    /// Writes `text` of the value for [`Format::Table`], else the value as one document.
    pub fn show<T: Serialize>(self, value: &T, text: impl FnOnce(&T) -> String, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Table => writeln!(out, "{}", text(value).trim_end()),
            Self::Json | Self::Yaml => self.print(value, out),
        }
    }

    /// Serializes the value as one document; [`Format::Table`] gives JSON. Characters that a
    /// terminal could act on are escaped. A YAML document that contains some is written as JSON,
    /// which is YAML too.
    pub fn document<T: Serialize>(self, value: &T) -> io::Result<String> {
        match self {
            Self::Table | Self::Json => {
                let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
                Ok(terminal::escape_json(text))
            }
            Self::Yaml => {
                let text = serde_saphyr::to_string(value).map_err(io::Error::other)?;
                if text.contains(|letter| terminal::is_unsafe(letter) && letter != '\n') {
                    return Self::Json.document(value);
                }
                Ok(text)
            }
        }
    }
}

/// Writes a text as one line.
pub fn print(text: &str, out: &mut dyn Write) -> Result<(), Failure> {
    Ok(writeln!(out, "{text}")?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Format;

    #[test]
    fn documents_have_no_controls_and_lose_nothing() {
        let value = json!({"a\u{9b}2J": "\u{1b}]52;c;eA==\u{7}\u{202e}\u{7f}", "b": "two\nlines"});
        for format in [Format::Json, Format::Yaml] {
            let text = format.document(&value).unwrap();
            assert!(
                !text.chars().any(|c| crate::terminal::is_unsafe(c) && c != '\n'),
                "{text:?}"
            );
            let read: Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(read, value, "{text}");
        }
    }

    #[test]
    fn json_and_yaml_have_the_same_content() {
        let value = json!({"a": [1, "two", null], "b: c": true});
        let json: Value = serde_json::from_str(&Format::Json.document(&value).unwrap()).unwrap();
        let yaml: Value = serde_saphyr::from_str(&Format::Yaml.document(&value).unwrap()).unwrap();
        assert_eq!((&json, &yaml), (&value, &value));
        assert!(Format::Yaml.document(&value).unwrap().starts_with("a:"));
    }
}
