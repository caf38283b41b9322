//! The Kubernetes objects the gateway works from, decoded, with positions.
//!
//! In: a source ([`directory`] now; a cluster later). Out: [`Resources`].
//! Never: a decision; a secret in `Debug`.

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::SecretString;

use crate::diagnostic::Location;

pub mod agent;
mod cluster;
mod decode;
pub mod destination;
pub mod directory;
pub(crate) mod fields;
pub mod people;
pub mod watch;
pub(crate) mod yaml;

pub use cluster::{ClusterAuth, ClusterConfig, ClusterTls, Verification};

/// A text value of a ConfigMap and the line its first character stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The value as YAML decodes it.
    pub value: Arc<str>,
    /// Line of the value's first line of text.
    pub location: Location,
}

/// A ConfigMap's `data`.
#[derive(Clone, Debug, Default)]
pub struct ConfigMap {
    /// Values by key, in key order.
    pub data: BTreeMap<String, Text>,
}

/// A Secret with its values decoded.
#[derive(Clone, Debug)]
pub struct Secret {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `data` (base64 decoded) and `stringData`, the latter winning.
    pub values: BTreeMap<String, SecretString>,
    /// Where the object starts.
    pub location: Location,
}

/// A namespaced name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// Where an Application deploys to, as its spec says it; empty means not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// Cluster name.
    pub name: String,
    /// Cluster API server URL.
    pub server: String,
    /// Namespace in that cluster.
    pub namespace: String,
}

/// What the gateway needs of an `Application`.
#[derive(Clone, Debug)]
pub struct Application {
    /// Namespace and name.
    pub name: ObjectName,
    /// `spec.project`, `default` when empty.
    pub project: String,
    /// `spec.destination`.
    pub destination: Destination,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// Where the object starts.
    pub location: Location,
}

/// A role of an `AppProject`.
#[derive(Clone, Debug)]
pub struct ProjectRole {
    /// Role name; its RBAC subject is `proj:<project>:<role>`.
    pub name: String,
    /// Policy lines, each with its place.
    pub policies: Vec<Text>,
    /// Groups that hold the role.
    pub groups: Vec<Text>,
    /// Tokens issued for the role: `iat` in seconds, `id` is the `jti`.
    pub tokens: Vec<RoleToken>,
    /// Where the role starts.
    pub location: Location,
}

/// A token that was issued for a project role and is not revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleToken {
    /// `jti` of the token; empty for tokens older than that field.
    pub id: String,
    /// `iat`, seconds since 1970.
    pub issued_at: i64,
    /// `exp`, seconds since 1970; 0 for never.
    pub expires_at: i64,
}

/// What the gateway needs of an `AppProject`.
#[derive(Clone, Debug)]
pub struct Project {
    /// `metadata.name`.
    pub name: String,
    /// `spec.destinations`.
    pub destinations: Vec<Destination>,
    /// `spec.sourceRepos`.
    pub source_repos: Vec<String>,
    /// `spec.sourceNamespaces`.
    pub source_namespaces: Vec<String>,
    /// `spec.permitOnlyProjectScopedClusters`.
    pub permit_only_project_scoped_clusters: bool,
    /// `spec.roles`.
    pub roles: Vec<ProjectRole>,
    /// Where the object starts.
    pub location: Location,
}

/// A cluster known from a cluster Secret, or the control plane's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Display name, unique by convention only.
    pub name: String,
    /// API server URL.
    pub server: String,
    /// Project the cluster belongs to; empty for all.
    pub project: String,
}

/// Every object of one load.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    /// Namespace of the control plane, normally `argocd`.
    pub control_plane_namespace: String,
    /// ConfigMap `argocd-cm`.
    pub argocd_cm: ConfigMap,
    /// ConfigMap `argocd-rbac-cm`.
    pub rbac_cm: ConfigMap,
    /// Secrets of the control-plane namespace by name, `argocd-secret` among them.
    pub secrets: BTreeMap<String, Secret>,
    /// Projects by name.
    pub projects: BTreeMap<String, Arc<Project>>,
    /// Applications by namespace and name.
    pub applications: BTreeMap<ObjectName, Arc<Application>>,
    /// Clusters, `in-cluster` first unless switched off.
    pub clusters: Vec<Cluster>,
    /// How each of [`Self::clusters`] is reached, by server.
    pub cluster_configs: BTreeMap<String, Arc<ClusterConfig>>,
    /// Agents of the Kubernetes front by name, broken ones among them.
    pub agents: BTreeMap<String, Arc<agent::AgentObject>>,
    /// Users, groups and projects.
    pub people: Arc<people::Directory>,
}
