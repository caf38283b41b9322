//! Renders a record as JSON, with the field names of OPA's decision logs where both have the same
//! field.
//!
//! Security: callers see a record only through [`RecordView::for_caller`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use super::{CheckRecord, CredentialNote, KubernetesNote, Outcome, Record, Termination};

/// A record as JSON shows it.
#[derive(Debug, Serialize)]
pub struct RecordView<'a> {
    decision_id: String,
    timestamp: String,
    generation: u64,
    front: &'static str,
    outcome: Outcome,
    reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<Termination>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<SocketAddr>,
    method: &'a str,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<PrincipalView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extension: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    application: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<DestinationView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<&'a CredentialNote>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes: Option<&'a KubernetesNote>,
    checks: Vec<CheckView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy_sha256: Option<&'a str>,
    plugins: Vec<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    notes: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    duration_microseconds: DurationsView,
}

#[derive(Debug, Serialize)]
struct PrincipalView<'a> {
    id: &'a str,
    username: &'a str,
    groups: &'a [String],
    issuer: &'a str,
}

#[derive(Debug, Serialize)]
struct DestinationView<'a> {
    name: &'a str,
    server: &'a str,
}

#[derive(Debug, Serialize)]
struct CheckView<'a> {
    resource: &'a str,
    action: &'a str,
    object: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
}

#[derive(Debug, Default, Serialize)]
struct DurationsView {
    authenticate: u64,
    authorize: u64,
    headers: u64,
    forward: u64,
    total: u64,
}

impl<'a> RecordView<'a> {
    /// The JSON form of `record`, as operators see it.
    pub fn of(record: &'a Record) -> Self {
        let [authenticate, authorize, headers, forward] = record.stage_durations.map(microseconds);
        Self {
            decision_id: record.id.to_string(),
            timestamp: record.at.to_string(),
            generation: record.generation,
            front: record.front,
            outcome: record.outcome,
            reason: record.reason,
            detail: &record.detail,
            status: record.status,
            ended: record.ended,
            peer: record.peer,
            method: record.method.as_str(),
            path: &record.path,
            principal: record.principal.as_ref().map(|principal| PrincipalView {
                id: principal.user_id(),
                username: principal.username(),
                groups: principal.groups(),
                issuer: principal.issuer(),
            }),
            extension: record.extension.as_deref(),
            application: record
                .application
                .as_ref()
                .map(|app| format!("{}:{}", app.namespace, app.name)),
            project: record.project.as_deref(),
            destination: record.destination.as_ref().map(|to| DestinationView {
                name: &to.name,
                server: &to.server,
            }),
            credential: record.credential.as_ref(),
            kubernetes: record.kubernetes.as_deref(),
            checks: record.checks.iter().map(CheckView::of).collect(),
            policy_sha256: record.policy.as_deref(),
            plugins: record.plugins.iter().map(|plugin| &**plugin).collect(),
            notes: &record.notes,
            trace_id: record.trace_id.as_deref(),
            duration_microseconds: DurationsView {
                authenticate,
                authorize,
                headers,
                forward,
                total: microseconds(record.total()),
            },
        }
    }

    /// Returns the view for the caller, without what only operators may know.
    ///
    /// The destination is left out: it is looked up before policy decides, so a refused caller
    /// would learn that the application exists and where its cluster is. The peer is left out
    /// because it may be one of the operators' proxies.
    #[must_use]
    pub fn for_caller(mut self) -> Self {
        static NOTHING: BTreeMap<String, String> = BTreeMap::new();
        self.detail = "";
        self.destination = None;
        self.credential = None;
        self.peer = None;
        self.plugins.clear();
        self.notes = &NOTHING;
        // Callers learn nothing of an Application or ApplicationSet they may not see, not even
        // how long the look-up took.
        if matches!(self.front, "applications" | "applicationsets") && self.outcome == Outcome::Denied {
            self.project = None;
            self.application = None;
            self.checks.clear();
            self.duration_microseconds = DurationsView::default();
        }
        for check in &mut self.checks {
            check.rule = None;
        }
        self
    }
}

impl<'a> CheckView<'a> {
    fn of(check: &'a CheckRecord) -> Self {
        Self {
            resource: check.resource,
            action: check.action,
            object: &check.object,
            allowed: check.allowed,
            rule: check.rule.as_deref(),
        }
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
