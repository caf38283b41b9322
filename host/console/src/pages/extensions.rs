//! The extensions that the person may invoke, and for operators where they run.

use askama::Template;
use jiff::Timestamp;
use serde::Deserialize;

use super::{Answer, View};
use crate::ask::{self, Items};
use crate::form::{Fields, Query};
use crate::frame::Frame;
use crate::text::Text;

/// An extension, as the API lists it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Extension {
    name: Text,
    scope: Text,
    may_invoke: bool,
    #[serde(default)]
    operations: Option<Operations>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Operations {
    location: Text,
    services: Vec<Service>,
    limits: Limits,
    timeouts: Timeouts,
    failures: usize,
    #[serde(default)]
    last_failure: Option<Failure>,
}

#[derive(Debug, Deserialize)]
struct Service {
    url: Text,
    #[serde(default)]
    cluster: Text,
    #[serde(default)]
    server: Text,
    headers: Vec<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Limits {
    concurrency: Option<u32>,
    requests_per_second: Option<u32>,
    concurrency_per_person: Option<u32>,
    requests_per_second_per_person: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Timeouts {
    idle: Option<u64>,
    total: Option<u64>,
    upgrade_lifetime: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Failure {
    decision: Text,
    at: Timestamp,
    reason: Text,
}

impl Extension {
    fn about(&self) -> &'static str {
        match self.scope.raw() {
            "application" => "an Application",
            "project" => "a project",
            "global" => "nothing in particular",
            _ => "something of another version of Tollgate",
        }
    }

    /// The address that explains whether the person may invoke it.
    fn why(&self) -> String {
        let query = Query::new().with("resource", "extensions").with("action", "invoke");
        query.with("object", self.name.raw()).at("/console/permissions")
    }
}

impl Operations {
    /// The limits that there are.
    fn limits_text(&self) -> String {
        let part = |count: Option<u32>, what: &str| count.map(|count| format!("{count} {what}"));
        let limits = &self.limits;
        let parts = [
            part(limits.concurrency, "at once"),
            part(limits.requests_per_second, "a second"),
            part(limits.concurrency_per_person, "at once for each person"),
            part(limits.requests_per_second_per_person, "a second for each person"),
        ];
        joined(parts.into_iter())
    }

    fn timeouts_text(&self) -> String {
        let part = |seconds: Option<u64>, what: &str| seconds.map(|seconds| format!("{what} {seconds} s"));
        let timeouts = &self.timeouts;
        let parts = [
            part(timeouts.idle, "silence"),
            part(timeouts.total, "whole request"),
            part(timeouts.upgrade_lifetime, "upgraded connection"),
        ];
        joined(parts.into_iter())
    }
}

fn joined(parts: impl Iterator<Item = Option<String>>) -> String {
    let parts: Vec<String> = parts.flatten().collect();
    match parts.is_empty() {
        true => "none".to_owned(),
        false => parts.join(", "),
    }
}

#[derive(Template)]
#[template(path = "extensions.html")]
struct ExtensionsPage<'a> {
    frame: &'a Frame,
    extensions: &'a [Extension],
    query: &'a Fields,
    next: Option<String>,
}

impl View<'_> {
    pub(super) async fn extensions(&self) -> Answer {
        let query = Query::new().with_fields(&self.query, &["project"]);
        let list: Items<Extension> = ask::get(self.api, &query.at("/api/v1/tollgate/extensions")).await?;
        let (extensions, next) = self.slice("/console/extensions", &["project"], &list.items);
        self.page(&ExtensionsPage {
            frame: &self.frame,
            extensions,
            query: &self.query,
            next,
        })
    }
}
