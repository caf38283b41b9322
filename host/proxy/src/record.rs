//! Decision records: one for each request, however it ends, in memory, in the log and in the
//! decision file.
//!
//! Invariant: every request has exactly one record.
//!
//! Security: a record contains no header value, token or body.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use rustc_hash::FxHashMap;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use tollgate_core::agent::AgentId;
use tollgate_core::attributes::Attributes;
use tollgate_core::diagnostic::shortened;
use tollgate_core::session::AccessType;
use tollgate_core::user::User;
use tollgate_identity::authenticate::Principal;
use tollgate_objects::ObjectName;
use tollgate_policy::impersonate::Impersonation;

mod file;
mod log_limit;
mod policy_input;
mod render;
mod spans;
#[cfg(test)]
mod tests;
mod trace;

pub use file::FileError;
pub use policy_input::{LeftOut, MAX_INPUT_BYTES, MAX_INPUTS, PolicyInput, PolicyInputError, PolicyInputSource};
pub use spans::{TraceContext, Tracing};

use file::WriterMessage;
use log_limit::LogLimit;
use policy_input::RecentInputs;

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, strum::AsRefStr, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Every stage passed the request; `status` is the upstream's.
    Allowed,
    /// Refused by authentication, policy, a plugin or a limit.
    Denied,
    /// A stage could not do its work; the request did not pass.
    Failed,
    /// The client disconnected or a stage panicked before the response.
    #[default]
    Cancelled,
}

/// A permission that was checked, and what decided it.
#[derive(Clone, Debug, Serialize)]
pub struct CheckRecord {
    /// RBAC resource, such as `applications`.
    pub resource: &'static str,
    /// RBAC action, such as `get`.
    pub action: &'static str,
    /// RBAC object, such as `proj/app`.
    pub object: String,
    /// Whether the policy allows it.
    pub allowed: bool,
    /// `file:line: text` of the row that decided, when one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// The credential with which a request entered a cluster.
#[derive(Clone, Debug, Serialize)]
pub struct CredentialNote {
    /// What made it: a plugin's `name@sha256:digest`, or a method such as `bearer`.
    pub provider: Arc<str>,
    /// Its number among the cluster's credentials; 0 if there was none.
    pub generation: u64,
    /// Kind and reason of the failure, if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Whether the cluster answered 401 to the first credential and the request was sent again.
    pub replayed: bool,
}

/// What a request through an agent asked of a cluster, and which identity it impersonated.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KubernetesNote {
    /// The agent the credential names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// The kind of the caller's credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_type: Option<AccessType>,
    /// The session, once access was granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The person, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// The issuer that vouches for the person; `None` if the directory or a platform does.
    #[serde(skip)]
    pub issuer: Option<String>,
    /// What was asked of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Attributes>,
    /// The identity sent to the cluster; `None` for the agent itself.
    #[serde(skip_serializing_if = "is_nobody", serialize_with = "impersonated")]
    pub impersonated: Option<Arc<Impersonation>>,
}

fn is_nobody(impersonation: &Option<Arc<Impersonation>>) -> bool {
    !matches!(impersonation.as_deref(), Some(Impersonation::As(_)))
}

fn impersonated<S: serde::Serializer>(of: &Option<Arc<Impersonation>>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct ImpersonatedUser<'a> {
        username: &'a str,
        groups: &'a [String],
    }
    match of.as_deref() {
        Some(Impersonation::As(identity)) => ImpersonatedUser {
            username: &identity.username,
            groups: &identity.groups,
        }
        .serialize(serializer),
        Some(Impersonation::Nobody) | None => serializer.serialize_none(),
    }
}

/// The stages whose time is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Routing and authentication.
    Authenticate,
    /// RBAC and policy.
    Authorize,
    /// Plugins and header work.
    Headers,
    /// From sending the request to the upstream's response head.
    Forward,
}

/// How an allowed exchange was ended from outside, before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Termination {
    /// When.
    pub at: jiff::Timestamp,
    /// Stable reason code: that of an [`EndReason`](tollgate_identity::sessions::EndReason).
    pub reason: &'static str,
}

/// The decision record of one request. Stages fill in fields as they end. Its JSON form is for
/// operators; callers see what [`Record::for_caller`] leaves of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Record {
    /// Identifies the decision; version 7, so that ids sort by time.
    #[serde(rename = "decision_id")]
    pub id: Uuid,
    /// When the request head was complete.
    #[serde(rename = "timestamp")]
    pub at: jiff::Timestamp,
    /// Generation of the snapshot that decided.
    pub generation: u64,
    /// Front that served the request.
    pub front: &'static str,
    /// How the request ended.
    pub outcome: Outcome,
    /// Stable reason code, such as `permission_denied`. It is also a metric label, so it is never
    /// text chosen at run time.
    pub reason: &'static str,
    /// Text for operators; may name things the caller must not learn.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The text of a refusal as the caller got it.
    #[serde(skip)]
    pub told: String,
    /// The same, in a record for callers, who see no `detail`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Status the caller got; 499 if the caller had disconnected.
    pub status: u16,
    /// How the exchange was ended from outside after it had been allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Termination>,
    /// Address of the client, as a trusted proxy names it, or else that of the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
    /// Other side of the connection, which may be a proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// Request method; `UNREAD` when the request ended before its head was read.
    #[serde(serialize_with = "render::method")]
    pub method: Method,
    /// Raw request path, without the query, which may hold secrets. At most its first 1,024
    /// bytes, then `…`.
    pub path: String,
    /// The caller, once known.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "render::principal")]
    pub principal: Option<Arc<Principal>>,
    /// Extension called, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extension: Option<Arc<str>>,
    /// Application named by the caller.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "render::application")]
    pub application: Option<ObjectName>,
    /// Project named by the caller. Once the request is permitted, the project that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Cluster the request was for, with name and server.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "render::destination")]
    pub destination: Option<Arc<tollgate_objects::Cluster>>,
    /// The credential with which the request entered the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialNote>,
    /// What the request asked of a cluster through an agent. The decision's id is the `Audit-ID` in
    /// the cluster's audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Box<KubernetesNote>>,
    /// Service and method of a call of Argo CD's API, such as `application.ApplicationService/Sync`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_method: Option<String>,
    /// Permissions that were checked, in order.
    pub checks: Arc<[CheckRecord]>,
    /// Digest of the policy bundle that decided.
    #[serde(rename = "policy_sha256", skip_serializing_if = "Option::is_none")]
    pub policy: Option<Arc<str>>,
    /// `name@digest` of each plugin that took part.
    pub plugins: Vec<Arc<str>>,
    /// Notes the policy asked to record.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, String>,
    /// Id of the trace: that of the caller's `traceparent` (W3C Trace Context), or the decision's own if
    /// traces are sent and the caller brought none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Whether a page of the console was read, or a page read something for it. If allowed, it is not
    /// kept in memory.
    #[serde(skip)]
    pub is_of_page: bool,
    /// Its place in the trace, if traces are sent.
    #[serde(skip)]
    pub trace: Option<TraceContext>,
    /// The input of the policy that decided, while it is kept. `None` if no policy was asked.
    #[serde(skip)]
    pub input: Option<Weak<PolicyInputSource>>,
    /// Time of each stage, in pipeline order.
    #[serde(rename = "duration_microseconds", serialize_with = "render::durations")]
    pub stage_durations: [Duration; 4],
}

/// Writes records; there is one per process.
#[derive(Debug)]
pub struct Recorder {
    recent: Mutex<RecentRecords>,
    capacity: usize,
    lines: Option<mpsc::Sender<WriterMessage>>,
    metrics: Arc<crate::metrics::Metrics>,
    tracing: Option<Tracing>,
    log_limit: LogLimit,
}

#[derive(Debug, Default)]
struct RecentRecords {
    records: VecDeque<Arc<Record>>,
    /// Number of the oldest record in `records`, counted from the start.
    first: u64,
    /// Number of each record in `records`.
    numbers: FxHashMap<Uuid, u64>,
    inputs: RecentInputs,
}

/// The record of a request that is not answered yet. Dropping it writes it, so that a cancelled
/// request is recorded too.
#[derive(Debug)]
pub struct OpenRecord {
    record: Option<Record>,
    input: Option<Arc<PolicyInputSource>>,
    stage_started: Instant,
    recorder: Arc<Recorder>,
}

/// Most decision-file lines that may wait for the disk.
const FILE_QUEUE: usize = 16_384;

/// How long the last spans may take.
const SPANS_FLUSH: Duration = Duration::from_secs(2);

/// Most bytes of a path in a record. Unknown callers choose paths, and thousands of records stay
/// in memory.
const PATH_BYTES: usize = 1_024;

/// Most bytes of a method that is stored, in records and elsewhere; the longest registered one
/// has 17.
pub const METHOD_BYTES: usize = 32;

/// Most records copied at once, while other requests wait to write theirs.
const PAGE: usize = 1_024;

impl Recorder {
    /// Starts a recorder that keeps the latest `capacity` records in memory and, if a file is
    /// named, appends each as a JSON line. With `tracing` it sends spans of each.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be opened.
    pub fn start(
        capacity: usize,
        file: Option<&Path>,
        metrics: Arc<crate::metrics::Metrics>,
        tracing: Option<Tracing>,
    ) -> Result<Arc<Self>, FileError> {
        let lines = match file {
            None => None,
            Some(path) => {
                let (sender, receiver) = mpsc::channel(FILE_QUEUE);
                file::write_lines(path, receiver, metrics.decision_lines_lost.clone())?;
                Some(sender)
            }
        };
        Ok(Arc::new(Self {
            recent: Mutex::default(),
            capacity,
            lines,
            metrics,
            tracing,
            log_limit: LogLimit::default(),
        }))
    }

    /// Opens the record of a request.
    pub fn open(self: &Arc<Self>, method: Method, path: &str) -> OpenRecord {
        // Both clocks at once, so that the stages, which follow each other from `at`, end by now.
        let (at, stage_started) = (jiff::Timestamp::now(), Instant::now());
        let record = Record {
            id: Uuid::now_v7(),
            at,
            front: "none",
            method: short_method(method),
            path: shortened(path, PATH_BYTES),
            outcome: Outcome::Cancelled,
            reason: "cancelled",
            status: 499,
            ..Record::default()
        };
        OpenRecord {
            record: Some(record),
            input: None,
            stage_started,
            recorder: Arc::clone(self),
        }
    }

    /// Opens the record of a request that ended before its head was read.
    pub fn open_unread(self: &Arc<Self>) -> OpenRecord {
        self.open(Method::from_bytes(b"UNREAD").unwrap_or_default(), "")
    }

    /// Records that the exchange that decision `id` allowed was ended from outside: in the log, in
    /// the decision file, and in its record while that is among the latest.
    pub fn ended(&self, id: Uuid, reason: &'static str) {
        let ended = Termination {
            at: jiff::Timestamp::now(),
            reason,
        };
        if let Some(omitted) = self.may_log(reason) {
            tracing::info!(target: "tollgate::decision", decision = %id, reason, omitted, "what was let in was ended");
        }
        self.lock().amend(id, ended);
        self.append(|| WriterMessage::Termination(id, ended));
    }

    /// As [`Recorder::ended`], for a record that may not have been closed when it was called.
    /// Only the first termination counts.
    pub fn amend(&self, id: Uuid, reason: &'static str) {
        let at = jiff::Timestamp::now();
        self.lock().amend(id, Termination { at, reason });
    }

    /// Returns the record with this id, while it is among the latest. Takes constant time.
    pub fn find(&self, id: Uuid) -> Option<Arc<Record>> {
        let recent = self.lock();
        recent.records.get(recent.position(id)?).cloned()
    }

    /// Returns the latest records for which `wanted` is true, newest first, at most `limit`.
    pub fn latest(&self, limit: usize, wanted: impl Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        let records = self.newest_first(u64::MAX);
        records.filter(|record| wanted(record)).take(limit).collect()
    }

    /// As [`Recorder::latest`], of the records from before the one with this id. None if that is no
    /// longer among the latest.
    pub fn latest_before(&self, id: Uuid, limit: usize, wanted: impl Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        let number = self.lock().numbers.get(&id).copied();
        let records = number.into_iter().flat_map(|number| self.newest_first(number));
        records.filter(|record| wanted(record)).take(limit).collect()
    }

    /// The callers of the latest records, each once, the latest first, at most `limit`.
    pub fn callers(&self, limit: usize) -> Vec<Arc<Principal>> {
        let mut seen = HashSet::new();
        let principals = self
            .newest_first(u64::MAX)
            .filter_map(|record| record.principal.clone());
        let is_new = |principal: &Arc<Principal>| {
            let (issuer, id) = (principal.issuer().to_owned(), principal.user_id().to_owned());
            seen.insert((issuer, id, principal.groups().to_vec()))
        };
        principals.filter(is_new).take(limit).collect()
    }

    /// Records with numbers below `below`. Reads a page at a time, since requests wait for the lock.
    fn newest_first(&self, mut below: u64) -> impl Iterator<Item = Arc<Record>> {
        let pages = std::iter::from_fn(move || {
            let (page, next) = self.lock().page(below);
            below = next;
            (!page.is_empty()).then_some(page)
        });
        pages.flatten()
    }

    /// Waits until every record closed before is in the decision file.
    pub async fn flush(&self) {
        if let Some(tracing) = self.tracing.clone() {
            // A panic there is of no concern here.
            // `Tracing::shutdown` blocks, and other requests still run.
            let _ = tokio::task::spawn_blocking(move || tracing.shutdown(SPANS_FLUSH)).await;
        }
        let Some(lines) = &self.lines else { return };
        let (done, written) = oneshot::channel();
        if lines.send(WriterMessage::Flush(done)).await.is_ok() {
            // An error means that the writer has ended, and there is nothing to wait for.
            let _ = written.await;
        }
    }

    /// Appends a line to the decision file, if there is one. Counts the line if it is lost.
    fn append(&self, message: impl FnOnce() -> WriterMessage) {
        if let Some(lines) = &self.lines
            && lines.try_send(message()).is_err()
        {
            self.metrics.decision_lines_lost.inc();
        }
    }

    /// Whether a line with this reason is logged. If so, the number of lines with it that were omitted
    /// since the last one, unless it is zero.
    #[expect(clippy::option_option, reason = "a field of a log line is left out with `None`")]
    fn may_log(&self, reason: &'static str) -> Option<Option<u64>> {
        let taken = self.log_limit.try_take(reason, std::time::Instant::now());
        if taken.is_none() {
            self.metrics.log_lines_omitted.inc();
        }
        taken.map(|omitted| Some(omitted).filter(|omitted| *omitted > 0))
    }

    fn lock(&self) -> MutexGuard<'_, RecentRecords> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, record: Record, input: Option<Arc<PolicyInputSource>>) {
        let record = Arc::new(record);
        self.metrics.count_decision(
            record.front,
            record.outcome.into(),
            record.reason,
            record.stage_durations,
        );
        if let Some(tracing) = &self.tracing {
            tracing.send(&record);
        }
        if matches!(record.outcome, Outcome::Allowed) {
            tracing::debug!(target: "tollgate::decision", decision = %record.id, reason = record.reason, status = record.status);
        } else if let Some(omitted) = self.may_log(record.reason) {
            tracing::info!(
                target: "tollgate::decision",
                decision = %record.id,
                omitted,
                outcome = record.outcome.as_ref(),
                reason = record.reason,
                status = record.status,
                client = record.client.map(tracing::field::display),
                peer = record.peer.map(tracing::field::display),
                principal = record.principal.as_ref().map(|principal| principal.user_id()),
                extension = record.extension.as_deref(),
                detail = %record.detail,
            );
        }
        self.append(|| WriterMessage::Record(Arc::clone(&record)));
        // A page that is open asks every few seconds, which would push everything else out.
        if record.is_of_page && record.outcome == Outcome::Allowed {
            return;
        }
        let displaced = self.lock().push(record, input, self.capacity);
        // Freed after the lock, so that no other request waits for it.
        drop(displaced);
    }
}

impl RecentRecords {
    /// Adds a record and the input of its policy; returns what they displaced.
    fn push(
        &mut self,
        record: Arc<Record>,
        input: Option<Arc<PolicyInputSource>>,
        capacity: usize,
    ) -> (Option<Arc<Record>>, Vec<Arc<PolicyInputSource>>) {
        let is_full = self.records.len() >= capacity;
        let displaced = is_full.then(|| self.records.pop_front()).flatten();
        if let Some(displaced) = &displaced {
            self.first = self.first.saturating_add(1);
            self.numbers.remove(&displaced.id);
        }
        let number = self.first.saturating_add(count(self.records.len()));
        self.numbers.insert(record.id, number);
        self.records.push_back(record);
        let displaced_inputs = input.map_or_else(Vec::new, |input| self.inputs.push(input));
        (displaced, displaced_inputs)
    }

    fn position(&self, id: Uuid) -> Option<usize> {
        let at = self.numbers.get(&id)?.checked_sub(self.first)?;
        usize::try_from(at).ok()
    }

    fn amend(&mut self, id: Uuid, ended: Termination) {
        let record = self.position(id).and_then(|at| self.records.get_mut(at));
        if let Some(record) = record.filter(|record| record.outcome == Outcome::Allowed && record.ended.is_none()) {
            // Who holds the record keeps it as it was.
            Arc::make_mut(record).ended = Some(ended);
        }
    }

    /// Returns up to [`PAGE`] records with numbers below `below`, newest first, and the number
    /// below which the next page begins.
    fn page(&self, below: u64) -> (Vec<Arc<Record>>, u64) {
        let end = usize::try_from(below.saturating_sub(self.first))
            .unwrap_or(usize::MAX)
            .min(self.records.len());
        let start = end.saturating_sub(PAGE);
        let page = self.records.range(start..end).rev().cloned().collect();
        (page, self.first.saturating_add(count(start)))
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The method, or a placeholder if it is longer than [`METHOD_BYTES`].
fn short_method(method: Method) -> Method {
    if method.as_str().len() <= METHOD_BYTES {
        method
    } else {
        Method::from_bytes(b"TOO-LONG").unwrap_or_default()
    }
}

impl OpenRecord {
    /// The decision's id, for the response.
    pub fn id(&self) -> Uuid {
        self.record.as_ref().map_or(Uuid::nil(), |record| record.id)
    }

    /// When the request head was complete. `None` once the record is written or lent.
    pub fn at(&self) -> Option<jiff::Timestamp> {
        self.record.as_ref().map(|record| record.at)
    }

    /// Records the place of a request with these fields in a trace.
    pub fn trace(&mut self, headers: Option<&HeaderMap>) {
        let Some(record) = &mut self.record else {
            return;
        };
        record.trace = self
            .recorder
            .tracing
            .as_ref()
            .map(|tracing| tracing.context(headers, record.id));
        record.trace_id = match &record.trace {
            Some(context) => Some(context.trace_id()),
            None => headers.and_then(trace::trace_id),
        };
    }

    /// Tells the upstream its place in the trace, if traces are sent.
    pub fn continue_trace(&self, headers: &mut HeaderMap) {
        let Some((record, context)) = self.record.as_ref().and_then(|record| Some((record, record.trace?))) else {
            return;
        };
        if let Some(value) = context.traceparent(record.id) {
            headers.insert(spans::TRACEPARENT, value);
        }
        if !context.has_caller() {
            // It belongs to a trace that the caller did not name.
            headers.remove("tracestate");
        }
    }

    /// Records what a stage found.
    pub fn note(&mut self, write: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut self.record {
            write(record);
        }
    }

    /// Keeps what the policy's input was made of, so that operators can ask the policy again. Of
    /// several inputs the last one is kept.
    pub fn keep_input(&mut self, input: PolicyInputSource) {
        let input = Arc::new(input);
        self.note(|record| record.input = Some(Arc::downgrade(&input)));
        self.input = Some(input);
    }

    /// Records why mode enforce would refuse what a mode `audit` lets pass.
    ///
    /// - `reason`: stable reason code.
    pub fn note_would_refuse(&mut self, reason: &str, text: String) {
        self.note(|record| {
            record.notes.insert("would_refuse_reason".to_owned(), reason.to_owned());
            record.notes.insert("would_refuse".to_owned(), text);
        });
    }

    /// Starts the time of the present stage again, after something was awaited that is not the gateway's work.
    pub fn restart_stage(&mut self) {
        self.stage_started = Instant::now();
    }

    /// Ends the time of a stage and starts that of the next one.
    pub fn finish_stage(&mut self, stage: Stage) {
        let now = Instant::now();
        let taken = now.duration_since(self.stage_started);
        self.stage_started = now;
        self.note(|record| {
            if let Some(duration) = record.stage_durations.get_mut(stage as usize) {
                *duration = taken;
            }
        });
    }

    /// Takes the record out, for work that continues if its request is dropped. Until
    /// [`OpenRecord::restore`] puts it back, nothing here is recorded or written.
    #[must_use]
    pub fn lend(&mut self) -> Self {
        Self {
            record: self.record.take(),
            input: self.input.take(),
            stage_started: self.stage_started,
            recorder: Arc::clone(&self.recorder),
        }
    }

    /// Puts back a record that [`OpenRecord::lend`] returned.
    pub fn restore(&mut self, lent: Self) {
        // The empty record that this replaces writes nothing when it is dropped.
        *self = lent;
    }

    /// Sets the outcome to record if the request is dropped before it is closed.
    pub fn set_outcome_on_drop(&mut self, outcome: Outcome, reason: &'static str, detail: String) {
        self.note(|record| {
            record.outcome = outcome;
            record.reason = reason;
            record.detail = detail;
        });
    }

    /// Writes the record with its outcome.
    pub fn close(mut self, outcome: Outcome, status: StatusCode, reason: &'static str) {
        self.note(|record| {
            record.outcome = outcome;
            record.status = status.as_u16();
            record.reason = reason;
        });
    }
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            self.recorder.close(record, self.input.take());
        }
    }
}
