//! `tollgate decisions`: shows the latest decisions of a running gateway. It queries the
//! admin listener and reads none of the gateway's files.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use clap::Args;
use serde_json::Value;

use super::answer::SettingsArgs;
use super::client::{Failure, runtime, unreachable};
use super::format::Format;
use super::list_output::{render, text_at, whole_seconds};
use super::terminal;
use tollgate_config::raw;

/// The default of `admin.listen`.
const DEFAULT_ADMIN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8081));

#[derive(Debug, Args)]
pub(crate) struct Decisions {
    /// ID of a decision to show, from the response header `Tollgate-Decision-Id`; if omitted, the latest
    id: Option<uuid::Uuid>,
    /// URL of the gateway's admin listener; if omitted, `admin.listen` of the settings
    #[arg(long, env = "TOLLGATE_ADMIN")]
    admin: Option<String>,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Show at most this many decisions, up to 1000
    #[arg(long, default_value_t = 20)]
    most: usize,
    /// Show only decisions about the user with this ID or name
    #[arg(long)]
    user: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Decisions {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let records = runtime()?.block_on(self.fetch())?;
        let head = [
            "TIME",
            "OUTCOME",
            "STATUS",
            "USER",
            "EXTENSION",
            "REASON",
            "DECISION",
            "ROW",
        ];
        let table = |records: &Vec<Value>| render(&head, records.iter().map(row));
        Ok(self.output.show(&records, table, out)?)
    }

    /// Where this machine reaches the admin listener.
    fn admin_url(&self) -> String {
        if let Some(url) = &self.admin {
            return url.clone();
        }
        let config = raw::load(&self.settings.config).value;
        let mut address = config.map_or(DEFAULT_ADMIN, |config| config.admin_listen);
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        format!("http://{address}")
    }

    async fn fetch(&self) -> Result<Vec<Value>, Failure> {
        let base = self.admin_url();
        let base = base.trim_end_matches('/');
        let client = reqwest::Client::new();
        let request = match self.id {
            Some(id) => client.get(format!("{base}/decisions/{id}")),
            None => {
                let mut url = url::Url::parse(&format!("{base}/decisions"))
                    .map_err(|error| Failure::new("gateway.url", format_args!("`{base}`: {error}")))?;
                url.query_pairs_mut().append_pair("most", &self.most.to_string());
                if let Some(user) = &self.user {
                    url.query_pairs_mut().append_pair("user", user);
                }
                client.get(url)
            }
        };
        let answer = request.send().await.map_err(|error| {
            let server = format!("the admin listener at `{base}`");
            unreachable(&server, &error, "--admin", None)
        })?;
        let broken = |error: &dyn std::error::Error| Failure::new("gateway.answer", error);
        let status = answer.status();
        let text = answer.text().await.map_err(|error| broken(&error))?;
        if !status.is_success() {
            let message = format!("the admin listener at `{base}` says {status}: {}", text.trim());
            return Err(Failure::new("gateway.refused", message));
        }
        match serde_json::from_str(&text).map_err(|error| broken(&error))? {
            Value::Array(records) => Ok(records),
            record => Ok(vec![record]),
        }
    }
}

fn row(record: &Value) -> [String; 8] {
    let text = |pointer: &str| terminal::escape_line(&text_at(record, pointer)).into_owned();
    // The last check decided; it has no rule if no row matched.
    let checks = record.get("checks").and_then(Value::as_array);
    let rule = checks.and_then(|checks| checks.last()?.get("rule")?.as_str());
    [
        whole_seconds(&text("/timestamp")),
        text("/outcome"),
        text("/status"),
        text("/principal/username"),
        text("/extension"),
        match text("/detail") {
            detail if detail == "-" => text("/reason"),
            detail => detail,
        },
        text("/decision_id"),
        terminal::escape_line(rule.unwrap_or("-")).into_owned(),
    ]
}
