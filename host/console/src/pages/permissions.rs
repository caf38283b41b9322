//! Why RBAC permits or refuses something, to the person or to somebody else.

use askama::Template;
use serde::Deserialize;

use super::{Answer, View};
use crate::ask::{self, Refusal};
use crate::form::{Fields, Query};
use crate::frame::Frame;
use crate::text::Text;

#[derive(Debug, Deserialize)]
struct Explanation {
    user: Text,
    allowed: bool,
    why: Text,
    #[serde(default)]
    rule: Option<Rule>,
    #[serde(default)]
    principals: Vec<Principal>,
    #[serde(default)]
    near_misses: Vec<NearMiss>,
    #[serde(default)]
    notes: Vec<Text>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    text: Text,
    location: Text,
}

#[derive(Debug, Deserialize)]
struct Principal {
    kind: Text,
    name: Text,
    #[serde(default)]
    roles: Vec<Text>,
    outcome: Text,
    #[serde(default)]
    rule: Option<Rule>,
}

#[derive(Debug, Deserialize)]
struct NearMiss {
    field: Text,
    wanted: Text,
    observed: Text,
    rule: Rule,
}

#[derive(Debug, Deserialize)]
struct WhoCan {
    #[serde(default)]
    everyone: Option<Holder>,
    allowed: Vec<Holder>,
    denied: Vec<Holder>,
    complete: bool,
    seen: Vec<Seen>,
}

/// A name of the policy, with the row that decides about it.
#[derive(Debug, Deserialize)]
struct Holder {
    #[serde(rename = "as")]
    kind: Text,
    name: Text,
    #[serde(default)]
    rule: Option<Rule>,
}

#[derive(Debug, Deserialize)]
struct Seen {
    username: Text,
    issuer: Text,
    groups: Vec<Text>,
}

impl WhoCan {
    /// The names that are listed, so that a page stays small.
    fn shown<'a>(&self, holders: &'a [Holder]) -> &'a [Holder] {
        holders.get(..HOLDERS).unwrap_or(holders)
    }

    fn hidden(&self, holders: &[Holder]) -> usize {
        holders.len().saturating_sub(HOLDERS)
    }

    fn shown_seen(&self) -> &[Seen] {
        self.seen.get(..HOLDERS).unwrap_or(&self.seen)
    }
}

impl Holder {
    fn kind_text(&self) -> &'static str {
        match self.kind.raw() {
            "user" => "a person",
            "group" => "a group",
            "account" => "an account of Argo CD",
            "project-token" => "a project's token",
            "role" => "a role",
            _ => "something of another version of Tollgate",
        }
    }
}

impl Explanation {
    fn reason(&self) -> &'static str {
        match self.why.raw() {
            "allowed" => "A row of the policy allows it, and none that counts denies it.",
            "denied_by_rule" => "A row of the policy denies it.",
            "no_rule" => "No row of the policy that counts for this person allows it.",
            _ => "A row that had to be evaluated holds an invalid expression, so it is refused.",
        }
    }
}

impl Principal {
    fn title(&self) -> Text {
        match self.kind.raw() {
            "default-role" => Text::from("the default role"),
            "everyone" => Text::from("everyone"),
            _ => self.name.clone(),
        }
    }

    fn outcome_text(&self) -> &'static str {
        match self.outcome.raw() {
            "allow" => "allows it",
            "deny" => "denies it",
            "no-rule" => "has no row about it",
            "evaluation-error" => "has a row with an invalid expression",
            "reserved-name" => "does not count: an identity provider may not give anybody this name",
            "group-without-grant" => "does not count: no `g` line names the group",
            "foreign-project" => "does not count: the token is of another project",
            "token-only" => "does not count: in its own project a token counts by its role alone",
            _ => "has an outcome of another version of Tollgate",
        }
    }
}

#[derive(Template)]
#[template(path = "permissions.html")]
struct PermissionsPage<'a> {
    frame: &'a Frame,
    query: &'a Fields,
    explanation: Option<&'a Explanation>,
    who_can: Option<&'a WhoCan>,
    refusal: Option<&'a Refusal>,
}

/// Names of one list.
const HOLDERS: usize = 200;

impl View<'_> {
    async fn who_can(&self) -> Answer {
        let query = Query::new().with_fields(&self.query, &["resource", "action", "object"]);
        let asked = ask::get::<WhoCan>(self.api, &query.at("/api/v1/rbac/who-can")).await;
        let page = PermissionsPage {
            frame: &self.frame,
            query: &self.query,
            explanation: None,
            who_can: asked.as_ref().ok(),
            refusal: asked.as_ref().err(),
        };
        match &asked {
            Err(_) => self.page_with_problem(&page),
            Ok(_) => self.page(&page),
        }
    }

    pub(super) async fn permissions(&self) -> Answer {
        if self.query.get("who").is_some() {
            return self.who_can().await;
        }
        let is_asked = ["resource", "action"].iter().any(|name| self.query.get(name).is_some());
        let mut query = Query::new().with_fields(&self.query, &["resource", "action", "object", "user"]);
        for group in self.query.text("groups").split([',', '\n']).map(str::trim) {
            query = query.with_some("group", Some(group).filter(|group| !group.is_empty()));
        }
        let asked = match is_asked {
            true => Some(ask::get::<Explanation>(self.api, &query.at("/api/v1/rbac/explain")).await),
            false => None,
        };
        let (explanation, refusal) = match asked {
            Some(Ok(explanation)) => (Some(explanation), None),
            Some(Err(refusal)) => (None, Some(refusal)),
            None => (None, None),
        };
        let page = PermissionsPage {
            frame: &self.frame,
            query: &self.query,
            explanation: explanation.as_ref(),
            who_can: None,
            refusal: refusal.as_ref(),
        };
        match &refusal {
            Some(_) => self.page_with_problem(&page),
            None => self.page(&page),
        }
    }
}
