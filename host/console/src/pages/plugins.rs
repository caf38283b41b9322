//! The plugins that are loaded, and what each may do.

use askama::Template;
use serde::Deserialize;

use super::{Answer, View};
use crate::ask::{self, Items};
use crate::frame::Frame;
use crate::text::Text;

/// A plugin, as the API lists it.
#[derive(Debug, Deserialize)]
struct Plugin {
    name: Text,
    version: Text,
    world: Text,
    sha256: Text,
    #[serde(default)]
    filters: Vec<Text>,
    #[serde(default)]
    imports: Vec<Text>,
    #[serde(default)]
    extensions: Vec<Text>,
    #[serde(default)]
    provider: Option<Provider>,
    origin: Text,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Provider {
    hosts: Vec<Text>,
    secrets: Vec<Scope>,
    audiences: Vec<Scope>,
    output_headers: Vec<Text>,
}

#[derive(Debug, Deserialize)]
struct Scope {
    name: Text,
}

#[derive(Template)]
#[template(path = "plugins.html")]
struct PluginsPage<'a> {
    frame: &'a Frame,
    plugins: &'a [Plugin],
}

impl View<'_> {
    pub(super) async fn plugins(&self) -> Answer {
        let list: Items<Plugin> = ask::get(self.api, "/api/v1/plugins").await?;
        self.page(&PluginsPage {
            frame: &self.frame,
            plugins: &list.items,
        })
    }
}
