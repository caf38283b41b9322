//! `tollgate token`: manages personal access tokens for the Kubernetes front.
//!
//! Security: the only secret that is printed is that of a token just made.

use std::io::Write;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::age::{age, time_left};
use super::client::{ApiRequest, Failure, Server, print, runtime};
use super::format::Format;
use super::list_output::{OwnerArgs, Table, agent, all, lines, show, text, time};
use tollgate_gateway::clusters::exec::erase;

/// Commands about personal access tokens.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a token; its secret is shown this once.
    Create(Create),
    /// List tokens, without their secrets.
    List(List),
    /// End tokens at once, with everything they have open.
    Revoke(Revoke),
}

/// Makes a token.
#[derive(Debug, Args)]
pub struct Create {
    /// What you call it.
    name: String,
    /// The one agent it is for, by name or number.
    #[arg(long)]
    agent: String,
    /// How long it lives, such as `720h`; 30 days when left out.
    #[arg(long, value_name = "DURATION", conflicts_with = "expires_at")]
    lifetime: Option<String>,
    /// When it ends, such as `2030-01-31T00:00:00Z`.
    #[arg(long, value_name = "TIME")]
    expires_at: Option<Timestamp>,
    /// For somebody else; needs `tokens, create` for them.
    #[arg(long, value_name = "USERNAME")]
    user: Option<String>,
    #[command(flatten)]
    server: Server,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: TokenFormat,
}

/// How a new token is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum TokenFormat {
    /// Text for people
    #[default]
    Table,
    /// The bearer token alone
    Bearer,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

/// Lists tokens.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    owner: OwnerArgs,
    /// For this agent, by name or number.
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    server: Server,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Ends tokens.
#[derive(Debug, Args)]
pub struct Revoke {
    /// Ids, as `tollgate token list` shows them.
    #[arg(required = true)]
    ids: Vec<Uuid>,
    #[command(flatten)]
    server: Server,
}

impl Command {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Create(create) => create.run(out),
            Self::List(list) => list.run(out),
            Self::Revoke(revoke) => revoke.run(out),
        }
    }
}

impl Create {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let wanted = CreateTokenRequest {
            name: &self.name,
            agent: &self.agent,
            lifetime: self.lifetime.as_deref(),
            expires_at: self.expires_at,
            user: self.user.as_deref(),
        };
        let mut made = runtime()?.block_on(create(&self.server, &wanted))?;
        let printed = match self.output {
            TokenFormat::Bearer => print(bearer(&made)?, out),
            TokenFormat::Json => document(Format::Json, &made, out),
            TokenFormat::Yaml => document(Format::Yaml, &made, out),
            TokenFormat::Table => bearer(&made).and_then(|bearer| {
                let token = made.get("token").cloned().unwrap_or_default();
                let text = lines(&[token], &table());
                print(&format!("{text}\n\nBearer token, shown only now:\n{bearer}"), out)
            }),
        };
        erase(&mut made);
        printed
    }
}

fn document(format: Format, made: &Value, out: &mut dyn Write) -> Result<(), Failure> {
    format
        .print(made, out)
        .map_err(|error| Failure::new("host.output", error))
}

/// A token that is asked for.
pub(super) struct CreateTokenRequest<'a> {
    pub(super) name: &'a str,
    pub(super) agent: &'a str,
    pub(super) lifetime: Option<&'a str>,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) user: Option<&'a str>,
}

/// Has a token made; the answer has its secret.
pub(super) async fn create(server: &Server, wanted: &CreateTokenRequest<'_>) -> Result<Value, Failure> {
    let mut content = json!({ "name": wanted.name, "agent": wanted.agent });
    let optional = [
        ("lifetime", wanted.lifetime.map(str::to_owned)),
        ("expiresAt", wanted.expires_at.map(|at| at.to_string())),
        ("user", wanted.user.map(str::to_owned)),
    ];
    if let Some(members) = content.as_object_mut() {
        let given = optional.into_iter().filter_map(|(key, value)| Some((key, value?)));
        members.extend(given.map(|(key, value)| (key.to_owned(), Value::String(value))));
    }
    let ask = ApiRequest {
        method: Method::POST,
        content: Some(content),
        ..ApiRequest::get(&["tokens"], hint)
    };
    server.json(ask).await
}

/// What goes behind `Authorization: Bearer`.
pub(super) fn bearer(made: &Value) -> Result<&str, Failure> {
    let bearer = made.get("bearer").and_then(Value::as_str);
    bearer.ok_or_else(|| Failure::new("gateway.answer", "the answer has no token"))
}

impl List {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let query = [("user", self.owner.parameter()), ("agent", self.agent.clone())];
        let answer = runtime()?.block_on(all(&self.server, "tokens", query, hint))?;
        show(&answer, self.output, &table(), out)
    }
}

/// Ends a token at once.
pub(super) async fn revoke(server: &Server, id: Uuid) -> Result<(), Failure> {
    let id = id.to_string();
    let path = ["tokens", id.as_str()];
    let ask = ApiRequest {
        method: Method::DELETE,
        ..ApiRequest::get(&path, hint)
    };
    server.json(ask).await.map(drop)
}

impl Revoke {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let runtime = runtime()?;
        for id in &self.ids {
            runtime.block_on(revoke(&self.server, *id))?;
            print(&format!("token {id} revoked"), out)?;
        }
        Ok(())
    }
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        "agent_not_found" => Some("`tollgate agent list` shows those that are"),
        "permission_denied" => Some("tokens of others need `tokens` rights on `<agent>/<user>`"),
        "token_not_found" => Some("`tollgate token list` shows ids"),
        _ => None,
    }
}

fn table() -> Table<'static> {
    Table {
        columns: &["NAME", "ID", "AGENT", "USER", "AGE", "EXPIRES", "LAST-USED", "STATE"],
        row: &row,
        empty_message: "No tokens found.",
    }
}

fn row(item: &Value) -> Vec<String> {
    let now = Timestamp::now();
    let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        text(item, "/name"),
        text(item, "/id"),
        agent(item),
        text(item, "/user/username"),
        or(time(item, "/createdAt").map(|at| age(at, now))),
        or(time(item, "/expiresAt").map(|at| time_left(at, now))),
        time(item, "/lastUsedAt").map_or_else(|| "never".to_owned(), |at| age(at, now)),
        text(item, "/state"),
    ]
}
