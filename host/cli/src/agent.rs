//! `tollgate agent`: lists the agents that the caller may use.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::client::{ApiRequest, Failure, Server, runtime};
use super::format::Format;
use super::list_output::{OwnerArgs, Table, print_items, text_at};

/// Subcommands of `tollgate agent`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List agents shared with you, and your roles on them
    List(List),
}

/// Arguments of `tollgate agent list`.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    owner: OwnerArgs,
    #[command(flatten)]
    server: Server,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Command {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::List(list) => list.run(out),
        }
    }
}

impl List {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let query = [("user", self.owner.parameter())];
        let answer = runtime()?.block_on(fetch(&self.server, &query))?;
        let table = Table {
            columns: &["NAME", "ID", "CLUSTER", "ACCESS-AS", "ROLES"],
            row: &row,
            empty_message: "No agents found.",
        };
        print_items(&answer, self.output, &table, out)
    }
}

/// Requests the agents that the caller may use.
pub(super) async fn fetch(server: &Server, query: &[(&str, Option<String>)]) -> Result<Value, Failure> {
    let request = ApiRequest {
        query,
        ..ApiRequest::get(&["agents"], hint)
    };
    server.send_json(request).await
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        "permission_denied" => Some("agents of others need `tokens, get` on `<agent>/<user>`"),
        _ => None,
    }
}

fn row(item: &Value) -> Vec<String> {
    let roles = item.get("roles").and_then(Value::as_array);
    let roles: Vec<String> = roles
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .map(|role| {
            let highest = role
                .get("roles")
                .and_then(Value::as_array)
                .and_then(|roles| roles.last());
            let highest = highest.and_then(Value::as_str).unwrap_or("-");
            format!("{} ({highest})", text_at(role, "/path"))
        })
        .collect();
    let roles = if roles.is_empty() {
        "-".to_owned()
    } else {
        roles.join(", ")
    };
    vec![
        text_at(item, "/name"),
        text_at(item, "/id"),
        text_at(item, "/cluster"),
        text_at(item, "/accessAs"),
        roles,
    ]
}
