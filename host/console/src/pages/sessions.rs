//! Sessions that are open, and the end of one.

use askama::Template;
use jiff::Timestamp;
use serde::Deserialize;

use super::tokens::{AgentRef, User};
use super::{Answer, View};
use crate::ask::{self, Items};
use crate::form::Query;
use crate::frame::Frame;
use crate::text::{Text, encode, grouped};

/// Sessions of one page.
const ROWS: &str = "100";

/// A session, as the API lists it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Session {
    id: Text,
    user: User,
    #[serde(default)]
    agent: Option<AgentRef>,
    first_at: Timestamp,
    #[serde(default)]
    last_at: Option<Timestamp>,
    #[serde(default)]
    client: Text,
    requests: u64,
    open_streams: u32,
    #[serde(default)]
    expires_at: Option<Timestamp>,
}

impl Session {
    /// What kind of credential it is of.
    fn kind(&self) -> &'static str {
        match self.id.raw().split_once(':').map(|(kind, _)| kind) {
            Some("pat") => "access token",
            Some("cookie" | "session_cookie") => "browser, at a cluster",
            Some("oidc") => "ID token",
            Some("ci") => "CI job",
            Some("login") => "login",
            _ => "session",
        }
    }

    /// The address of what it did.
    fn audit_path(&self, is_about_all: &bool) -> String {
        let query = Query::new().with("session", self.id.raw());
        query
            .with_some("user", is_about_all.then_some("*"))
            .at("/console/audit")
    }

    fn request_count(&self) -> String {
        grouped(self.requests)
    }
}

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionsPage<'a> {
    frame: &'a Frame,
    sessions: &'a [Session],
    is_about_all: bool,
    next: Option<String>,
}

impl View<'_> {
    pub(super) async fn sessions(&self) -> Answer {
        let names = ["user", "agent", "continue"];
        let query = Query::new().with_fields(&self.query, &names).with("limit", ROWS);
        let list: Items<Session> = ask::get(self.api, &query.at("/api/v1/sessions")).await?;
        self.page(&SessionsPage {
            frame: &self.frame,
            sessions: &list.items,
            is_about_all: self.is_about_all(),
            next: self.next(
                "/console/sessions",
                &["user", "agent"],
                ("continue", list.next.as_deref()),
            ),
        })
    }

    pub(super) async fn end_session(&self) -> Answer {
        let id = encode(self.form.text("end"));
        match ask::delete(self.api, &format!("/api/v1/sessions/{id}")).await {
            // One that is over counts as ended.
            Err(refusal) if refusal.is_absent() => {}
            ended => ended?,
        }
        Ok(self.back_to("/console/sessions"))
    }
}
