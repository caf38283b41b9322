//! Exports audit events, in the form of OCSF, to a file or to a server that takes lines over HTTP.
//!
//! One process of those that share the store exports for all of them. An event is sent once it is no
//! longer counted; one that the receiver did not take is sent again until it does, however long that
//! takes. An event whose content the receiver refuses while it takes another one is set aside: it
//! stays in the store for as long as every event does, and is counted.
//!
//! Invariant: an event that was sent twice has the same `metadata.uid`.
//!
//! Security: the token of the receiver is read for each request and is in no error.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::CONTENT_TYPE;
use jiff::Timestamp;
use reqwest::Client;
use uuid::Uuid;

use crate::clock::Clock;
use crate::http_client::{self, Authority, Versions};
use crate::metrics::Metrics;
use tollgate_config::AuditExport;
use tollgate_core::agent::AgentId;
use tollgate_core::diagnostic::with_causes;
use tollgate_runtime::followed::AuthorityFile;
use tollgate_store::{self as store, AuditEvent, Store};

mod ocsf;

/// Pause between two looks for events.
const INTERVAL: Duration = Duration::from_secs(1);

/// Longest pause after a failure. Pauses double up to it.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How long a process keeps the export for itself; longer than a batch may take.
const LEASE: Duration = Duration::from_secs(90);

/// Most bytes of one batch, unless one event has more. Receivers often refuse a megabyte.
const BATCH_BYTES: usize = 256 * 1024;

/// How many batches a receiver must take before larger ones are tried again.
const GROW_AFTER: u32 = 256;

/// How often one event is sent alone before the next ones are tried in its place.
const ATTEMPTS: u32 = 5;

/// How many of the next events are tried.
const TRIED: usize = 8;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between two counts of the events that wait, of which there may be millions.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);

/// How much later than its bucket's end the last count of an event is written.
const LATE: Duration = Duration::from_secs(5);

/// Why events were not exported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be written.
    #[error("`{}` cannot be written: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file of the token cannot be read, or has none.
    #[error("the token's file `{}` {why}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The authorities of the receiver cannot be used.
    #[error("{0}")]
    Authorities(String),
    /// The receiver did not answer.
    #[error("no answer from the receiver: {0}")]
    Request(String),
    /// The receiver answered that it did not take them.
    #[error("the receiver answered {0}")]
    Refused(StatusCode),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// The name of an agent, if it still exists.
pub type AgentName = Box<dyn Fn(AgentId) -> Option<String> + Send + Sync>;

/// Exports the audit events of a store.
#[derive(derive_more::Debug)]
#[debug("Exporter {{ receiver: {receiver:?}, .. }}")]
pub struct Exporter {
    receiver: Receiver,
    store: Arc<Store>,
    clock: Clock,
    metrics: Arc<Metrics>,
    /// Identifies this process among those that share the store.
    process: Uuid,
    /// How long after an event first happened it may still be counted.
    settles_after: Duration,
    agent_name: AgentName,
    /// Uptime at the latest count of the events that wait.
    counted_at: Option<Duration>,
    /// Most bytes of the next batch: fewer after the receiver refused one as too large.
    batch_bytes: usize,
    /// Most events of the next batch: fewer while the receiver refuses the content of one of them.
    batch_events: usize,
    /// How many batches the receiver took since it refused one.
    taken: u32,
    /// How often it refused the first event alone.
    refusals: u32,
    /// Whether a smaller batch is to be sent at once.
    retries_smaller: bool,
}

impl Exporter {
    /// Lets events wait for the export from now on; [`Exporter::run`] exports them.
    ///
    /// - `bucket`: how long reads are counted in one event.
    ///
    /// # Errors
    /// The receiver's settings name a file that cannot be used.
    pub fn new(
        settings: &AuditExport,
        store: Arc<Store>,
        clock: Clock,
        bucket: Duration,
        metrics: Arc<Metrics>,
        agent_name: AgentName,
    ) -> Result<Self, Error> {
        let receiver = Receiver::new(settings)?;
        // After the settings were read, so that no event waits for an export that cannot begin.
        store.export_audit_events();
        Ok(Self {
            receiver,
            store,
            clock,
            metrics,
            process: Uuid::now_v7(),
            settles_after: bucket.saturating_add(LATE),
            agent_name,
            counted_at: None,
            batch_bytes: BATCH_BYTES,
            batch_events: usize::MAX,
            taken: 0,
            refusals: 0,
            retries_smaller: false,
        })
    }

    /// Exports events until it is dropped.
    pub async fn run(mut self) {
        let mut pause = INTERVAL;
        let mut has_failed = false;
        loop {
            match self.export_batch().await {
                Ok(exported) => {
                    if has_failed {
                        tracing::info!("audit events are exported again");
                    }
                    (has_failed, pause) = (false, INTERVAL);
                    if exported > 0 {
                        continue;
                    }
                }
                Err(_) if std::mem::take(&mut self.retries_smaller) => continue,
                Err(error) => {
                    self.metrics.audit_export_failures.inc();
                    if !has_failed {
                        tracing::error!(%error, "audit events cannot be exported; trying again until it works");
                    }
                    has_failed = true;
                    pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
                }
            }
            self.clock.sleep(pause).await;
        }
    }

    /// Exports the events that wait, at most one batch of them. Returns how many it exported.
    async fn export_batch(&mut self) -> Result<usize, Error> {
        let now = self.clock.now();
        if !self.store.take_export_lease(self.process, now, LEASE).await? {
            // The process that has it says how many wait.
            self.metrics.audit_unexported.set(0);
            self.counted_at = None;
            return Ok(0);
        }
        let uptime = self.clock.uptime();
        if self
            .counted_at
            .is_none_or(|at| uptime.saturating_sub(at) >= COUNT_INTERVAL)
        {
            // The export goes on without the number.
            if let Ok(waiting) = self.store.unexported_count().await {
                let waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
                self.metrics.audit_unexported.set(waiting);
            }
            self.counted_at = Some(uptime);
        }
        let settled = now.checked_sub(self.settles_after).unwrap_or(Timestamp::MIN);
        let mut events = self.store.unexported(settled).await?;
        if events.is_empty() {
            return Ok(0);
        }
        let (lines, count) = self.lines(&events);
        match self.receiver.send(lines).await {
            Ok(()) => self.grow(),
            Err(Error::Refused(status)) if is_about_content(status) => {
                return self.refused(&events, count, status).await;
            }
            Err(error) => return Err(error),
        }
        events.truncate(count);
        self.finish(&events, 0).await
    }

    /// Notes that events were exported, of which the first few were set aside instead. Returns how many
    /// events these are.
    async fn finish(&self, events: &[AuditEvent], set_aside: usize) -> Result<usize, Error> {
        self.store.mark_exported(events).await?;
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let exported = events.len().saturating_sub(set_aside);
        self.metrics.audit_exported.inc_by(number(exported));
        self.metrics.audit_set_aside.inc_by(number(set_aside));
        let left = &self.metrics.audit_unexported;
        // An estimate until the next count: new events wait meanwhile.
        left.set(left.get().saturating_sub_unsigned(number(events.len())).max(0));
        Ok(events.len())
    }

    /// Lets batches grow again once the receiver has taken many.
    fn grow(&mut self) {
        self.refusals = 0;
        self.taken = self.taken.saturating_add(1);
        if self.taken >= GROW_AFTER {
            self.taken = 0;
            self.batch_bytes = self.batch_bytes.saturating_mul(2).min(BATCH_BYTES);
            self.batch_events = self.batch_events.saturating_mul(2);
        }
    }

    /// Makes the next batch smaller after the receiver refused the content of the first `count` events.
    /// Sets one event aside that is refused alone, and refused again, while the receiver takes a later
    /// one: it is the event, and not the receiver, that is in the way.
    async fn refused(&mut self, events: &[AuditEvent], count: usize, status: StatusCode) -> Result<usize, Error> {
        self.taken = 0;
        if count > 1 {
            self.retries_smaller = true;
            match status {
                StatusCode::PAYLOAD_TOO_LARGE => self.batch_bytes /= 2,
                // Halves end at the one event that the receiver refuses.
                _ => self.batch_events = count / 2,
            }
            return Err(Error::Refused(status));
        }
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals < ATTEMPTS {
            return Err(Error::Refused(status));
        }
        for (index, event) in events.iter().enumerate().skip(1).take(TRIED) {
            let (line, _) = self.lines(std::slice::from_ref(event));
            match self.receiver.send(line).await {
                Ok(()) => {
                    let refused = events.get(..index).unwrap_or_default();
                    for event in refused {
                        tracing::error!(
                            event = %event.id, action = %event.action, %status,
                            "an audit event was set aside: the receiver refuses it, and takes later ones"
                        );
                    }
                    (self.refusals, self.batch_events, self.batch_bytes) = (0, usize::MAX, BATCH_BYTES);
                    return self.finish(events.get(..=index).unwrap_or_default(), index).await;
                }
                Err(Error::Refused(status)) if is_about_content(status) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Refused(status))
    }

    /// One line of JSON for each of the first events, as many as a batch may have but at least one; and
    /// how many they are.
    fn lines(&self, events: &[AuditEvent]) -> (Vec<u8>, usize) {
        let (mut lines, mut count) = (Vec::new(), 0);
        for event in events {
            let (agent, before) = (event.agent_id.and_then(&self.agent_name), lines.len());
            // Writing JSON to memory cannot fail.
            let _written = serde_json::to_writer(&mut lines, &ocsf::event(event, agent.as_deref()));
            lines.push(b'\n');
            if count > 0 && (lines.len() > self.batch_bytes || count >= self.batch_events) {
                lines.truncate(before);
                break;
            }
            count += 1;
        }
        (lines, count)
    }
}

/// Whether a receiver refuses what it was sent, and would refuse it again.
fn is_about_content(status: StatusCode) -> bool {
    // Others, such as 401, 404 and 429, are about the receiver. It may take the same events later.
    let about_content = [
        StatusCode::BAD_REQUEST,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::UNPROCESSABLE_ENTITY,
    ];
    about_content.contains(&status)
}

/// Checks what the settings name, as [`Exporter::new`] and the first batch would. Sends nothing.
///
/// # Errors
/// A file cannot be used.
pub fn check(settings: &AuditExport) -> Result<(), Error> {
    match Receiver::new(settings)? {
        Receiver::File(path) => append(&path, b""),
        Receiver::Webhook { token, .. } => token.as_deref().map_or(Ok(()), |path| read_token(path).map(drop)),
    }
}

#[derive(derive_more::Debug)]
enum Receiver {
    #[debug("File({})", _0.display())]
    File(PathBuf),
    // A URL may have a secret in its path.
    #[debug("Webhook({})", url.origin().ascii_serialization())]
    Webhook {
        client: Client,
        url: url::Url,
        /// File of the bearer token.
        token: Option<PathBuf>,
    },
}

impl Receiver {
    fn new(settings: &AuditExport) -> Result<Self, Error> {
        match settings {
            // A pipe cannot be synced, so nothing would ever count as exported.
            AuditExport::File(path) if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) => {
                Err(Error::File {
                    path: path.clone(),
                    error: std::io::Error::other("it is no regular file"),
                })
            }
            AuditExport::File(path) => Ok(Self::File(path.clone())),
            AuditExport::Webhook { url, token, ca } => {
                let file = ca
                    .as_deref()
                    .map(|path| AuthorityFile::open("kubernetes.audit.export.webhook.ca", path));
                let file = file.transpose().map_err(Error::Authorities)?;
                let authority = file.map(Authority::File);
                let builder = http_client::builder(authority.as_ref(), Versions::Any, REQUEST_TIMEOUT);
                let client = builder.and_then(|builder| builder.build().map_err(|error| with_causes(&error)));
                let client = client.map_err(|why| Error::Authorities(format!("the system's authorities: {why}")))?;
                Ok(Self::Webhook {
                    client,
                    url: url.clone(),
                    token: token.clone(),
                })
            }
        }
    }

    /// Returns once the receiver has the lines: they are on disk, or it answered 2xx.
    async fn send(&self, lines: Vec<u8>) -> Result<(), Error> {
        match self {
            Self::File(path) => {
                // A serving thread must not wait for the disk.
                let written = {
                    let path = path.clone();
                    tokio::task::spawn_blocking(move || append(&path, &lines))
                };
                written.await.unwrap_or_else(|error| {
                    Err(Error::File {
                        path: path.clone(),
                        error: std::io::Error::other(error),
                    })
                })
            }
            Self::Webhook { client, url, token } => {
                let mut request = client.post(url.clone()).header(CONTENT_TYPE, "application/x-ndjson");
                if let Some(path) = token {
                    request = request.bearer_auth(read_token(path)?);
                }
                let answer = request.body(lines).send().await;
                let answer = answer.map_err(|error| Error::Request(with_causes(&error.without_url())))?;
                match answer.status() {
                    status if status.is_success() => Ok(()),
                    status => Err(Error::Refused(status)),
                }
            }
        }
    }
}

/// Appends lines to a file that only its owner can read, and waits until they are on disk. The file is
/// opened each time, so that it may be rotated.
fn append(path: &Path, lines: &[u8]) -> Result<(), Error> {
    let written = || {
        let mut file = std::fs::OpenOptions::new();
        let mut file = file.create(true).append(true).mode(0o600).open(path)?;
        let end = file.metadata()?.len();
        let written = file.write_all(lines).and_then(|()| file.sync_data());
        if written.is_err() {
            // Half a line would run into the next one.
            let _restored = file.set_len(end);
        }
        written
    };
    written().map_err(|error| Error::File {
        path: path.to_owned(),
        error,
    })
}

fn read_token(path: &Path) -> Result<String, Error> {
    let failed = |why: String| Error::Token {
        path: path.to_owned(),
        why,
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let token = text.trim();
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    match is_token {
        true => Ok(token.to_owned()),
        false => Err(failed(
            "has no token: one line of visible ASCII characters is expected".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests;
