//! `tollgate decisions`: shows the latest decisions of a running gateway. It queries the
//! admin listener and reads none of the gateway's files.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use super::client::{Failure, runtime, unreachable};
use super::format::Format;
use super::list_output::{render, text_at, whole_seconds};
use super::terminal;

#[derive(Debug, Args)]
pub(crate) struct Decisions {
    /// ID of a decision to show, from the response header `Tollgate-Decision-Id`; if omitted, the latest
    id: Option<uuid::Uuid>,
    /// URL of the gateway's admin listener
    #[arg(long, default_value = "http://127.0.0.1:8081")]
    admin: String,
    /// Show at most this many decisions, up to 1000
    #[arg(long, default_value_t = 20)]
    most: usize,
    /// Show only decisions about the user with this ID or name
    #[arg(long)]
    user: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Decisions {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let records = runtime()?.block_on(self.fetch())?;
        let head = [
            "TIME",
            "OUTCOME",
            "STATUS",
            "USER",
            "EXTENSION",
            "REASON",
            "DECISION",
            "ROW",
        ];
        let table = |records: &Vec<Value>| render(&head, records.iter().map(row));
        Ok(self.output.show(&records, table, out)?)
    }

    async fn fetch(&self) -> Result<Vec<Value>, Failure> {
        let base = self.admin.trim_end_matches('/');
        let client = reqwest::Client::new();
        let request = match self.id {
            Some(id) => client.get(format!("{base}/decisions/{id}")),
            None => {
                let mut url = url::Url::parse(&format!("{base}/decisions"))
                    .map_err(|error| Failure::new("gateway.url", format_args!("`{base}`: {error}")))?;
                url.query_pairs_mut().append_pair("most", &self.most.to_string());
                if let Some(user) = &self.user {
                    url.query_pairs_mut().append_pair("user", user);
                }
                client.get(url)
            }
        };
        let answer = request.send().await.map_err(|error| {
            let server = format!("the admin listener at `{base}`");
            unreachable(&server, &error, "--admin", None)
        })?;
        let broken = |error: &dyn std::error::Error| Failure::new("gateway.answer", error);
        let status = answer.status();
        let text = answer.text().await.map_err(|error| broken(&error))?;
        if !status.is_success() {
            let message = format!("the admin listener at `{base}` says {status}: {}", text.trim());
            return Err(Failure::new("gateway.refused", message));
        }
        match serde_json::from_str(&text).map_err(|error| broken(&error))? {
            Value::Array(records) => Ok(records),
            record => Ok(vec![record]),
        }
    }
}

fn row(record: &Value) -> [String; 8] {
    let text = |pointer: &str| terminal::escape_line(&text_at(record, pointer)).into_owned();
    // The last check decided; it has no rule if no row matched.
    let checks = record.get("checks").and_then(Value::as_array);
    let rule = checks.and_then(|checks| checks.last()?.get("rule")?.as_str());
    [
        whole_seconds(&text("/timestamp")),
        text("/outcome"),
        text("/status"),
        text("/principal/username"),
        text("/extension"),
        match text("/detail") {
            detail if detail == "-" => text("/reason"),
            detail => detail,
        },
        text("/decision_id"),
        terminal::escape_line(rule.unwrap_or("-")).into_owned(),
    ]
}
