//! Which account acts for each Application that the person may see.

use askama::Template;
use serde::Deserialize;

use super::clusters::shell_word;
use super::{Answer, View};
use crate::ask;
use crate::form::{Fields, Query};
use crate::frame::Frame;
use crate::text::{Text, encode};

/// Applications of one page.
const ROWS: &str = "100";
/// The fields of the filter.
const PARAMETERS: [&str; 3] = ["project", "name", "refused"];

/// A page of Applications, as the API lists them.
#[derive(Debug, Deserialize)]
struct List {
    mode: Text,
    items: Vec<Application>,
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Application {
    namespace: Text,
    name: Text,
    project: Text,
    #[serde(default)]
    cluster: Option<Text>,
    destination: Text,
    #[serde(default)]
    account: Option<Text>,
    #[serde(default)]
    entry: Option<usize>,
    #[serde(default)]
    error: Option<Text>,
    refused: bool,
}

impl Application {
    fn project_path(&self) -> String {
        format!("/console/projects/{}", encode(self.project.raw()))
    }

    /// The number of the entry that decided, as the project's page counts.
    fn number(&self) -> Option<usize> {
        self.entry.map(|entry| entry.saturating_add(1))
    }

    /// The command for a kubeconfig that acts as this account.
    fn command(&self) -> Option<String> {
        let name = format!("{}/{}", self.namespace.raw(), self.name.raw());
        Some(format!(
            "tollgate kubeconfig --application {} --write",
            shell_word(&name)?
        ))
    }
}

#[derive(Template)]
#[template(path = "identities.html")]
struct IdentitiesPage<'a> {
    frame: &'a Frame,
    list: &'a List,
    query: &'a Fields,
    is_filtered: bool,
    next: Option<String>,
}

impl IdentitiesPage<'_> {
    fn mode_text(&self) -> &'static str {
        match self.list.mode.raw() {
            "enforce" => "Accounts act: requests about an Application reach its cluster as the account that is listed.",
            "audit" => "Accounts are only audited: the gateway acts as itself, and notes who would have.",
            _ => "Impersonation is off: the gateway acts as itself. Listed is who would act.",
        }
    }
}

impl View<'_> {
    pub(super) async fn identities(&self) -> Answer {
        let query = Query::new()
            .with_fields(&self.query, &PARAMETERS)
            .with_fields(&self.query, &["continue"])
            .with("limit", ROWS);
        let list: List = ask::get(self.api, &query.at("/api/v1/tollgate/applications")).await?;
        self.page(&IdentitiesPage {
            frame: &self.frame,
            query: &self.query,
            is_filtered: PARAMETERS.iter().any(|name| self.query.get(name).is_some()),
            next: self.next("/console/identities", &PARAMETERS, "continue", list.next.as_deref()),
            list: &list,
        })
    }
}
