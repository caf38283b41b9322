//! `tollgate decisions`: shows the latest decisions of a running gateway, oldest first. It queries the
//! admin listener and reads none of the gateway's files.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use super::admin_listener::AdminListener;
use super::failure::Failure;
use super::format::Format;
use super::list_output::{render, text_at, whole_seconds};
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
    output: Format,
}

impl Decisions {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let records = self.fetch()?;
        self.print(records, out)
    }

    /// - `records`: newest first, as the listener gives them.
    fn print(&self, mut records: Vec<Value>, out: &mut dyn Write) -> Result<(), Failure> {
        // As `tollgate audit`: the latest are beside the prompt.
        records.reverse();
        let head = ["TIME", "OUTCOME", "STATUS", "USER", "REQUEST", "REASON", "DECISION"];
        let table = |records: &Vec<Value>| render(&head, records.iter().map(row));
        Ok(self.output.show(&records, table, out)?)
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
            decisions.print(newest_first.clone(), &mut shown).unwrap();
            let shown = String::from_utf8(shown).unwrap();
            let places = ["12:00:01", "12:00:02", "12:00:03"].map(|time| shown.find(time).unwrap());
            assert!(places.is_sorted(), "{output}: {shown}");
            if output == "json" {
                serde_json::from_str::<Value>(&shown).unwrap();
            }
        }
    }
}
