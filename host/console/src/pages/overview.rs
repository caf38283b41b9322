//! The first page: what is the person's, and what was refused to them lately.

use askama::Template;
use serde_json::Value;

use super::clusters::{Agent, Discovery};
use super::decisions::Decision;
use super::{Answer, View};
use crate::ask::{self, Items};
use crate::chart::History;
use crate::frame::Frame;
use crate::text::Text;

/// Decisions that the chart counts.
const COUNTED: &str = "1000";
/// Refusals that are listed.
const LISTED: usize = 5;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage<'a> {
    frame: &'a Frame,
    /// `None` while clusters are not shared through agents.
    clusters: Option<&'a [Agent]>,
    sessions: Option<usize>,
    requests: usize,
    refusal_count: usize,
    refusals: &'a [&'a Decision],
    history: &'a History,
    console: &'a Text,
}

impl View<'_> {
    pub(super) async fn overview(&self) -> Answer {
        // The settings may leave either part off, and the page does without it then.
        let agents = ask::get::<Items<Agent>>(self.api, "/api/v1/agents").await.ok();
        let sessions = ask::get::<Items<Value>>(self.api, "/api/v1/sessions?limit=1000")
            .await
            .ok();
        let decisions = self.latest_decisions(COUNTED).await?.items;
        let discovery: Discovery = ask::get(self.api, "/api/v1/login").await?;
        let refusals: Vec<&Decision> = decisions.iter().filter(|decision| decision.is_refusal()).collect();
        let points = decisions
            .iter()
            .map(|decision| (decision.timestamp, decision.is_refusal()));
        self.page(&OverviewPage {
            frame: &self.frame,
            clusters: agents.as_ref().map(|list| list.items.as_slice()),
            sessions: sessions.map(|list| list.items.len()),
            requests: decisions.len(),
            refusal_count: refusals.len(),
            history: &History::new(points, self.frame.now),
            refusals: refusals.get(..LISTED).unwrap_or(&refusals),
            console: &discovery.console,
        })
    }
}
