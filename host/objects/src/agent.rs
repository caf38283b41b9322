//! Agents, and who their configurations share them with.
//!
//! Security: a configuration that has mistakes shares its agent with nobody.

use std::sync::Arc;

use serde_json::Value;

use tollgate_core::agent::AgentId;
use tollgate_core::diagnostic::Location;

/// An `Agent` object with its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentObject {
    /// `metadata.name`; the folder of its `config.yaml`.
    pub name: String,
    /// What the agent is bound to; `None` when its `spec` has mistakes.
    pub binding: Option<AgentBinding>,
    /// Who it is shared with.
    pub sharing: Sharing,
    /// Its whole configuration, as a remote platform receives it: an empty object if there is none, `None`
    /// if it has mistakes.
    pub configuration: Option<Arc<Value>>,
    /// Where the object starts.
    pub location: Location,
}

/// The id, configuration project and cluster of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentBinding {
    /// `spec.id`.
    pub id: AgentId,
    /// `spec.configProject.id`.
    pub config_project: i64,
    /// `spec.cluster`: name or server of a cluster.
    pub cluster: String,
}

/// Who an agent is shared with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// There is no configuration, or no `user_access` in it.
    #[default]
    Nobody,
    /// `user_access`.
    People(Arc<UserAccess>),
    /// The configuration has mistakes, each of them a finding of the load.
    Invalid,
}

/// `user_access` without mistakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserAccess {
    /// `access_as`.
    pub access_mode: AccessMode,
    /// Paths of `projects`, in lower case, each once, at most 500.
    pub projects: Vec<Arc<str>>,
    /// Paths of `groups`, in lower case, each once, at most 500.
    pub groups: Vec<Arc<str>>,
    /// Where `user_access` starts.
    pub location: Location,
}

/// The identity under which users access the cluster: `access_as`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// `agent: {}`.
    Agent,
    /// `user: {}`.
    User,
    /// `mapped: {}`.
    Mapped(MappedAuthorization),
}

/// What authorizes a caller with a mapped identity, besides the ID token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedAuthorization {
    /// The issuer's agent claim. The configuration has neither `projects` nor `groups`.
    Claim,
    /// Membership, because `projects` or `groups` is present, even if it is empty.
    Membership,
}
