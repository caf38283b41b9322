//! `tollgate session`: lists and revokes sessions. It shows no secrets; ids of sessions are not
//! secret.

use std::io::Write;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::Value;

use super::age::{age, time_left};
use super::client::{ApiRequest, Failure, Server, print, runtime};
use super::format::Format;
use super::list_output::{OwnerArgs, Table, agent_label, fetch_all, print_items, text_at, time_at};
use tollgate_core::session::SessionId;

/// Subcommands of `tollgate session`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List active sessions and browser sessions
    List(List),
    /// Revoke sessions and end the requests they have open
    Revoke(Revoke),
}

/// Arguments of `tollgate session list`.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    owner: OwnerArgs,
    /// List only sessions at this agent, by name or number
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    server: Server,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Arguments of `tollgate session revoke`.
#[derive(Debug, Args)]
pub struct Revoke {
    /// IDs of the sessions, as `tollgate session list` shows them: `pat:…`, `cookie:…`, `oidc:…`, `ci:…`
    #[arg(required = true, value_parser = session)]
    ids: Vec<SessionId>,
    #[command(flatten)]
    server: Server,
}

fn session(text: &str) -> Result<SessionId, &'static str> {
    SessionId::parse(text).ok_or("it is not `pat:…`, `cookie:…`, `oidc:…` or `ci:…`")
}

impl Command {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::List(list) => list.run(out),
            Self::Revoke(revoke) => revoke.run(out),
        }
    }
}

impl List {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let query = [("user", self.owner.parameter()), ("agent", self.agent.clone())];
        let mut answer = runtime()?.block_on(fetch_all(&self.server, "sessions", query, hint))?;
        if let Some(items) = answer.get_mut("items").and_then(Value::as_array_mut) {
            // Latest first, across pages too.
            items.sort_by_key(|item| std::cmp::Reverse((time_at(item, "/lastAt"), time_at(item, "/firstAt"))));
        }
        let table = Table {
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
            row: &row,
            empty_message: "No sessions found.",
        };
        print_items(&answer, self.output, &table, out)
    }
}

impl Revoke {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let runtime = runtime()?;
        for id in &self.ids {
            let id = id.to_string();
            let path = ["sessions", id.as_str()];
            let request = ApiRequest {
                method: Method::DELETE,
                ..ApiRequest::get(&path, hint)
            };
            let answer = runtime.block_on(self.server.send_json(request))?;
            print(&format!("session {id} revoked"), out)?;
            if let Some(note) = answer.get("note").and_then(Value::as_str) {
                print(note, out)?;
            }
        }
        Ok(())
    }
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        "permission_denied" => Some("sessions of others need `sessions` rights on `<agent>/<user>`"),
        "session_not_found" => Some("`tollgate session list` shows ids"),
        _ => None,
    }
}

fn row(item: &Value) -> Vec<String> {
    let now = Timestamp::now();
    let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        text_at(item, "/id"),
        text_at(item, "/user/username"),
        agent_label(item),
        text_at(item, "/openStreams"),
        text_at(item, "/requests"),
        or(time_at(item, "/lastAt").map(|at| age(at, now))),
        or(time_at(item, "/expiresAt").map(|at| time_left(at, now))),
        text_at(item, "/client"),
    ]
}
