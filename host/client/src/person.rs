//! `tollgate person`: locks people, which ends everything that they have open on every replica within a
//! second, and lets them do nothing until they are unlocked.

use std::io::Write;

use clap::Subcommand;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use super::age::age;
use super::api::Server;
use super::failure::Failure;
use super::format::{Format, print};
use super::list_output::{Table, print_items, relative_time_at, text_at};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lock a person: end what they have open, and refuse them until they are unlocked
    ///
    /// NAME is the name in the user directory, or the user name or subject that an issuer gives. It needs
    /// the permission `people, lock` on the name.
    #[command(after_help = "Example:\n  tollgate person lock mallory@example.org --reason 'laptop stolen'")]
    Lock {
        /// Name of the person
        name: String,
        /// Why, for the audit log and the list of locked people
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
        #[command(flatten)]
        server: Server,
    },
    /// Unlock a person, who has to sign in again
    Unlock {
        /// Name of the person
        name: String,
        #[command(flatten)]
        server: Server,
    },
    /// List the people who are locked
    List {
        #[command(flatten)]
        server: Server,
        /// Output format
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
}

impl Command {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Lock { name, reason, server } => {
                let request = server.request(Method::PUT, &["people", name, "lock"], hint);
                let answer = request.content(json!({ "reason": reason })).json()?;
                let is_new = answer.get("new").and_then(Value::as_bool).unwrap_or(true);
                let note = if is_new { "" } else { " (was locked before)" };
                print(
                    &format!("{name} is locked{note}; what was open ends on every replica within a second"),
                    out,
                )
            }
            Self::Unlock { name, server } => {
                let answer = server.request(Method::DELETE, &["people", name, "lock"], hint).json()?;
                match answer.get("was").and_then(Value::as_bool) {
                    Some(false) => print(&format!("{name} was not locked"), out),
                    Some(true) | None => print(&format!("{name} is unlocked"), out),
                }
            }
            Self::List { server, output } => {
                let answer = server.get(&["people", "locks"], hint).json()?;
                print_items(&answer, *output, &TABLE, out)
            }
        }
    }
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        "permission_denied" => Some("it needs a row such as `p, role:security, people, lock, *, allow`"),
        "no_console" => Some("people are locked where they sign in: set `console.url` in the gateway's settings"),
        _ => None,
    }
}

const TABLE: Table = Table {
    columns: &["NAME", "LOCKED", "BY", "REASON"],
    row,
    empty_message: "Nobody is locked.",
};

fn row(item: &Value) -> Vec<String> {
    vec![
        text_at(item, "/name"),
        relative_time_at(item, "/lockedAt", |at, now: Timestamp| format!("{} ago", age(at, now))),
        text_at(item, "/lockedBy"),
        text_at(item, "/reason"),
    ]
}
