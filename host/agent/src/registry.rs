//! What the gateway knows about agents apart from the Secrets of clusters: which ones have joined, and whom
//! it tells when they connect and disconnect. The gateway implements it with its store.

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use tollgate_core::agent::AgentKey;

/// Who an agent is, as far as it proved and said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentIdentity {
    /// The public half of the key that it proved.
    pub key: AgentKey,
    /// The server of the cluster that it is for; `None` if no cluster names it.
    pub server: Option<Arc<str>>,
    /// The cluster's name, as the agent's settings have it. It proves nothing.
    pub cluster: String,
    /// Its version.
    pub version: String,
    /// The address that it came from.
    pub address: IpAddr,
}

/// An agent that has a token and wants to join.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// Who it is.
    pub agent: AgentIdentity,
    /// The server of the cluster whose Secret has the token.
    pub server: Arc<str>,
    /// SHA-256 of the token.
    pub token: [u8; 32],
}

/// Why an agent may not join, or not change its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Another agent joined with the token.
    #[error("the join token was used by another connector")]
    TokenSpent,
    /// The key was revoked, or is of another cluster.
    #[error("the key cannot be used for this cluster")]
    Key,
    /// The gateway's settings have no section `connectors`, so it has nothing to remember connectors by.
    #[error("this gateway does not let connectors join: its settings have no section `connectors`")]
    Closed,
    /// The store does not answer.
    #[error("the gateway's store does not answer")]
    Unavailable,
}

/// What happened to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentEvent {
    /// Requests may go through it now.
    Connected,
    /// Its connection ended.
    Disconnected {
        /// Why, in snake case.
        reason: &'static str,
    },
    /// It was not let in.
    Refused {
        /// Why, in snake case.
        reason: &'static str,
    },
}

/// Remembers agents.
pub trait Registry: Debug + Send + Sync {
    /// Spends the token, and remembers the key as one of the cluster. Doing so again with the same key and token is no error.
    ///
    /// # Errors
    /// [`RegistryError`].
    fn join(&self, request: JoinRequest) -> BoxFuture<'_, Result<(), RegistryError>>;

    /// Remembers a key in the place of another one, which stays good for a day.
    ///
    /// # Errors
    /// [`RegistryError`].
    fn replace(&self, agent: AgentIdentity, new: AgentKey) -> BoxFuture<'_, Result<(), RegistryError>>;

    /// Counts a connection that ended before anybody proved to be what is connected there.
    fn count_refusal(&self, expected: Expected, reason: &'static str);

    /// Records what happened.
    fn record(&self, event: AgentEvent, agent: AgentIdentity) -> BoxFuture<'_, ()>;
}

/// Who connects at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Agents of clusters.
    Agent,
    /// Other replicas of the gateway.
    Replica,
}

/// Remembers nothing: agents are those whose keys the Secrets of clusters name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoRegistry;

impl Registry for NoRegistry {
    fn join(&self, _: JoinRequest) -> BoxFuture<'_, Result<(), RegistryError>> {
        Box::pin(std::future::ready(Err(RegistryError::Closed)))
    }

    fn replace(&self, _: AgentIdentity, _: AgentKey) -> BoxFuture<'_, Result<(), RegistryError>> {
        Box::pin(std::future::ready(Err(RegistryError::Closed)))
    }

    fn count_refusal(&self, _: Expected, _: &'static str) {}

    fn record(&self, _: AgentEvent, _: AgentIdentity) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
