//! The options of commands that list what people have, and the lists that they fetch.

use clap::Args;
use serde_json::Value;

use super::api::{Hint, Server};
use super::failure::Failure;
use super::format::Format;

#[derive(Debug, Args)]
pub struct OwnerArgs {
    /// List items of this user, which requires permission
    #[arg(long, value_name = "USERNAME")]
    user: Option<String>,
    /// List items of all users, as far as you have permission
    #[arg(long, conflicts_with = "user")]
    all: bool,
}

impl OwnerArgs {
    pub(crate) fn parameter(&self) -> Option<String> {
        let all = self.all.then(|| "*".to_owned());
        all.or_else(|| self.user.clone())
    }
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    owner: OwnerArgs,
    /// List only items at this agent, by name or number
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    server: Server,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

impl ListArgs {
    /// Fetches every page of a list, as one response.
    pub(crate) fn fetch_all(&self, path: &str, hint: Hint) -> Result<Value, Failure> {
        let mut all = Vec::new();
        let mut next = None;
        loop {
            let query = [
                ("user", self.owner.parameter()),
                ("agent", self.agent.clone()),
                ("continue", next),
            ];
            let mut page = self.server.get(&[path], hint).query(query).json()?;
            if let Some(more) = page.get_mut("items").and_then(Value::as_array_mut) {
                all.append(more);
            }
            next = page.get("continue").and_then(Value::as_str).map(str::to_owned);
            if next.is_none() {
                return Ok(serde_json::json!({ "items": all }));
            }
        }
    }
}
