//! The audit log: a search, page by page, and its lines to save.

use askama::Template;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::tokens::AgentRef;
use super::{Answer, View, download};
use crate::ask::{self, Items, Refusal};
use crate::form::{Fields, Query};
use crate::frame::Frame;
use crate::text::Text;

/// The parameters of a search.
const PARAMETERS: [&str; 10] = [
    "user",
    "agent",
    "action",
    "session",
    "verb",
    "resource",
    "namespace",
    "name",
    "since",
    "until",
];
/// Events of one page.
const ROWS: usize = 50;
/// Events of one answer of the API.
const EVENTS: usize = 1_000;
/// Most events of a file, and how many bytes it has before the last answer is added.
const LINES: (usize, usize) = (10_000, 16 * 1024 * 1024);

/// An event, as the API lists it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    id: Text,
    action: Text,
    first_at: Timestamp,
    count: u64,
    user: Text,
    #[serde(default)]
    agent: Option<AgentRef>,
    #[serde(default)]
    session: Option<Text>,
    #[serde(default)]
    details: Map<String, Value>,
}

impl Event {
    fn detail(&self, name: &str) -> Option<Text> {
        match self.details.get(name)? {
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(Text::from(text.as_str())),
            Value::Null => None,
            other => Some(Text::from(other.to_string())),
        }
    }

    /// What it was about: `get pods web-0 in shop`.
    fn about(&self) -> Text {
        let part = |name: &str| self.detail(name).map(|text| text.raw().to_owned());
        let resource = part("resource").map(|resource| match part("subresource") {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource,
        });
        let namespace = part("namespace").map(|namespace| format!("in {namespace}"));
        let parts = [part("verb"), resource.or_else(|| part("path")), part("name"), namespace];
        let text: Vec<String> = parts.into_iter().flatten().collect();
        Text::from(text.join(" "))
    }

    /// All details, as text.
    fn all(&self) -> Vec<(Text, Text)> {
        let names = self.details.keys();
        names
            .filter_map(|name| Some((Text::from(name.as_str()), self.detail(name)?)))
            .collect()
    }

    fn is_refusal(&self) -> bool {
        self.action.raw().contains("denied") || self.action.raw().contains("refused")
    }

    /// The decision that it belongs to.
    fn decision(&self) -> Option<Text> {
        self.detail("decision").or_else(|| self.detail("decision_id"))
    }
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage<'a> {
    frame: &'a Frame,
    events: &'a [Event],
    query: &'a Fields,
    refusal: Option<&'a Refusal>,
    is_about_all: bool,
    is_filtered: bool,
    /// Address of the next page.
    older: Option<String>,
    /// Address of the search's lines.
    lines: String,
}

impl View<'_> {
    pub(super) async fn audit(&self) -> Answer {
        let query = Query::new()
            .with_fields(&self.query, &PARAMETERS)
            .with_fields(&self.query, &["before"]);
        let query = query.with("limit", &ROWS.to_string());
        let found = ask::get::<Items<Event>>(self.api, &query.at("/api/v1/audit")).await;
        let (events, refusal) = match found {
            Ok(list) => (list.items, None),
            // A mistake in the form is shown with what was typed.
            Err(refusal) if refusal.reason == "bad_query" || refusal.reason == "unknown_user" => {
                (Vec::new(), Some(refusal))
            }
            Err(refusal) if refusal.status.is_server_error() => (Vec::new(), Some(refusal)),
            Err(refusal) => return Err(refusal.into()),
        };
        let last = events.last().filter(|_| events.len() == ROWS);
        let filters = PARAMETERS.iter().filter(|name| **name != "user");
        let page = AuditPage {
            frame: &self.frame,
            events: &events,
            query: &self.query,
            refusal: refusal.as_ref(),
            is_about_all: self.is_about_all(),
            is_filtered: filters.into_iter().any(|name| self.query.get(name).is_some()),
            older: self.next(
                "/console/audit",
                &PARAMETERS,
                "before",
                last.map(|event| event.id.raw()),
            ),
            lines: Query::new()
                .with_fields(&self.query, &PARAMETERS)
                .at("/console/audit/events.jsonl"),
        };
        match &refusal {
            Some(_) => self.page_with_problem(&page),
            None => self.page(&page),
        }
    }

    /// The events of a search, newest first, one JSON object a line.
    pub(super) async fn audit_lines(&self) -> Answer {
        let (most, most_bytes) = LINES;
        let (mut text, mut before, mut count) = (String::new(), None::<String>, 0_usize);
        while count < most && text.len() < most_bytes {
            let query = Query::new().with_fields(&self.query, &PARAMETERS);
            let query = query
                .with_some("before", before.as_deref())
                .with("limit", &EVENTS.to_string());
            let list: Items<Value> = ask::get(self.api, &query.at("/api/v1/audit")).await?;
            let read = list.items.len();
            count = count.saturating_add(read);
            before = list
                .items
                .last()
                .and_then(|event| Some(event.get("id")?.as_str()?.to_owned()));
            for event in list.items {
                text.push_str(&event.to_string());
                text.push('\n');
            }
            if read < EVENTS || before.is_none() {
                break;
            }
        }
        Ok(download("application/jsonl", "audit-events.jsonl", text))
    }
}
