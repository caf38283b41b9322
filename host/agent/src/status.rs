//! What people and programs learn about a connected agent.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use tollgate_core::agent::AgentKey;

/// One agent that is connected, for people and programs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// The public half of its key.
    #[serde(serialize_with = "as_text")]
    pub key: AgentKey,
    /// The server of its cluster.
    pub server: Arc<str>,
    /// The cluster's name, as the agent's settings have it.
    pub cluster: String,
    /// The agent's version.
    pub version: String,
    /// The address that it came from.
    pub address: IpAddr,
    /// The replica of the gateway that it is connected to.
    pub replica: Uuid,
    /// Since when.
    pub connected_since: Timestamp,
    /// When anything last came from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    /// How long it took to answer, when it was last asked, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// Open requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<usize>,
    /// Bytes that came from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// Bytes that went to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
}

fn as_text<S: serde::Serializer>(key: &AgentKey, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(key)
}
