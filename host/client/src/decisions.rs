//! `tollgate decisions`: shows the latest decisions of a running gateway, oldest first. It queries the
//! admin listener and reads none of the gateway's files.

use std::io::Write;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::admin_listener::AdminListener;
use super::failure::Failure;
use super::format::{Format, print};
use super::list_output::{cut, render, text_at, whole_seconds};
use super::terminal;

#[derive(Debug, Args)]
pub struct Decisions {
    /// ID of a decision to show, which refusals name (kubectl calls it `Trace ID`; header
    /// `Tollgate-Decision-Id`); if omitted, the latest
    #[arg(value_parser = decision_id)]
    id: Option<uuid::Uuid>,
    #[command(flatten)]
    admin: AdminListener,
    /// Show at most this many decisions, up to 1000
    #[arg(long, visible_alias = "limit", default_value_t = 20)]
    most: usize,
    /// Show only decisions about the user with this ID or name
    #[arg(long)]
    user: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: DecisionFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum DecisionFormat {
    /// Human-readable text; on a terminal, long requests and reasons are cut to its width
    #[default]
    Table,
    /// The same text with whole requests and reasons
    Wide,
    /// JSON document
    Json,
    /// YAML document
    Yaml,
}

const HEAD: [&str; 7] = ["TIME", "OUTCOME", "STATUS", "USER", "REQUEST", "REASON", "DECISION"];
/// The columns that a terminal may be too narrow for, and how many characters they keep at least.
const CUT: [(usize, usize); 2] = [(REASON, 24), (REQUEST, 16)];
const REQUEST: usize = 4;
const REASON: usize = 5;
/// Blanks around a cell and between two, for each column.
const GAP: usize = 3;

impl Decisions {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let records = self.fetch()?;
        self.print(records, terminal::width(), out)
    }

    /// - `records`: newest first, as the listener gives them.
    /// - `width`: of the terminal; without one, nothing is cut.
    fn print(&self, mut records: Vec<Value>, width: Option<usize>, out: &mut dyn Write) -> Result<(), Failure> {
        // As `tollgate audit`: the latest are beside the prompt.
        records.reverse();
        let table = |width| {
            let mut rows: Vec<[String; 7]> = records.iter().map(row).collect();
            if let Some(width) = width {
                fit(&mut rows, width);
            }
            render(&HEAD, rows)
        };
        match self.output {
            DecisionFormat::Table => print(&table(width), out),
            DecisionFormat::Wide => print(&table(None), out),
            DecisionFormat::Json => Ok(Format::Json.print(&records, out)?),
            DecisionFormat::Yaml => Ok(Format::Yaml.print(&records, out)?),
        }
    }

    fn fetch(&self) -> Result<Vec<Value>, Failure> {
        let answer = match self.id {
            Some(id) => self.admin.get(&["decisions", &id.to_string()], &[])?,
            None => {
                let most = self.most.to_string();
                let query = [("most", Some(most.as_str())), ("user", self.user.as_deref())];
                self.admin.get(&["decisions"], &query)?
            }
        };
        Ok(match answer {
            Value::Array(records) => records,
            record => vec![record],
        })
    }
}

/// Cuts reasons, then requests, until the table has at most `width` characters, or each its least.
fn fit(rows: &mut [[String; 7]], width: usize) {
    for (column, least) in CUT {
        let mut widths = HEAD.map(str::len);
        for row in rows.iter() {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(cell.chars().count());
            }
        }
        let all = widths.iter().map(|cell| cell + GAP).sum::<usize>();
        let most = widths
            .get(column)
            .map_or(0, |own| own.saturating_sub(all.saturating_sub(width)).max(least));
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            *cell = cut(cell, most);
        }
    }
}

/// Reads the ID of a decision.
pub(crate) fn decision_id(text: &str) -> Result<uuid::Uuid, &'static str> {
    let wrong = "not a decision id such as `0190a5b8-7a4c-7c1e-9d5f-3b1f6e0c2a44`, which refusals and `tollgate decisions` name";
    text.parse().map_err(|_| wrong)
}

fn row(record: &Value) -> [String; 7] {
    let text = |pointer: &str| terminal::escape_line(&text_at(record, pointer)).into_owned();
    let user = match text("/principal/username") {
        nobody if nobody == "-" => text("/kubernetes/user/username"),
        user => user,
    };
    [
        whole_seconds(&text("/timestamp")),
        text("/outcome"),
        text("/status"),
        user,
        terminal::escape_line(&request(record)).into_owned(),
        terminal::escape_line(&reason(record)).into_owned(),
        text("/decision_id"),
    ]
}

/// What was asked for: what a cluster, an extension or Argo CD's API was asked, else method and path.
fn request(record: &Value) -> String {
    let text = |pointer: &str| filled(record, pointer);
    if let Some(resource) = text("/kubernetes/attributes/resource") {
        let of = |key: &str| text(&format!("/kubernetes/attributes/{key}"));
        let mut words = vec![of("verb").unwrap_or("-").to_owned()];
        words.push(match of("subresource") {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource.to_owned(),
        });
        words.extend(of("name").map(str::to_owned));
        words.extend(of("namespace").map(|namespace| format!("-n {namespace}")));
        words.extend(text("/destination/name").map(|cluster| format!("in {cluster}")));
        return words.join(" ");
    }
    let method = text("/method").unwrap_or("-");
    match text("/api_method") {
        Some(api_method) => api_method.to_owned(),
        None => format!("{method} {}", text("/path").unwrap_or_default()),
    }
}

/// The text at a JSON pointer, unless it is empty.
fn filled<'a>(record: &'a Value, pointer: &str) -> Option<&'a str> {
    let text = record.pointer(pointer).and_then(Value::as_str);
    text.filter(|text| !text.is_empty())
}

/// Why, with the row of `policy.csv` that decided. What was let in and refused behind the gateway says so.
fn reason(record: &Value) -> String {
    let text = |pointer: &str| filled(record, pointer);
    let reason = text("/detail").or_else(|| text("/reason")).unwrap_or("-");
    let status = record.get("status").and_then(Value::as_u64).unwrap_or_default();
    if text("/outcome") == Some("allowed") && matches!(status, 401 | 403) {
        let whose =
            text("/destination/name").map_or_else(|| "the upstream".to_owned(), |name| format!("cluster `{name}`"));
        return format!("allowed here, refused by {whose}");
    }
    // The last check decided; it has no rule if no row matched.
    let checks = record.get("checks").and_then(Value::as_array);
    match checks.and_then(|checks| checks.last()?.get("rule")?.as_str()) {
        Some(rule) => format!("{reason} ({rule})"),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Parser as _, Subcommand as _};
    use serde_json::{Value, json};

    use super::Decisions;
    use crate::ResourceCommand;

    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        decisions: Decisions,
    }

    #[test]
    fn the_help_says_in_which_order_they_are() {
        let help = ResourceCommand::augment_subcommands(clap::Command::new("tollgate"));
        let help = help
            .find_subcommand("decisions")
            .unwrap()
            .get_about()
            .unwrap()
            .to_string();
        assert!(help.ends_with("the newest last"), "{help}");
        let record = |time: &str| json!({"timestamp": format!("2026-01-01T{time}Z"), "decision_id": time});
        let newest_first = vec![record("12:00:03"), record("12:00:02"), record("12:00:01")];
        for output in ["table", "json"] {
            let Alone { decisions } = Alone::parse_from(["tollgate", "--output", output]);
            let mut shown = Vec::new();
            decisions.print(newest_first.clone(), None, &mut shown).unwrap();
            let shown = String::from_utf8(shown).unwrap();
            let places = ["12:00:01", "12:00:02", "12:00:03"].map(|time| shown.find(time).unwrap());
            assert!(places.is_sorted(), "{output}: {shown}");
            if output == "json" {
                serde_json::from_str::<Value>(&shown).unwrap();
            }
        }
    }

    #[test]
    fn a_table_fits_its_terminal_and_nothing_is_lost_elsewhere() {
        let reason = "no syncs on weekends; ".repeat(20);
        let id = "0190a5b8-7a4c-7c1e-9d5f-3b1f6e0c2a44";
        let records = vec![json!({
            "timestamp": "2026-01-01T12:00:03.5Z", "outcome": "denied", "status": 403, "decision_id": id,
            "principal": {"username": "alice"}, "method": "GET", "path": "/a".repeat(40), "detail": reason,
        })];
        let shown = |output: &str, width| {
            let Alone { decisions } = Alone::parse_from(["tollgate", "--output", output]);
            let mut shown = Vec::new();
            decisions.print(records.clone(), width, &mut shown).unwrap();
            String::from_utf8(shown).unwrap()
        };
        for width in [160, 140, 80] {
            let table = shown("table", Some(width));
            let widest = table.lines().map(|line| line.chars().count()).max().unwrap();
            // Everything but the two columns, and their least.
            assert!(widest <= width.max(140), "{width}: {table}");
            assert!(table.contains(id) && table.contains('…'), "{table}");
        }
        for (output, width) in [("table", None), ("wide", Some(80)), ("json", Some(80))] {
            assert!(shown(output, width).contains(reason.trim_end()), "{output}");
        }
    }
}
