//! The state of the replica that answers.

use askama::Template;
use serde::Deserialize;

use super::{Answer, View};
use crate::ask;
use crate::finding::Finding;
use crate::frame::Frame;
use crate::text::Text;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    version: Text,
    ready: bool,
    #[serde(default)]
    not_ready: Option<Text>,
    generation: u64,
    policy_sha256: Text,
    #[serde(default)]
    extensions: Vec<Text>,
    findings: Vec<Finding>,
    agents: u64,
}

impl Report {
    fn error_count(&self) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.severity == "error")
            .count()
    }
}

#[derive(Template)]
#[template(path = "system.html")]
struct SystemPage<'a> {
    frame: &'a Frame,
    report: &'a Report,
}

impl View<'_> {
    pub(super) async fn system(&self) -> Answer {
        let report: Report = ask::get(self.api, "/api/v1/system").await?;
        self.page(&SystemPage {
            frame: &self.frame,
            report: &report,
        })
    }
}
