//! The clusters that are shared with the person, and how to use one.

use askama::Template;
use serde::Deserialize;

use super::{Answer, Stop, View};
use crate::ask::{self, Items};
use crate::form::Query;
use crate::frame::Frame;
use crate::text::{Text, is_hidden};

/// An agent, as the API lists it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Agent {
    pub(super) id: i64,
    pub(super) name: Text,
    pub(super) cluster: Text,
    /// `agent`, `user` or `mapped`; absent if it is not shared with the person.
    #[serde(default)]
    pub(super) access_as: Option<Text>,
    #[serde(default)]
    pub(super) roles: Vec<Share>,
    pub(super) kubeconfig: Kubeconfig,
}

#[derive(Debug, Deserialize)]
pub(super) struct Share {
    kind: Text,
    path: Text,
    roles: Vec<Text>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Kubeconfig {
    /// Absent if the settings have no URL.
    #[serde(default)]
    server: Option<Text>,
}

impl Agent {
    /// Whose rights the person has in the cluster.
    pub(super) fn acts_as(&self) -> &'static str {
        match self.access_as.as_ref().map(Text::raw) {
            Some("agent") => "the agent's own account",
            Some("user") => "you, with your groups and roles",
            Some("mapped") => "the account that the agent's rules give you",
            Some(_) => "an account of another version of Tollgate",
            None => "not shared with you",
        }
    }

    /// URL of its API, if the settings have one.
    pub(super) fn server(&self) -> Option<&Text> {
        self.kubeconfig.server.as_ref()
    }

    /// Where its page is.
    pub(super) fn path(&self) -> String {
        format!("/console/clusters/{}", self.name.encoded())
    }
}

impl Share {
    /// The highest role, which comes last.
    fn role(&self) -> &str {
        self.roles.last().map(Text::raw).unwrap_or_default()
    }
}

#[derive(Template)]
#[template(path = "clusters.html")]
struct ClustersPage<'a> {
    frame: &'a Frame,
    agents: &'a [Agent],
    is_about_all: bool,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "cluster.html")]
struct ClusterPage<'a> {
    frame: &'a Frame,
    agent: &'a Agent,
    /// URL of the console, for `tollgate login`.
    console: &'a Text,
    /// Where to make a token for it.
    token_path: String,
    /// The name as a word of a shell, if it can be one.
    word: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Discovery {
    pub(super) console: Text,
}

impl View<'_> {
    pub(super) async fn clusters(&self) -> Answer {
        let everybody = if self.is_about_all() { "?user=*" } else { "" };
        let agents: Items<Agent> = ask::get(self.api, &format!("/api/v1/agents{everybody}")).await?;
        let (agents, next) = self.slice("/console/clusters", &["user"], &agents.items);
        self.page(&ClustersPage {
            frame: &self.frame,
            agents,
            is_about_all: self.is_about_all(),
            next,
        })
    }

    pub(super) async fn cluster(&self, name: &str) -> Answer {
        let agents: Items<Agent> = ask::get(self.api, "/api/v1/agents").await?;
        let agent = agents
            .items
            .iter()
            .find(|agent| agent.name == *name)
            .ok_or(Stop::NotFound)?;
        let discovery: Discovery = ask::get(self.api, "/api/v1/login").await?;
        self.page(&ClusterPage {
            frame: &self.frame,
            agent,
            console: &discovery.console,
            token_path: Query::new().with("agent", agent.name.raw()).at("/console/tokens"),
            word: shell_word(name),
        })
    }
}

/// A name as one word of a POSIX shell. `None` if it has characters that nobody sees, or would be taken
/// for an option: a command that is copied must do what it shows.
pub(super) fn shell_word(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    if text.starts_with('-') || text.chars().any(is_hidden) {
        return None;
    }
    Some(match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    })
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn names_are_one_word_of_a_shell() {
        for (name, word) in [
            ("prod-eu", "prod-eu"),
            ("", "''"),
            ("a b", "'a b'"),
            ("$(reboot)", "'$(reboot)'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(shell_word(name).as_deref(), Some(word));
        }
        for name in ["-a", "a\nreboot", "a\u{202e}b", "a\u{1b}[2J", "a\u{200b}b"] {
            assert_eq!(shell_word(name), None, "{name:?}");
        }
    }
}
