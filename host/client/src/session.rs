//! `tollgate session`: lists and revokes sessions. It shows no secrets; ids of sessions are not
//! secret.

use std::io::Write;

use clap::Subcommand;
use reqwest::Method;
use serde_json::Value;

use super::age::{age, time_left};
use super::api::Server;
use super::failure::Failure;
use super::format::print;
use super::list_args::ListArgs;
use super::list_output::{Table, agent_label, print_items, relative_time_at, text_at, time_at};
use tollgate_core::session::SessionId;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List active sessions and browser sessions
    List(ListArgs),
    /// Revoke sessions and end the requests they have open
    Revoke {
        /// IDs of the sessions, as `tollgate session list` shows them: `pat:…`, `cookie:…`, `oidc:…`, `ci:…`, `login:…`
        #[arg(required = true, value_parser = session)]
        ids: Vec<SessionId>,
        #[command(flatten)]
        server: Server,
    },
}

fn session(text: &str) -> Result<SessionId, &'static str> {
    SessionId::parse(text).ok_or("it is not `pat:…`, `cookie:…`, `oidc:…`, `ci:…` or `login:…`")
}

impl Command {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::List(args) => {
                let mut answer = args.fetch_all("sessions", hint)?;
                if let Some(items) = answer.get_mut("items").and_then(Value::as_array_mut) {
                    // Latest first, across pages too.
                    items.sort_by_key(|item| std::cmp::Reverse((time_at(item, "/lastAt"), time_at(item, "/firstAt"))));
                }
                print_items(&answer, args.output, &TABLE, out)
            }
            Self::Revoke { ids, server } => ids.iter().try_for_each(|id| revoke(server, id, out)),
        }
    }
}

fn revoke(server: &Server, id: &SessionId, out: &mut dyn Write) -> Result<(), Failure> {
    let id = id.to_string();
    let answer = server.request(Method::DELETE, &["sessions", &id], hint).json()?;
    print(&format!("session {id} revoked"), out)?;
    match answer.get("note").and_then(Value::as_str) {
        Some(note) => print(note, out),
        None => Ok(()),
    }
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        "permission_denied" => Some("sessions of others need `sessions` rights on `<agent>/<user>`"),
        "session_not_found" => Some("`tollgate session list` shows ids"),
        _ => None,
    }
}

const TABLE: Table = Table {
    columns: &[
        "SESSION",
        "USER",
        "AGENT",
        "STREAMS",
        "REQUESTS",
        "LAST-SEEN",
        "EXPIRES",
        "CLIENT",
    ],
    row,
    empty_message: "No sessions found.",
};

fn row(item: &Value) -> Vec<String> {
    vec![
        text_at(item, "/id"),
        text_at(item, "/user/username"),
        agent_label(item),
        text_at(item, "/openStreams"),
        text_at(item, "/requests"),
        relative_time_at(item, "/lastAt", age),
        relative_time_at(item, "/expiresAt", time_left),
        text_at(item, "/client"),
    ]
}
