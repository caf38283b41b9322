//! Prints lists of the API as tables in kubectl's style, JSON or YAML.
//!
//! Security: control characters of names do not reach the terminal.

use std::io::Write;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tabled::builder::Builder;
use tabled::settings::Style;

use super::failure::Failure;
use super::format::{Format, print};
use super::terminal;

/// Longest text of a table cell, in characters.
const MAX_CELL_CHARS: usize = 100;

/// How a list is shown as a table.
#[derive(Debug)]
pub struct Table {
    /// Its head.
    pub columns: &'static [&'static str],
    /// The cells of an item.
    pub row: fn(&Value) -> Vec<String>,
    /// Printed if there are no items.
    pub empty_message: &'static str,
}

/// Prints the `items` of a response.
///
/// # Errors
/// The output cannot be written.
pub fn print_items(answer: &Value, format: Format, table: &Table, out: &mut dyn Write) -> Result<(), Failure> {
    match format {
        Format::Table if items(answer, "/items").is_empty() => print(table.empty_message, out),
        Format::Table => print(&render_items(items(answer, "/items"), table), out),
        Format::Json | Format::Yaml => Ok(format.print(answer, out)?),
    }
}

/// Renders items of a response. Each cell is one line of bounded length.
pub(crate) fn render_items(items: &[Value], table: &Table) -> String {
    let row = |item: &Value| (table.row)(item).into_iter().map(|cell| clean(&cell));
    render(table.columns, items.iter().map(row))
}

/// Renders facts, one a line: a name with a colon, and a value.
pub(crate) fn render_facts<const N: usize>(facts: [(&str, String); N]) -> String {
    render(&[], facts.map(|(name, value)| [format!("{name}:"), clean(&value)]))
}

/// Facts, one a line, with their values in the column `width`.
pub fn aligned(width: usize, facts: &[(&str, String)]) -> String {
    let lines = facts.iter().map(|(name, value)| format!("{name:width$}{value}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Renders a table without borders, below a head unless that is empty.
pub fn render<R: IntoIterator<Item = String>>(head: &[&str], rows: impl IntoIterator<Item = R>) -> String {
    let mut builder = Builder::default();
    if !head.is_empty() {
        builder.push_record(head.iter().copied());
    }
    rows.into_iter().for_each(|row| builder.push_record(row));
    let text = builder.build().with(Style::blank()).to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// As [`render`], without the blank before each line.
pub fn render_flush<R: IntoIterator<Item = String>>(head: &[&str], rows: impl IntoIterator<Item = R>) -> String {
    let text = render(head, rows);
    let lines = text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// The list at a JSON pointer; empty if there is none.
pub fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// Joins words; `-` if there are none.
pub fn join_or_dash(words: &[String], separator: &str) -> String {
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join(separator)
    }
}

/// The name that serde writes for an enum.
pub fn serialized_name<T: Serialize>(value: &T) -> String {
    text_at(&serde_json::to_value(value).unwrap_or_default(), "")
}

/// A time without its fraction: seconds are enough for people.
pub fn whole_seconds(time: &str) -> String {
    let seconds = time.split('.').next().unwrap_or_default().trim_end_matches('Z');
    format!("{seconds}Z")
}

/// The text at a JSON pointer, unless it is empty.
pub(crate) fn find_text(item: &Value, pointer: &str) -> Option<String> {
    match item.pointer(pointer)? {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

/// The text at a JSON pointer; `-` if there is none.
pub fn text_at(item: &Value, pointer: &str) -> String {
    find_text(item, pointer).unwrap_or_else(|| "-".to_owned())
}

pub(crate) fn time_at(item: &Value, pointer: &str) -> Option<Timestamp> {
    item.pointer(pointer)?.as_str()?.parse().ok()
}

/// The time at a JSON pointer as `show` writes it relative to now; `-` if there is none.
pub(crate) fn relative_time_at(item: &Value, pointer: &str, show: fn(Timestamp, Timestamp) -> String) -> String {
    time_at(item, pointer).map_or_else(|| "-".to_owned(), |at| show(at, Timestamp::now()))
}

/// The name of the item's agent, or its number if it has no name.
pub(crate) fn agent_label(item: &Value) -> String {
    find_text(item, "/agent/name").unwrap_or_else(|| text_at(item, "/agent/id"))
}

/// A text for one cell: one line of bounded length.
pub fn clean(cell: &str) -> String {
    cut(&terminal::escape_line(cell), MAX_CELL_CHARS)
}

/// At most `most` characters of a text, of which the last is an ellipsis if the text has more.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Format, Table, agent_label, print_items, text_at};

    fn table(answer: &serde_json::Value) -> String {
        let table = Table {
            columns: &["NAME", "AGENT"],
            row: |item| vec![text_at(item, "/name"), agent_label(item)],
            empty_message: "none",
        };
        let mut out = Vec::new();
        print_items(answer, Format::Table, &table, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn table_cells_are_escaped_and_truncated() {
        let long = "x".repeat(200);
        let shown = table(&json!({"items": [
            {"name": "a\u{1b}[2J", "agent": {"id": 7, "name": "prod"}},
            {"name": long, "agent": {"id": 8}},
        ]}));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 3, "{shown}");
        assert!(lines[0].trim_start().starts_with("NAME"), "{shown}");
        assert!(lines[1].contains("a?[2J") && lines[1].ends_with("prod"), "{shown}");
        assert!(lines[2].contains("xxx…") && lines[2].ends_with('8'), "{shown}");
        assert_eq!(table(&json!({"items": []})), "none\n");
    }
}
