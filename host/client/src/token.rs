//! `tollgate token`: manages personal access tokens for the Kubernetes front.
//!
//! Security: only the secret of a new token is printed.

use std::io::Write;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use reqwest::Method;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::age::{age, time_left};
use super::api::Server;
use super::failure::Failure;
use super::format::{Format, print};
use super::list_args::ListArgs;
use super::list_output::{Table, agent_label, print_items, relative_time_at, render_items, text_at, time_at};
use tollgate_config::duration;
use tollgate_credential::exec::erase;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a token and print its secret
    ///
    /// The secret is shown only once: the gateway stores only its hash.
    #[command(after_help = "Example:\n  tollgate token create laptop --agent production --lifetime 30d")]
    Create(Create),
    /// List tokens, without their secrets
    List(ListArgs),
    /// Revoke tokens and end the requests they have open
    Revoke {
        /// IDs of the tokens, as `tollgate token list` shows them
        #[arg(required = true)]
        ids: Vec<Uuid>,
        #[command(flatten)]
        server: Server,
    },
}

#[derive(Debug, Args)]
pub struct Create {
    #[command(flatten)]
    token: NewToken,
    #[command(flatten)]
    server: Server,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: TokenFormat,
}

/// The request for a token.
#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewToken {
    /// Name of the token, 1 to 255 characters
    pub(crate) name: String,
    /// Agent that the token is for, by name or number
    #[arg(long)]
    pub(crate) agent: String,
    /// Lifetime of the token, such as `8h` or `30d`, at most a year; 30 days if omitted
    #[arg(long, value_name = "DURATION", conflicts_with = "expires_at", value_parser = lifetime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lifetime: Option<String>,
    /// Time at which the token expires, such as `2030-01-31T00:00:00Z`
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Timestamp>,
    /// Create the token for this user, which requires the permission `tokens, create`
    #[arg(long, value_name = "USERNAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
}

fn lifetime(text: &str) -> Result<String, duration::Error> {
    duration::parse_with_days(text).map(|_| text.to_owned())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum TokenFormat {
    /// Human-readable text
    #[default]
    Table,
    /// Only the bearer token
    Bearer,
    /// JSON document
    Json,
    /// YAML document
    Yaml,
}

impl Command {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Create(create) => create.run(out),
            Self::List(args) => print_items(&args.fetch_all("tokens", hint)?, args.output, &TABLE, out),
            Self::Revoke { ids, server } => ids.iter().try_for_each(|id| {
                revoke(server, *id)?;
                print(&format!("token {id} revoked"), out)
            }),
        }
    }
}

impl Create {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut made = create(&self.server, &self.token)?;
        let printed = match self.output {
            TokenFormat::Bearer => print(bearer(&made)?, out),
            TokenFormat::Json => Format::Json.print(&made, out).map_err(Failure::from),
            TokenFormat::Yaml => Format::Yaml.print(&made, out).map_err(Failure::from),
            TokenFormat::Table => bearer(&made).and_then(|bearer| {
                let token = made.get("token").cloned().unwrap_or_default();
                let text = render_items(&[token], &TABLE);
                print(&format!("{text}\n\nBearer token, shown only now:\n{bearer}"), out)
            }),
        };
        erase(&mut made);
        printed
    }
}

/// Creates a token; the response has its secret.
pub(crate) fn create(server: &Server, token: &NewToken) -> Result<Value, Failure> {
    server
        .request(Method::POST, &["tokens"], hint)
        .content(json!(token))
        .json()
}

/// The bearer token in the response to a [`NewToken`].
pub(crate) fn bearer(made: &Value) -> Result<&str, Failure> {
    let bearer = made.get("bearer").and_then(Value::as_str);
    bearer.ok_or_else(|| Failure::new("gateway.answer", "the response contains no token"))
}

pub(crate) fn revoke(server: &Server, id: Uuid) -> Result<(), Failure> {
    let id = id.to_string();
    server.request(Method::DELETE, &["tokens", &id], hint).json().map(drop)
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        "agent_not_found" => Some("`tollgate agent list` shows those that are"),
        "permission_denied" => Some("tokens of others need `tokens` rights on `<agent>/<user>`"),
        "token_not_found" => Some("`tollgate token list` shows ids"),
        _ => None,
    }
}

const TABLE: Table = Table {
    columns: &["NAME", "ID", "AGENT", "USER", "AGE", "EXPIRES", "LAST-USED", "STATE"],
    row,
    empty_message: "No tokens found.",
};

fn row(item: &Value) -> Vec<String> {
    vec![
        text_at(item, "/name"),
        text_at(item, "/id"),
        agent_label(item),
        text_at(item, "/user/username"),
        relative_time_at(item, "/createdAt", age),
        relative_time_at(item, "/expiresAt", time_left),
        time_at(item, "/lastUsedAt").map_or_else(|| "never".to_owned(), |at| age(at, Timestamp::now())),
        text_at(item, "/state"),
    ]
}
