//! Agents: the names under which people reach clusters.

use jiff::Timestamp;
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

/// Whether an agent's access follows its current files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigurationStatus {
    /// Access follows the current files.
    Good,
    /// The files have mistakes: the last good ones stay in force, or the agent is closed.
    Broken,
}

/// The public half of the Ed25519 key (RFC 8032) of a cluster's agent, by which the gateway knows it.
///
/// Its text form is 64 hexadecimal digits in lower case. It is not a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Debug)]
#[debug("AgentKey({self})")]
pub struct AgentKey([u8; 32]);

impl AgentKey {
    /// From the bytes of RFC 8032.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of RFC 8032.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }
}

/// Reads 32 bytes from 64 hexadecimal digits in lower case.
pub fn parse_hex(text: &str) -> Option<[u8; 32]> {
    // `from_str_radix` also takes upper case and `+f`, and a key has only one text form.
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 64 || !text.as_bytes().iter().all(is_digit) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

impl std::fmt::Display for AgentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The agent of a cluster that connects to the gateway, as the cluster's Secret has it (`config.agent`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterAgent {
    /// The public halves of its key that the Secret names. Agents that joined have others.
    pub keys: Vec<AgentKey>,
    /// How many processes of the agent may be connected at a time.
    pub processes: usize,
    /// The token with which one agent may join.
    pub join_token: Option<JoinToken>,
}

/// A token with which one agent may join, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// From then on it is worth nothing.
    pub expires_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::AgentKey;

    #[test]
    fn a_key_has_one_text_form() {
        let text = "00ff".repeat(16);
        let key = AgentKey::parse(&text).unwrap();
        assert_eq!(key.to_string(), text);
        assert_eq!(AgentKey::parse(&text.to_uppercase()), None);
        assert_eq!(AgentKey::parse(&"00ff".repeat(15)), None);
        assert_eq!(AgentKey::parse(&format!("+0ff{}", "00ff".repeat(15))), None);
    }
}
