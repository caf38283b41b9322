//! Reads what mode audit of the control plane's front let pass, from decision records, and counts it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use tollgate_client::api::unreachable;
use tollgate_client::failure::Failure;

/// The front whose records count.
const FRONT: &str = "control-plane";

/// Most records that the admin listener gives.
const MOST: &str = "1000";

/// Most bytes of a line of the file: records are far smaller.
const LINE_BYTES: u64 = 1 << 20;

/// The parts of a decision record that count.
#[derive(Debug, Deserialize)]
struct Record {
    #[serde(default)]
    front: String,
    #[serde(default)]
    timestamp: String,
    /// `NAMESPACE:NAME`.
    application: Option<String>,
    project: Option<String>,
    destination: Option<Destination>,
    #[serde(default)]
    notes: Notes,
}

#[derive(Debug, Deserialize)]
struct Destination {
    server: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Notes {
    would_refuse_reason: Option<String>,
    would_refuse: Option<String>,
}

/// Writes that mode enforce would refuse: those of one Application for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct WouldRefuse {
    /// URL of the cluster's API server.
    #[serde(skip)]
    pub(super) server: String,
    /// The Application that the object belongs to, as `NAMESPACE/NAME`, if that is known.
    pub(super) application: Option<String>,
    pub(super) project: Option<String>,
    pub(super) reason: String,
    pub(super) count: usize,
    /// When the last of them was.
    pub(super) last: String,
    /// What the last of them would have been told.
    pub(super) message: String,
}

/// Everything that was recorded, most frequent first; `None` if no source is named.
///
/// - `admin`: URL of the admin listener.
pub(super) async fn read(admin: Option<&str>, file: Option<&Path>) -> Result<Option<Vec<WouldRefuse>>, Failure> {
    let records = match (admin, file) {
        (Some(admin), _) => fetch(admin).await?,
        (None, Some(file)) => read_file(file)?,
        (None, None) => return Ok(None),
    };
    Ok(Some(count(records)))
}

async fn fetch(admin: &str) -> Result<Vec<Record>, Failure> {
    let base = admin.trim_end_matches('/');
    let mut url = url::Url::parse(&format!("{base}/decisions"))
        .map_err(|error| Failure::new("gateway.url", format_args!("`{base}`: {error}")))?;
    url.query_pairs_mut()
        .extend_pairs([("most", MOST), ("would_refuse", "true")]);
    let server = format!("the admin listener at `{base}`");
    let lost = |error| unreachable(&server, &error, "--admin", None);
    let answer = reqwest::Client::new().get(url).send().await.map_err(lost)?;
    let status = answer.status();
    if !status.is_success() {
        let message = format!("{server} says {status}");
        return Err(Failure::new("gateway.refused", message).with_hint("is it of this version of Tollgate?"));
    }
    let broken = |error: reqwest::Error| Failure::new("gateway.answer", format_args!("{server}: {error}"));
    answer.json().await.map_err(broken)
}

fn read_file(path: &Path) -> Result<Vec<Record>, Failure> {
    let shown = path.display();
    let unreadable = |error| {
        let failure = Failure::new("migrate.decisions", format_args!("`{shown}` cannot be read: {error}"));
        failure.with_hint("name the file of `decisions.file` with `--decisions`")
    };
    let mut reader = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut records = Vec::new();
    for number in 1_usize.. {
        let mut line = Vec::new();
        let read = reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line);
        read.map_err(unreadable)?;
        // A gateway that runs may be writing the last line.
        if line.last() != Some(&b'\n') && (line.len() as u64) < LINE_BYTES {
            break;
        }
        let record: Record = serde_json::from_slice(&line).map_err(|_| {
            let message = format!("`{shown}`, line {number}: this is no decision record");
            Failure::new("migrate.decisions", message).with_hint("name the file of `decisions.file`")
        })?;
        if record.notes.would_refuse_reason.is_some() {
            records.push(record);
        }
    }
    Ok(records)
}

/// The records of the front, by cluster, Application and reason.
fn count(records: Vec<Record>) -> Vec<WouldRefuse> {
    let mut counted: BTreeMap<(String, Option<String>, String), WouldRefuse> = BTreeMap::new();
    for record in records.into_iter().filter(|record| record.front == FRONT) {
        let (Some(reason), Some(destination)) = (record.notes.would_refuse_reason, record.destination) else {
            continue;
        };
        let application = record.application.map(|name| name.replacen(':', "/", 1));
        let key = (destination.server, application, reason);
        let entry = counted.entry(key.clone()).or_insert_with(|| WouldRefuse {
            server: key.0,
            application: key.1,
            project: record.project,
            reason: key.2,
            count: 0,
            last: String::new(),
            message: String::new(),
        });
        entry.count = entry.count.saturating_add(1);
        if record.timestamp >= entry.last {
            entry.last = record.timestamp;
            entry.message = record.notes.would_refuse.unwrap_or_default();
        }
    }
    let mut all: Vec<WouldRefuse> = counted.into_values().collect();
    all.sort_by_key(|entry| std::cmp::Reverse(entry.count));
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::read;

    fn record(change: impl FnOnce(&mut Value)) -> Value {
        let mut record = json!({
            "decision_id": "1", "front": "control-plane", "timestamp": "2026-01-01T00:00:01Z",
            "application": "argocd:cart", "project": "shop",
            "destination": {"name": "prod", "server": "https://prod"},
            "notes": {"would_refuse_reason": "project_refused", "would_refuse": "no"},
        });
        change(&mut record);
        record
    }

    fn file(lines: &[String]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.concat()).unwrap();
        file
    }

    #[tokio::test]
    async fn what_would_be_refused_is_counted_by_application_and_reason() {
        let line = |record: Value| format!("{record}\n");
        let lines = [
            line(record(|_| {})),
            line(record(|record| {
                record["timestamp"] = json!("2026-01-02T00:00:00Z");
                record["notes"]["would_refuse"] = json!("later");
            })),
            line(record(|record| record["application"] = Value::Null)),
            line(record(|record| {
                record["notes"]["would_refuse_reason"] = json!("object_unknown")
            })),
            // Of another front, passed, or of no request.
            line(record(|record| record["front"] = json!("applications"))),
            line(record(|record| record["notes"] = json!({}))),
            line(json!({"decision_id": "1", "ended": {"at": "2026-01-01T00:00:02Z", "reason": "client"}})),
            // Not written to its end.
            "{\"front\": \"contr".to_owned(),
        ];
        let found = read(None, Some(file(&lines).path())).await.unwrap().unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|entry| {
                let name = entry.application.as_deref();
                (name, entry.reason.as_str(), entry.count, entry.message.as_str())
            })
            .collect();
        assert_eq!(
            shown,
            [
                (Some("argocd/cart"), "project_refused", 2, "later"),
                (None, "project_refused", 1, "no"),
                (Some("argocd/cart"), "object_unknown", 1, "no"),
            ]
        );
        assert_eq!(read(None, None).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_file_of_other_lines_is_refused() {
        let refused = read(None, Some(file(&["{}\n".to_owned(), "secret\n".to_owned()]).path())).await;
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("line 2: this is no decision record"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        let missing = read(None, Some("/nowhere/decisions.jsonl".as_ref())).await;
        let text = missing.unwrap_err().to_string();
        assert!(text.starts_with("migrate.decisions: "), "{text}");
    }
}
