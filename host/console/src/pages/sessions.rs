//! Sessions that are open, and the end of one.

use askama::Template;
use jiff::Timestamp;
use serde::Deserialize;

use super::tokens::{AgentRef, User};
use super::{Answer, View};
use crate::ask::{self, Items, Refusal};
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

    /// The address of all of the same person.
    fn person_path(&self) -> String {
        let query = Query::new().with("user", self.user.username.raw());
        query.at("/console/sessions")
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
    /// Whose they are, if they are one other person's.
    person: Option<Text>,
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
            person: self.query.get("user").filter(|user| *user != "*").map(Text::from),
            next: self.next(
                "/console/sessions",
                &["user", "agent"],
                "continue",
                list.next.as_deref(),
            ),
        })
    }

    /// Ends all of one person, their own browser's last so that the rest can be ended.
    async fn end_all(&self) -> Answer {
        if self.form.get("user") == Some("*") {
            let message = "the sessions of one person can be ended at once, not everybody's";
            return Err(Refusal::of_form(message.to_owned()).into());
        }
        let mut next = None::<String>;
        // All are listed before one ends: after the login of this browser, nothing can be listed.
        let mut ids = Vec::new();
        loop {
            let query = Query::new()
                .with_fields(&self.form, &["user"])
                .with_some("continue", next.as_deref())
                .with("limit", "1000");
            let list: Items<Session> = ask::get(self.api, &query.at("/api/v1/sessions")).await?;
            ids.extend(list.items.into_iter().map(|session| session.id));
            next = list.next;
            if next.is_none() {
                break;
            }
        }
        let own = self.frame.own_session();
        ids.sort_by_key(|id| own.as_ref() == Some(id));
        for id in ids {
            self.end(&id.encoded()).await?;
        }
        Ok(self.back_to("/console/sessions"))
    }

    pub(super) async fn end_session(&self) -> Answer {
        if self.form.get("all").is_some() {
            return self.end_all().await;
        }
        self.end(&encode(self.form.text("end"))).await?;
        Ok(self.back_to("/console/sessions"))
    }

    /// - `id`: encoded.
    async fn end(&self, id: &str) -> Result<(), Refusal> {
        match ask::delete(self.api, &format!("/api/v1/sessions/{id}")).await {
            // One that is over counts as ended.
            Err(refusal) if refusal.is_absent() => Ok(()),
            ended => ended,
        }
    }
}
