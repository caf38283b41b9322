//! One decision record for each request, whatever its end.
//!
//! In: what each stage found. Out: one record in memory, in the log and in the
//! decision file. Never: a header value, a token, a body; two records for one
//! request; a request without one.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

use crate::authenticate::Principal;
use crate::state::ObjectName;

mod file;
mod render;

pub use file::FileError;
pub use render::View;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Passed every stage; `status` is the upstream's.
    Allowed,
    /// Refused by authentication, policy, a plugin or a limit.
    Denied,
    /// A stage could not do its work; the request did not pass.
    Failed,
    /// The client went away, or a panic unwound, before the answer.
    Cancelled,
}

/// A permission that was looked up, and what decided it.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// RBAC resource, such as `applications`.
    pub resource: &'static str,
    /// RBAC action, such as `get`.
    pub action: &'static str,
    /// RBAC object, such as `proj/app`.
    pub object: String,
    /// Whether the policy allows it.
    pub allowed: bool,
    /// `file:line: text` of the row that decided, when one did.
    pub rule: Option<String>,
}

/// The stages whose time is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Routing and authentication.
    Authenticate,
    /// RBAC and policy.
    Authorize,
    /// Plugins and header work.
    Headers,
    /// From sending to the upstream's response head.
    Forward,
}

/// What is known of one request so far. Fields are filled in as stages end.
#[derive(Debug)]
pub struct Record {
    /// Identifies the decision; version 7, so that ids sort by time.
    pub id: Uuid,
    /// When the request head was complete.
    pub at: jiff::Timestamp,
    /// Generation of the snapshot that decided.
    pub generation: u64,
    /// Front that served the request.
    pub front: &'static str,
    /// Request method.
    pub method: http::Method,
    /// Request path, raw, without the query: a query may hold secrets.
    pub path: String,
    /// Who called, once known.
    pub principal: Option<Arc<Principal>>,
    /// Extension called, once known.
    pub extension: Option<Arc<str>>,
    /// Application named by the caller.
    pub application: Option<ObjectName>,
    /// Project named by the caller.
    pub project: Option<String>,
    /// Cluster the request was for: name and server.
    pub destination: Option<Arc<crate::state::Cluster>>,
    /// Permissions looked up, in order.
    pub checks: Vec<Check>,
    /// Digest of the policy bundle that decided.
    pub policy: Option<Arc<str>>,
    /// `name@digest` of each plugin that took part.
    pub plugins: Vec<Arc<str>>,
    /// What the policy asked to be written down.
    pub notes: BTreeMap<String, String>,
    /// How it ended.
    pub outcome: Outcome,
    /// Stable word for the reason, such as `permission_denied`.
    pub reason: Cow<'static, str>,
    /// Text for operators; may name things the caller must not learn.
    pub detail: String,
    /// Status the caller saw; 499 when there was nobody to see it.
    pub status: u16,
    /// `trace-id` of the caller's `traceparent` (W3C Trace Context).
    pub trace_id: Option<String>,
    /// Time of each step, in pipeline order.
    pub steps: [Duration; 4],
    started: Instant,
}

/// Writes records; one a process.
#[derive(Debug)]
pub struct Recorder {
    kept: Mutex<VecDeque<Arc<Record>>>,
    keep: usize,
    lines: Option<mpsc::Sender<Arc<Record>>>,
    metrics: Arc<crate::metrics::Metrics>,
}

/// An open record. Dropping it writes it, so that a cancelled request is
/// recorded too.
#[derive(Debug)]
pub struct Open {
    record: Option<Record>,
    step_started: Instant,
    recorder: Arc<Recorder>,
}

/// Decision-file lines that may wait for the disk.
const FILE_QUEUE: usize = 16_384;

impl Recorder {
    /// Keeps the latest `keep` records in memory and, when a file is named,
    /// appends each as a JSON line.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be opened.
    pub fn start(
        keep: usize,
        file: Option<&Path>,
        metrics: Arc<crate::metrics::Metrics>,
    ) -> Result<Arc<Self>, FileError> {
        let lines = match file {
            None => None,
            Some(path) => {
                let (sender, receiver) = mpsc::channel(FILE_QUEUE);
                file::write_lines(path, receiver)?;
                Some(sender)
            }
        };
        Ok(Arc::new(Self {
            kept: Mutex::new(VecDeque::with_capacity(keep.min(1_024))),
            keep,
            lines,
            metrics,
        }))
    }

    /// Opens the record of a request.
    pub fn open(self: &Arc<Self>, method: http::Method, path: &str) -> Open {
        let now = Instant::now();
        let record = Record {
            id: Uuid::now_v7(),
            at: jiff::Timestamp::now(),
            generation: 0,
            front: "none",
            method,
            path: path.to_owned(),
            principal: None,
            extension: None,
            application: None,
            project: None,
            destination: None,
            checks: Vec::new(),
            policy: None,
            plugins: Vec::new(),
            notes: BTreeMap::new(),
            outcome: Outcome::Cancelled,
            reason: Cow::Borrowed("cancelled"),
            detail: String::new(),
            status: 499,
            trace_id: None,
            steps: [Duration::ZERO; 4],
            started: now,
        };
        Open {
            record: Some(record),
            step_started: now,
            recorder: Arc::clone(self),
        }
    }

    /// The record with this id, while it is among the latest.
    pub fn find(&self, id: Uuid) -> Option<Arc<Record>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().find(|record| record.id == id).cloned()
    }

    /// The latest records, newest first, at most `most`, of those `wanted`.
    pub fn latest(&self, most: usize, wanted: impl Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        let kept: Vec<_> = self
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .rev()
            .cloned()
            .collect();
        kept.into_iter().filter(|record| wanted(record)).take(most).collect()
    }

    fn close(&self, record: Record) {
        let record = Arc::new(record);
        self.metrics.decided(&record);
        if matches!(record.outcome, Outcome::Allowed) {
            tracing::debug!(target: "tollgate::decision", decision = %record.id, reason = %record.reason, status = record.status);
        } else {
            tracing::info!(
                target: "tollgate::decision",
                decision = %record.id,
                outcome = ?record.outcome,
                reason = %record.reason,
                status = record.status,
                principal = record.principal.as_ref().map(|principal| principal.user_id()),
                extension = record.extension.as_deref(),
                detail = %record.detail,
            );
        }
        if let Some(lines) = &self.lines
            && lines.try_send(Arc::clone(&record)).is_err()
        {
            self.metrics.decision_lines_lost.inc();
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = if kept.len() >= self.keep {
            kept.pop_front()
        } else {
            None
        };
        kept.push_back(record);
        drop(kept);
        drop(gone);
    }
}

impl Open {
    /// The decision's id, for the answer.
    pub fn id(&self) -> Uuid {
        self.record.as_ref().map_or(Uuid::nil(), |record| record.id)
    }

    /// Notes what a stage found.
    pub fn note(&mut self, write: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut self.record {
            write(record);
        }
    }

    /// Ends a step's time and starts the next one's.
    pub fn step(&mut self, step: Step) {
        let now = Instant::now();
        let taken = now.duration_since(self.step_started);
        self.step_started = now;
        self.note(|record| {
            if let Some(kept) = record.steps.get_mut(step as usize) {
                *kept = taken;
            }
        });
    }

    /// Time a step took; zero while it has not ended.
    pub fn taken(&self, step: Step) -> Duration {
        self.record
            .as_ref()
            .and_then(|record| record.steps.get(step as usize))
            .copied()
            .unwrap_or_default()
    }

    /// Writes the record with its outcome.
    pub fn close(mut self, outcome: Outcome, status: StatusCode, reason: Cow<'static, str>) {
        self.note(|record| {
            record.outcome = outcome;
            record.status = status.as_u16();
            record.reason = reason;
        });
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            self.recorder.close(record);
        }
    }
}

impl Record {
    /// Time from the complete request head to the end.
    pub fn total(&self) -> Duration {
        self.steps.iter().sum()
    }

    /// When the request started, on the clock tests can stop.
    pub fn started(&self) -> Instant {
        self.started
    }
}
