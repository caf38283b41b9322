//! The credentials with which the gateway enters clusters. None is shown, only its state.

use askama::Template;
use jiff::Timestamp;
use serde::Deserialize;

use super::clusters::shell_word;
use super::{Answer, View};
use crate::ask::{self, Items};
use crate::frame::Frame;
use crate::text::Text;

/// A cluster with its credential's state, as the API lists it.
#[derive(Debug, Deserialize)]
struct Cluster {
    name: Text,
    server: Text,
    #[serde(default)]
    project: Text,
    provider: Text,
    credential: Credential,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credential {
    standing: Text,
    #[serde(default)]
    minted_at: Option<Timestamp>,
    #[serde(default)]
    expires_at: Option<Timestamp>,
    #[serde(default)]
    last_error: Option<LastError>,
    #[serde(default)]
    next_attempt: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
struct LastError {
    class: Text,
    code: Text,
    #[serde(default)]
    at: Option<Timestamp>,
}

impl Cluster {
    /// The command that says more.
    fn command(&self) -> Option<String> {
        let word = shell_word(self.name.raw())?;
        Some(format!("tollgate credential explain {word}"))
    }
}

impl Credential {
    /// `good`, `bad` or `none`, for the mark beside the text.
    fn mark(&self) -> &'static str {
        match self.standing.raw() {
            "unusable" | "failing" | "failed" => "bad",
            _ if self.last_error.is_some() => "warn",
            _ => "good",
        }
    }
}

#[derive(Template)]
#[template(path = "credentials.html")]
struct CredentialsPage<'a> {
    frame: &'a Frame,
    clusters: &'a [Cluster],
    next: Option<String>,
}

impl View<'_> {
    pub(super) async fn credentials(&self) -> Answer {
        let list: Items<Cluster> = ask::get(self.api, "/api/v1/tollgate/clusters").await?;
        let (clusters, next) = self.slice("/console/credentials", &[], &list.items);
        self.page(&CredentialsPage {
            frame: &self.frame,
            clusters,
            next,
        })
    }
}
