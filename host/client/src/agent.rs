//! `tollgate agent`: lists the agents that the caller may use.

use std::io::Write;

use clap::Subcommand;
use serde_json::Value;

use super::api::Server;
use super::failure::Failure;
use super::format::Format;
use super::list_args::OwnerArgs;
use super::list_output::{Table, items, join_or_dash, print_items, text_at};
use super::print_error;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List agents shared with you, and your roles on them
    List {
        #[command(flatten)]
        owner: OwnerArgs,
        #[command(flatten)]
        server: Server,
        /// Output format
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// The former name of `tollgate connector run`
    #[command(hide = true)]
    Run(tollgate_connector::Run),
    /// The former name of `tollgate connector key`
    #[command(hide = true)]
    Key(tollgate_connector::Key),
}

impl Command {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::List { owner, server, output } => {
                print_items(&fetch(server, owner.parameter())?, *output, &TABLE, out)
            }
            Self::Run(run) => run.run_by_former_name().map_err(connector_failure),
            Self::Key(key) => {
                print_error("`tollgate agent key` is deprecated: use `tollgate connector key`");
                key.run(out).map_err(connector_failure)
            }
        }
    }
}

pub(crate) fn connector_failure(failure: tollgate_connector::Failure) -> Failure {
    Failure::new(failure.code, failure.message)
}

pub(crate) fn fetch(server: &Server, user: Option<String>) -> Result<Value, Failure> {
    server.get(&["agents"], hint).query([("user", user)]).json()
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        "permission_denied" => Some("agents of others need `tokens, get` on `<agent>/<user>`"),
        _ => None,
    }
}

const TABLE: Table = Table {
    columns: &["NAME", "ID", "CLUSTER", "ACCESS-AS", "ROLES"],
    row,
    empty_message: "No agents found.",
};

fn row(item: &Value) -> Vec<String> {
    let role = |role: &Value| {
        let highest = items(role, "/roles").last().and_then(Value::as_str);
        format!("{} ({})", text_at(role, "/path"), highest.unwrap_or("-"))
    };
    let roles: Vec<String> = items(item, "/roles").iter().map(role).collect();
    vec![
        text_at(item, "/name"),
        text_at(item, "/id"),
        text_at(item, "/cluster"),
        text_at(item, "/accessAs"),
        join_or_dash(&roles, ", "),
    ]
}
