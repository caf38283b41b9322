//! Decisions that this replica remembers: the latest ones, and why one was made.

use std::collections::BTreeMap;

use askama::Template;
use jiff::Timestamp;
use serde::Deserialize;

use super::{Answer, View};
use crate::ask::{self, Items, Refusal};
use crate::chart::Stages;
use crate::form::{Fields, Query};
use crate::frame::Frame;
use crate::text::{Text, encode, microseconds};

/// Decisions of one page.
const ROWS: &str = "100";
/// The fields of the filter.
const PARAMETERS: [&str; 4] = ["user", "outcome", "front", "reason"];

/// The fronts that a filter offers.
pub(super) const FRONTS: [&str; 15] = [
    "access",
    "admission",
    "agents",
    "applications",
    "applicationsets",
    "argocd",
    "clusters",
    "console",
    "control-plane",
    "extensions",
    "kubernetes",
    "login",
    "none",
    "operations",
    "projects",
];
const OUTCOMES: [&str; 4] = ["allowed", "denied", "failed", "cancelled"];

/// A decision, as the API shows it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Decision {
    pub(super) decision_id: Text,
    pub(super) timestamp: Timestamp,
    generation: u64,
    pub(super) front: Text,
    pub(super) outcome: Text,
    pub(super) reason: Text,
    /// What its caller was told.
    #[serde(default, rename = "message")]
    detail: Text,
    status: u16,
    #[serde(default)]
    client: Option<Text>,
    pub(super) method: Text,
    pub(super) path: Text,
    #[serde(default)]
    principal: Option<Principal>,
    #[serde(default)]
    extension: Option<Text>,
    #[serde(default)]
    application: Option<Text>,
    #[serde(default)]
    project: Option<Text>,
    #[serde(default)]
    destination: Option<Destination>,
    #[serde(default)]
    kubernetes: Option<Kubernetes>,
    #[serde(default)]
    api_method: Option<Text>,
    #[serde(default)]
    checks: Vec<Check>,
    #[serde(default)]
    policy_sha256: Option<Text>,
    #[serde(default)]
    plugins: Vec<Text>,
    #[serde(default)]
    notes: BTreeMap<String, Text>,
    #[serde(default)]
    trace_id: Option<Text>,
    #[serde(default)]
    ended: Option<Ended>,
    pub(super) duration_microseconds: Durations,
}

#[derive(Clone, Debug, Deserialize)]
struct Principal {
    username: Text,
    #[serde(default)]
    groups: Vec<Text>,
    issuer: Text,
}

#[derive(Clone, Debug, Deserialize)]
struct Destination {
    name: Text,
    server: Text,
}

#[derive(Clone, Debug, Deserialize)]
struct Kubernetes {
    #[serde(default)]
    user: Option<super::tokens::User>,
    #[serde(default)]
    session: Option<Text>,
    #[serde(default)]
    attributes: Option<Attributes>,
    #[serde(default)]
    impersonated: Option<Impersonated>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Attributes {
    verb: Text,
    resource: Text,
    subresource: Text,
    namespace: Text,
    name: Text,
    path: Text,
}

#[derive(Clone, Debug, Deserialize)]
struct Impersonated {
    username: Text,
    #[serde(default)]
    groups: Vec<Text>,
}

#[derive(Clone, Debug, Deserialize)]
struct Check {
    resource: Text,
    action: Text,
    object: Text,
    allowed: bool,
    #[serde(default)]
    rule: Option<Text>,
}

/// An exchange that was ended from outside.
#[derive(Clone, Debug, Deserialize)]
struct Ended {
    at: Timestamp,
    reason: Text,
}

/// Time of each stage, in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Durations {
    pub(super) authenticate: u64,
    pub(super) authorize: u64,
    pub(super) headers: u64,
    pub(super) forward: u64,
    pub(super) total: u64,
}

impl Durations {
    pub(super) fn text(&self) -> String {
        microseconds(self.total)
    }

    fn stages(&self) -> Stages {
        Stages::new(&[
            ("Authenticate", self.authenticate),
            ("Authorize", self.authorize),
            ("Headers", self.headers),
            ("Forward", self.forward),
        ])
    }
}

impl Check {
    /// The address that explains it.
    fn path(&self) -> String {
        let query = Query::new()
            .with("resource", self.resource.raw())
            .with("action", self.action.raw());
        query.with("object", self.object.raw()).at("/console/permissions")
    }
}

impl Decision {
    /// Where its page is.
    pub(super) fn page(&self) -> String {
        format!("/console/decisions/{}", self.decision_id.encoded())
    }

    /// The kind of its badge.
    pub(super) fn mark(&self) -> &'static str {
        match self.outcome.raw() {
            "allowed" => "good",
            "denied" => "bad",
            "failed" => "warn",
            _ => "plain",
        }
    }

    pub(super) fn is_refusal(&self) -> bool {
        self.outcome == "denied" || self.outcome == "failed"
    }

    /// Who asked, as far as it is known.
    fn who(&self) -> Text {
        let principal = self.principal.as_ref().map(|principal| principal.username.clone());
        let of_agent = self
            .kubernetes
            .as_ref()
            .and_then(|note| Some(note.user.as_ref()?.username.clone()));
        principal.or(of_agent).unwrap_or_else(|| Text::from("unknown"))
    }

    /// What the request was about, shorter than its path where that is possible.
    pub(super) fn about(&self) -> Text {
        let attributes = self.kubernetes.as_ref().and_then(|note| note.attributes.as_ref());
        match (attributes, &self.api_method) {
            (Some(attributes), _) => attributes.text(),
            (None, Some(method)) => self.call(method),
            (None, None) => Text::from(format!("{} {}", self.method.raw(), self.path.raw())),
        }
    }

    /// A method of argocd-server without its package, and what it is about: `ApplicationService/Sync argocd/web`.
    fn call(&self, method: &Text) -> Text {
        let method = method.raw();
        let name = method.split_once('.').map_or(method, |(_, name)| name);
        match (&self.application, &self.project) {
            (Some(object), _) | (None, Some(object)) => Text::from(format!("{name} {}", object.raw())),
            (None, None) => Text::from(name),
        }
    }

    fn notes(&self) -> Vec<(Text, &Text)> {
        self.notes
            .iter()
            .map(|(name, value)| (Text::from(name.as_str()), value))
            .collect()
    }

    /// The address of what the same session did.
    fn audit_path(&self) -> Option<String> {
        let session = self.kubernetes.as_ref()?.session.as_ref()?;
        Some(Query::new().with("session", session.raw()).at("/console/audit"))
    }

    /// The address that asks the policy again. `None` for ApplicationSets, whose decisions have no single
    /// input.
    fn policy_path(&self) -> Option<String> {
        let front = match self.front.raw() {
            front @ ("extensions" | "kubernetes" | "applications" | "argocd") => front,
            "control-plane" => "controlplane",
            _ => return None,
        };
        let query = Query::new().with("decision", self.decision_id.raw());
        Some(query.at(&format!("/console/policies/{front}")))
    }

    /// The command that asks the policy again on the gateway's machine.
    fn command(&self) -> Option<String> {
        let id = self.decision_id.raw();
        self.policy_path()
            .map(|_| format!("tollgate policy explain --decision {id}"))
    }
}

impl Attributes {
    fn text(&self) -> Text {
        let resource = match (self.resource.is_empty(), self.subresource.is_empty()) {
            (true, _) => self.path.raw().to_owned(),
            (false, true) => self.resource.raw().to_owned(),
            (false, false) => format!("{}/{}", self.resource.raw(), self.subresource.raw()),
        };
        let mut text = format!("{} {resource}", self.verb.raw());
        if !self.name.is_empty() {
            text.push(' ');
            text.push_str(self.name.raw());
        }
        if !self.namespace.is_empty() {
            text.push_str(" in ");
            text.push_str(self.namespace.raw());
        }
        Text::from(text)
    }
}

#[derive(Template)]
#[template(path = "decisions.html")]
struct DecisionsPage<'a> {
    frame: &'a Frame,
    decisions: &'a [Decision],
    query: &'a Fields,
    is_about_all: bool,
    is_filtered: bool,
    is_latest: bool,
    next: Option<String>,
    outcomes: &'static [&'static str],
    fronts: &'static [&'static str],
}

#[derive(Template)]
#[template(path = "decision.html")]
struct DecisionPage<'a> {
    frame: &'a Frame,
    decision: &'a Decision,
    stages: Stages,
}

#[derive(Template)]
#[template(path = "no_decision.html")]
struct NoDecisionPage<'a> {
    frame: &'a Frame,
    id: Text,
}

impl View<'_> {
    pub(super) async fn decisions(&self) -> Answer {
        let list = self.latest_decisions(ROWS).await?;
        self.page(&DecisionsPage {
            frame: &self.frame,
            decisions: &list.items,
            query: &self.query,
            is_about_all: self.is_about_all(),
            is_latest: self.query.get("continue").is_none(),
            next: self.next("/console/decisions", &PARAMETERS, "continue", list.next.as_deref()),
            is_filtered: ["outcome", "front", "reason"]
                .iter()
                .any(|name| self.query.get(name).is_some()),
            outcomes: &OUTCOMES,
            fronts: &FRONTS,
        })
    }

    /// The latest decisions that the query selects. What the pages themselves ask would hide
    /// everything else, so that it is shown only for a front or a reason that is named.
    pub(super) async fn latest_decisions(&self, rows: &str) -> Result<Items<Decision>, Refusal> {
        let is_named = self.query.get("front").or(self.query.get("reason")).is_some();
        let pages = (!is_named).then_some("false");
        let query = Query::new().with_fields(&self.query, &PARAMETERS);
        let query = query.with_fields(&self.query, &["continue"]).with("limit", rows);
        let query = query.with_some("pages", pages);
        ask::get(self.api, &query.at("/api/v1/decisions")).await
    }

    pub(super) async fn decision(&self, id: &str) -> Answer {
        let found = ask::get::<Decision>(self.api, &format!("/api/v1/decisions/{}", encode(id))).await;
        match found {
            Ok(decision) => self.page(&DecisionPage {
                frame: &self.frame,
                stages: decision.duration_microseconds.stages(),
                decision: &decision,
            }),
            // A replica remembers only its own decisions, and only the latest of them.
            Err(refusal) if refusal.is_absent() => {
                let page = NoDecisionPage {
                    frame: &self.frame,
                    id: Text::from(id),
                };
                let mut response = super::html(page.render()?);
                *response.status_mut() = http::StatusCode::NOT_FOUND;
                Ok(response)
            }
            Err(refusal) => Err(refusal.into()),
        }
    }
}
