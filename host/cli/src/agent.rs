//! `tollgate agent`: lists the agents the caller may use, as the gateway shows them.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::client::{ApiRequest, Failure, Server, runtime};
use super::format::Format;
use super::list_output::{OwnerArgs, Table, show, text};

/// Commands about agents.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the agents that are shared with you.
    List(List),
}

/// Lists agents.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    owner: OwnerArgs,
    #[command(flatten)]
    server: Server,
    /// Output format.
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
        show(&answer, self.output, &table, out)
    }
}

/// The agents the caller may use.
pub(super) async fn fetch(server: &Server, query: &[(&str, Option<String>)]) -> Result<Value, Failure> {
    let ask = ApiRequest {
        query,
        ..ApiRequest::get(&["agents"], hint)
    };
    server.json(ask).await
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
            format!("{} ({highest})", text(role, "/path"))
        })
        .collect();
    let roles = if roles.is_empty() {
        "-".to_owned()
    } else {
        roles.join(", ")
    };
    vec![
        text(item, "/name"),
        text(item, "/id"),
        text(item, "/cluster"),
        text(item, "/accessAs"),
        roles,
    ]
}
