//! Agents: the names that clusters have for people.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Number of an agent: 1 to 2^63 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentId(i64);

impl AgentId {
    /// The number, where it can be one.
    pub fn new(number: i64) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    /// Reads canonical decimal: no sign, no leading zero, nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        text.parse().ok().filter(|_| canonical).and_then(Self::new)
    }

    /// The number.
    pub fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An agent, bound to its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its number.
    pub id: AgentId,
    /// Its name: the folder of its `config.yaml`.
    pub name: String,
    /// Number of the project that holds its configuration.
    pub config_project: i64,
    /// Name of the cluster it stands for, as cluster Secrets have it.
    pub cluster: String,
}

impl Agent {
    /// What it is besides its number, which can be given to another agent or cluster.
    /// Names are DNS labels, so that no two agents have one identity.
    pub fn identity(&self) -> String {
        format!("{}/{}", self.name, self.cluster)
    }
}
