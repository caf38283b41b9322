//! `tollgate cluster connectors` and `revoke-key`: which connectors of a cluster are connected, by which keys they
//! are known, and the end of such a key.

use std::io::Write;

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use tollgate_client::api::Server;
use tollgate_client::failure::Failure;
use tollgate_client::format::{Format, print};
use tollgate_client::list_output::{Table, items, print_items, text_at};

#[derive(Args, Debug)]
pub(crate) struct Connectors {
    /// Cluster, by name or API server URL
    cluster: String,
    #[command(flatten)]
    server: Server,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Args, Debug)]
pub(crate) struct RevokeKey {
    /// Cluster, by name or API server URL
    cluster: String,
    /// The key, as `tollgate cluster connectors` shows it
    key: String,
    #[command(flatten)]
    server: Server,
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        "permission_denied" => Some("showing connectors needs `clusters, get`, revoking their keys `clusters, update`"),
        "not_found" => Some("a key that the cluster's Secret names is taken away there"),
        _ => None,
    }
}

impl Connectors {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let path = ["tollgate", "clusters", &self.cluster, "agents"];
        let answer = self.server.get(&path, hint).json()?;
        if self.output != Format::Table {
            return Ok(self.output.print(&answer, out)?);
        }
        let listed = |pointer: &str| json!({ "items": items(&answer, pointer) });
        print_items(&listed("/connections"), Format::Table, &CONNECTIONS, out)?;
        print("", out)?;
        print_items(&listed("/keys"), Format::Table, &KEYS, out)
    }
}

impl RevokeKey {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let path = ["tollgate", "clusters", &self.cluster, "agents", "keys", &self.key];
        self.server.request(Method::DELETE, &path, hint).send()?;
        print(&format!("Key `{}` is revoked.", self.key), out)
    }
}

const CONNECTIONS: Table = Table {
    columns: &[
        "ADDRESS",
        "VERSION",
        "SINCE",
        "LAST-SEEN",
        "STREAMS",
        "LATENCY",
        "RECEIVED",
        "SENT",
        "REPLICA",
    ],
    row: connection,
    empty_message: "No connector is connected.",
};

fn connection(item: &Value) -> Vec<String> {
    let number = |pointer: &str| {
        item.pointer(pointer)
            .map_or_else(|| "-".to_owned(), ToString::to_string)
    };
    let latency = item.pointer("/latencyMs").and_then(Value::as_f64);
    vec![
        text_at(item, "/address"),
        text_at(item, "/version"),
        text_at(item, "/connectedSince"),
        text_at(item, "/lastSeen"),
        number("/streams"),
        latency.map_or_else(|| "-".to_owned(), |latency| format!("{latency:.1} ms")),
        number("/receivedBytes"),
        number("/sentBytes"),
        text_at(item, "/replica"),
    ]
}

const KEYS: Table = Table {
    columns: &["KEY", "FROM", "JOINED", "STATE"],
    row: key,
    empty_message: "No key is known.",
};

fn key(item: &Value) -> Vec<String> {
    let time = |pointer: &str| item.pointer(pointer).and_then(Value::as_str);
    let state = match (time("/revokedAt"), time("/expiresAt")) {
        (Some(revoked), _) => format!("revoked at {revoked}"),
        (None, Some(end)) => format!("replaced, until {end}"),
        (None, None) => "good".to_owned(),
    };
    vec![
        text_at(item, "/key"),
        text_at(item, "/from"),
        text_at(item, "/joinedAt"),
        state,
    ]
}
