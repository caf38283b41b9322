//! Fetches lists from the API and prints them as tables in kubectl's style, JSON or YAML.
//!
//! Security: control characters of names do not reach the terminal.

use std::io::Write;

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;
use tabled::builder::Builder;
use tabled::settings::Style;

use super::client::{ApiRequest, Failure, Server, print};
use super::format::Format;
use super::terminal;

/// Longest text of a table cell, in characters.
const MAX_CELL_CHARS: usize = 100;

/// `--user` and `--all`: whose items are listed.
#[derive(Debug, Args)]
pub(super) struct OwnerArgs {
    /// List items of this user, which requires permission
    #[arg(long, value_name = "USERNAME")]
    user: Option<String>,
    /// List items of all users, as far as you have permission
    #[arg(long, conflicts_with = "user")]
    all: bool,
}

impl OwnerArgs {
    /// The query parameter `user`.
    pub(super) fn parameter(&self) -> Option<String> {
        if self.all {
            Some("*".to_owned())
        } else {
            self.user.clone()
        }
    }
}

/// A table: the names of its columns, and the cells of an item.
pub(super) struct Table<'a> {
    pub(super) columns: &'a [&'a str],
    pub(super) row: &'a dyn Fn(&Value) -> Vec<String>,
    /// Printed if there are no items.
    pub(super) empty_message: &'a str,
}

/// Fetches every page of a list, as one response.
///
/// - `query`: the query without `continue`.
pub(super) async fn fetch_all(
    server: &Server,
    path: &'static str,
    query: [(&'static str, Option<String>); 2],
    hint: fn(&str) -> Option<&'static str>,
) -> Result<Value, Failure> {
    let [first, second] = query;
    let path = [path];
    let mut items = Vec::new();
    let mut next = None;
    loop {
        let request = ApiRequest {
            query: &[first.clone(), second.clone(), ("continue", next)],
            ..ApiRequest::get(&path, hint)
        };
        let mut page = server.send_json(request).await?;
        if let Some(more) = page.get_mut("items").and_then(Value::as_array_mut) {
            items.append(more);
        }
        next = page.get("continue").and_then(Value::as_str).map(str::to_owned);
        if next.is_none() {
            return Ok(serde_json::json!({ "items": items }));
        }
    }
}

/// Prints the items of a response.
pub(super) fn print_items(
    answer: &Value,
    format: Format,
    table: &Table<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match format {
        Format::Json | Format::Yaml => format
            .print(answer, out)
            .map_err(|error| Failure::new("host.output", error)),
        Format::Table => {
            let items = answer.get("items").and_then(Value::as_array);
            let items = items.map(Vec::as_slice).unwrap_or_default();
            if items.is_empty() {
                return print(table.empty_message, out);
            }
            print(&render_table(items, table), out)
        }
    }
}

/// Renders items as a table without borders.
pub(super) fn render_table(items: &[Value], table: &Table<'_>) -> String {
    let mut builder = Builder::default();
    builder.push_record(table.columns.iter().copied());
    for item in items {
        builder.push_record((table.row)(item).into_iter().map(|cell| clean(&cell)));
    }
    let text = builder.build().with(Style::blank()).to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// The text at a JSON pointer; `-` if there is none.
pub(super) fn text_at(item: &Value, pointer: &str) -> String {
    match item.pointer(pointer) {
        Some(Value::String(text)) if !text.is_empty() => text.clone(),
        Some(Value::Null | Value::String(_)) | None => "-".to_owned(),
        Some(other) => other.to_string(),
    }
}

/// The time at a JSON pointer.
pub(super) fn time_at(item: &Value, pointer: &str) -> Option<Timestamp> {
    item.pointer(pointer)?.as_str()?.parse().ok()
}

/// The name of the item's agent, or its number if it has no name.
pub(super) fn agent_label(item: &Value) -> String {
    match text_at(item, "/agent/name") {
        name if name == "-" => text_at(item, "/agent/id"),
        name => name,
    }
}

fn clean(cell: &str) -> String {
    let mut text: String = terminal::escape_line(cell).chars().take(MAX_CELL_CHARS + 1).collect();
    if text.chars().count() > MAX_CELL_CHARS {
        text.pop();
        text.pop();
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Format, Table, agent_label, print_items, text_at};

    fn table(answer: &serde_json::Value) -> String {
        let row = |item: &serde_json::Value| vec![text_at(item, "/name"), agent_label(item)];
        let table = Table {
            columns: &["NAME", "AGENT"],
            row: &row,
            empty_message: "none",
        };
        let mut out = Vec::new();
        print_items(answer, Format::Table, &table, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn tables_are_plain() {
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
