//! Agents: the names under which people reach clusters.

use serde::{Deserialize, Serialize};

/// Number of an agent: 1 to 2^63 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, derive_more::Display)]
#[serde(transparent)]
pub struct AgentId(i64);

impl AgentId {
    /// The number; `None` when it is out of range.
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

/// An agent and the cluster it is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its number.
    pub id: AgentId,
    /// Its name, which is also the folder of its `config.yaml`.
    pub name: String,
    /// Number of the project that holds its configuration.
    pub config_project: i64,
    /// Name of its cluster, as cluster Secrets have it.
    pub cluster: String,
}

impl Agent {
    /// Identifies the agent by more than its number, which can be given to another agent or
    /// cluster. Names are DNS labels, so no two agents have the same identity.
    pub fn identity(&self) -> String {
        format!("{}/{}", self.name, self.cluster)
    }
}
