//! Personal access tokens: those there are, a new one, and the end of one.

use askama::Template;
use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;

use super::clusters::Agent;
use super::{Answer, View, redirect};
use crate::ask::{self, Items, Refusal};
use crate::form::Query;
use crate::frame::Frame;
use crate::text::{Text, encode};

/// Tokens of one page.
const ROWS: &str = "100";

/// A token, as the API lists it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    id: Text,
    name: Text,
    user: User,
    agent: AgentRef,
    state: Text,
    expires_at: Timestamp,
    #[serde(default)]
    last_used_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct User {
    pub(super) username: Text,
}

#[derive(Debug, Deserialize)]
pub(super) struct AgentRef {
    id: i64,
    /// Absent if it no longer exists.
    #[serde(default)]
    name: Option<Text>,
}

impl AgentRef {
    pub(super) fn label(&self) -> Text {
        self.name
            .clone()
            .unwrap_or_else(|| Text::from(format!("agent {} (deleted)", self.id)))
    }
}

impl Token {
    /// The kind of its badge.
    fn mark(&self) -> &'static str {
        match self.state.raw() {
            "active" => "good",
            "revoked" => "bad",
            _ => "plain",
        }
    }
}

/// What was typed into the form for a new token, and why it was refused.
#[derive(Clone, Debug, Default)]
pub(super) struct Typed {
    name: String,
    agent: String,
    lifetime: String,
    refusal: Option<Refusal>,
}

/// A token that was just made, with its secret.
#[derive(Deserialize)]
struct Created {
    token: Token,
    bearer: String,
}

#[derive(Template)]
#[template(path = "tokens.html")]
struct TokensPage<'a> {
    frame: &'a Frame,
    tokens: &'a [Token],
    agents: &'a [Agent],
    typed: &'a Typed,
    is_about_all: bool,
    /// Why the list cannot be shown.
    refusal: Option<&'a Refusal>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "token.html")]
struct TokenPage<'a> {
    frame: &'a Frame,
    token: &'a Token,
    bearer: &'a str,
    server: Option<&'a Text>,
}

impl Typed {
    /// Where the problem belongs: beside the field of this name.
    fn is_about(&self, field: &str) -> bool {
        let Some(refusal) = &self.refusal else { return false };
        let about = match refusal.reason.raw() {
            "bad_lifetime" => "lifetime",
            "unknown_agent" | "id_tokens_only" => "agent",
            "bad_content" if refusal.message.raw().contains("`name`") => "name",
            _ => "form",
        };
        about == field
    }

    fn message(&self) -> Text {
        let message = self.refusal.as_ref().map(|refusal| refusal.message.clone());
        message.unwrap_or_default()
    }

    /// Whether the form is shown at once: it was sent, or another page led to it.
    fn is_open(&self) -> bool {
        self.refusal.is_some() || !self.agent.is_empty()
    }
}

impl View<'_> {
    /// - `typed`: what the form has in it.
    pub(super) async fn tokens(&self, typed: Typed) -> Answer {
        let list = Query::new()
            .with_fields(&self.query, &["user", "continue"])
            .with("limit", ROWS);
        let (path, about_agents) = (list.at("/api/v1/tokens"), "/api/v1/agents");
        let tokens = ask::get::<Items<Token>>(self.api, &path).await;
        let (tokens, next, refusal) = match tokens {
            Ok(list) => (list.items, list.next, None),
            Err(refusal) if refusal.status == StatusCode::UNAUTHORIZED => return Err(refusal.into()),
            // A person who may see no tokens may still make one, or learn why not.
            Err(refusal) => (Vec::new(), None, Some(refusal)),
        };
        let agents = ask::get::<Items<Agent>>(self.api, about_agents).await;
        let mut agents = agents.map(|list| list.items).unwrap_or_default();
        agents.retain(|agent| agent.access_as.is_some());
        let asked = self.query.text("agent").to_owned();
        let typed = match typed.refusal {
            Some(_) => typed,
            None => Typed { agent: asked, ..typed },
        };
        let page = TokensPage {
            frame: &self.frame,
            tokens: &tokens,
            agents: &agents,
            typed: &typed,
            is_about_all: self.is_about_all(),
            refusal: refusal.as_ref(),
            next: self.next("/console/tokens", &["user"], "continue", next.as_deref()),
        };
        if typed.refusal.is_some() {
            return self.page_with_problem(&page);
        }
        let mut response = self.page(&page)?;
        if let Some(refusal) = &refusal {
            *response.status_mut() = refusal.status;
        }
        Ok(response)
    }

    /// Makes a token, or revokes one.
    pub(super) async fn change_tokens(&self) -> Answer {
        match self.form.get("revoke") {
            Some(id) => self.revoke_token(id).await,
            None => self.create_token().await,
        }
    }

    async fn revoke_token(&self, id: &str) -> Answer {
        ask::delete(self.api, &format!("/api/v1/tokens/{}", encode(id))).await?;
        Ok(self.back_to("/console/tokens"))
    }

    async fn create_token(&self) -> Answer {
        let content = self.form.object(&["name", "agent", "lifetime"]);
        match ask::post::<Created>(self.api, "/api/v1/tokens", &content).await {
            Ok(created) => {
                let agents = ask::get::<Items<Agent>>(self.api, "/api/v1/agents").await;
                let agents = agents.map(|list| list.items).unwrap_or_default();
                let agent = agents.iter().find(|agent| agent.name == created.token.agent.label());
                self.page(&TokenPage {
                    frame: &self.frame,
                    token: &created.token,
                    bearer: &created.bearer,
                    server: agent.and_then(Agent::server),
                })
            }
            Err(refusal) => {
                let typed = Typed {
                    name: self.form.text("name").to_owned(),
                    agent: self.form.text("agent").to_owned(),
                    lifetime: self.form.text("lifetime").to_owned(),
                    refusal: Some(refusal),
                };
                self.tokens(typed).await
            }
        }
    }

    /// Back to a list, about the same people.
    pub(super) fn back_to(&self, path: &str) -> Response<Bytes> {
        redirect(&Query::new().with_fields(&self.form, &["user"]).at(path))
    }
}
