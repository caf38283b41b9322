//! `tollgate audit`: shows the gateway's audit log, oldest event first. With `--follow` an event is
//! printed once, and again only when its count has changed.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use tollgate_config::duration;

use super::api::Server;
use super::failure::Failure;
use super::format::{Format, print};
use super::list_args::OwnerArgs;
use super::list_output::{
    Table, agent_label, find_text, items, join_or_dash, print_items, render_items, text_at, whole_seconds,
};
use super::terminal;

/// Time between two polls with `--follow`.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Events of one poll with `--follow`; the most that the API returns.
const PAGE_SIZE: u32 = 1_000;

#[derive(Debug, Args)]
pub struct Audit {
    #[command(flatten)]
    owner: OwnerArgs,
    /// Show only events at this agent, by name or number
    #[arg(long)]
    agent: Option<String>,
    /// Show only events with this action, such as `token.created` or `access.denied`
    #[arg(long)]
    action: Option<String>,
    /// Show only what was done with this session, or to it, such as `login:ID`
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show only requests with this verb, such as `delete`
    #[arg(long)]
    verb: Option<String>,
    /// Show only requests for this resource: `secrets`, `pods/exec`, or `*/exec` for every resource
    #[arg(long)]
    resource: Option<String>,
    /// Show only requests in this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Show only requests for the object of this name; of reads, only those of Secrets have it
    #[arg(long)]
    name: Option<String>,
    /// Show only events since this time, or of this last while: `2026-01-31T08:00:00Z`, `90m`, `7d`
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Show only events before this time, or before this while: `2026-01-31T08:00:00Z`, `90m`, `7d`
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "follow")]
    until: Option<Timestamp>,
    /// Show only events older than the event with this ID
    #[arg(long, value_name = "ID", conflicts_with = "follow")]
    before: Option<Uuid>,
    /// Show at most this many events, the latest ones; 1 to 1000
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Keep running and print new events, polling every 2 seconds
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    server: Server,
    /// Output format; with --follow, `json` prints one line per event
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Audit {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        if self.follow {
            return self.poll(out);
        }
        let mut answer = self.fetch(self.limit)?;
        if let Some(items) = answer.get_mut("items").and_then(Value::as_array_mut) {
            items.reverse();
        }
        print_items(&answer, self.output, &TABLE, out)
    }

    /// Polls for events until an error, or until the reader of `out` is gone.
    fn poll(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut shown = HashMap::new();
        // The whole first page counts as shown, so that events beyond `--limit` do not appear
        // later as if they were new.
        let mut events = new_events(&self.fetch(PAGE_SIZE)?, &mut shown);
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        events.drain(..events.len().saturating_sub(limit));
        let mut has_header = false;
        loop {
            if !events.is_empty() {
                self.print_events(&events, !has_header, out)?;
                has_header = true;
                match out.flush() {
                    // The reader is gone.
                    Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                    flushed => flushed?,
                }
            }
            std::thread::sleep(POLL_INTERVAL);
            events = new_events(&self.fetch(PAGE_SIZE)?, &mut shown);
        }
    }

    fn print_events(&self, events: &[Value], is_first: bool, out: &mut dyn Write) -> Result<(), Failure> {
        match self.output {
            Format::Json => {
                for event in events {
                    print(&terminal::escape_json(event.to_string()), out)?;
                }
            }
            Format::Yaml => {
                for event in events {
                    let text = Format::Yaml.document(event)?;
                    print(&format!("---\n{}", text.trim_end()), out)?;
                }
            }
            Format::Table => {
                let text = render_items(events, &TABLE);
                let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
                print(if is_first { &text } else { rest }, out)?;
            }
        }
        Ok(())
    }

    fn fetch(&self, limit: u32) -> Result<Value, Failure> {
        let query = [
            ("user", self.owner.parameter()),
            ("agent", self.agent.clone()),
            ("action", self.action.clone()),
            ("session", self.session.clone()),
            ("verb", self.verb.clone()),
            ("resource", self.resource.clone()),
            ("namespace", self.namespace.clone()),
            ("name", self.name.clone()),
            ("since", self.since.map(|time| time.to_string())),
            ("until", self.until.map(|time| time.to_string())),
            ("before", self.before.map(|id| id.to_string())),
            ("limit", Some(limit.to_string())),
        ];
        self.server.get(&["audit"], hint).query(query).json()
    }
}

/// Reads a time, or how long ago it was.
fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago = duration::parse_with_days(text)
        .ok()
        .and_then(|ago| Timestamp::now().checked_sub(ago).ok());
    ago.ok_or_else(|| {
        "is neither a time such as `2026-01-31T08:00:00Z` nor a duration such as `90m` or `7d`".to_owned()
    })
}

/// Events that are not in `shown` with their current count, oldest first. Only the events of the
/// latest response are remembered: older ones do not reappear.
fn new_events(answer: &Value, shown: &mut HashMap<String, u64>) -> Vec<Value> {
    let items = items(answer, "/items");
    let mut latest = HashMap::with_capacity(items.len());
    let mut new_events = Vec::new();
    for event in items.iter().rev() {
        let id = text_at(event, "/id");
        let count = event.get("count").and_then(Value::as_u64).unwrap_or(1);
        if shown.get(&id) != Some(&count) {
            new_events.push(event.clone());
        }
        latest.insert(id, count);
    }
    *shown = latest;
    new_events
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        "permission_denied" => Some("events of others need `audit, get` on `<agent>/<user>`"),
        _ => None,
    }
}

const TABLE: Table = Table {
    columns: &["TIME", "ACTION", "USER", "AGENT", "COUNT", "WHAT", "SESSION"],
    row,
    empty_message: "No events found.",
};

fn row(item: &Value) -> Vec<String> {
    vec![
        whole_seconds(&text_at(item, "/lastAt")),
        text_at(item, "/action"),
        text_at(item, "/user"),
        agent_label(item),
        text_at(item, "/count"),
        event_summary(item),
        text_at(item, "/session"),
    ]
}

/// What a request was about, in the words of `kubectl auth can-i`, or why it
/// was refused.
fn event_summary(item: &Value) -> String {
    let detail = |key: &str| find_text(item, &format!("/details/{key}"));
    let resource = detail("resource").map(|resource| match detail("subresource") {
        Some(subresource) => format!("{resource}/{subresource}"),
        None => resource,
    });
    let namespace = detail("namespace").map(|namespace| format!("-n {namespace}"));
    let is_denial = |reason: &String| reason != "allowed";
    let reason = detail("reason").filter(is_denial).map(|reason| format!("({reason})"));
    let number = |key: &str| item.pointer(&format!("/details/{key}")).and_then(Value::as_u64);
    let lasted = number("duration_ms").map(|milliseconds| {
        let lasted = format!("{:?}", Duration::from_millis(milliseconds));
        match (number("bytes_from_client"), number("bytes_from_cluster")) {
            (Some(up), Some(down)) => format!("for {lasted}, {up} bytes up, {down} down"),
            _ => format!("for {lasted}"),
        }
    });
    let parts = [
        detail("verb"),
        resource.or_else(|| detail("path")),
        detail("name"),
        namespace,
        lasted,
        reason,
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    join_or_dash(&parts, " ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::{event_summary, new_events};

    #[test]
    fn an_event_is_printed_once_per_count() {
        let mut shown = HashMap::new();
        let ids = |events: Vec<serde_json::Value>| -> Vec<String> {
            events
                .iter()
                .map(|event| event["id"].as_str().unwrap().to_owned())
                .collect()
        };
        let first = json!({"items": [{"id": "b", "count": 1}, {"id": "a", "count": 1}]});
        assert_eq!(ids(new_events(&first, &mut shown)), ["a", "b"]);
        assert!(new_events(&first, &mut shown).is_empty());
        let second = json!({"items": [{"id": "c", "count": 1}, {"id": "b", "count": 2}, {"id": "a", "count": 1}]});
        assert_eq!(ids(new_events(&second, &mut shown)), ["b", "c"]);
    }

    #[test]
    fn an_event_summary_reads_like_a_kubectl_command() {
        let details =
            json!({"verb": "create", "resource": "pods", "subresource": "exec", "namespace": "n", "name": "p"});
        assert_eq!(event_summary(&json!({"details": details})), "create pods/exec p -n n");
        let ended = json!({
            "verb": "create", "resource": "pods", "subresource": "exec", "namespace": "n", "name": "p",
            "duration_ms": 61_500, "bytes_from_client": 12, "bytes_from_cluster": 3_000,
        });
        assert_eq!(
            event_summary(&json!({"details": ended})),
            "create pods/exec p -n n for 61.5s, 12 bytes up, 3000 down"
        );
        let details = json!({"verb": "get", "path": "/version", "reason": "no"});
        assert_eq!(event_summary(&json!({"details": details})), "get /version (no)");
        let details = json!({"verb": "get", "path": "/version", "reason": "allowed"});
        assert_eq!(event_summary(&json!({"details": details})), "get /version");
        assert_eq!(event_summary(&json!({})), "-");
    }
}
