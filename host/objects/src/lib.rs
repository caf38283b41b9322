//! The Kubernetes objects that the gateway works from, decoded into [`Resources`] with their locations. Nothing here
//! does I/O or decides on access.
//!
//! Security: `Debug` shows no secret.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use tollgate_core::diagnostic::Location;

pub mod agent;
mod application_set_status;
mod cluster;
pub mod decode;
pub mod destination;
pub mod equivalence;
pub mod extensions;
mod fields;
mod generator;
pub mod network;
pub mod people;
mod repository;
mod scoped_objects;

pub use application_set_status::{ApplicationSetStatus, ApplicationSetStatuses};
pub use cluster::{ClusterAuth, ClusterConfig, ClusterTls, TlsVerification, are_certificates};
pub use generator::GeneratorKind;
pub use repository::{Repository, RepositoryAuth, RepositoryKind};
pub use scoped_objects::ScopedObjects;

/// How old what a watch knows is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchAge {
    /// The resource, such as `applications.argoproj.io`.
    pub resource: String,
    /// Whether the watch is broken, so that what is known may be out of date.
    pub is_broken: bool,
    /// Time since the last event; `None` if there was none yet.
    pub since_event: Option<Duration>,
    /// Time since the last list was complete; `None` if none was yet.
    pub since_list: Option<Duration>,
}

/// A text value and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The value as YAML decodes it.
    pub value: Arc<str>,
    /// Line of the value's first line of text.
    pub location: Location,
}

/// A ConfigMap's `data`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMap {
    /// Values by key, in key order.
    pub data: BTreeMap<String, Text>,
}

/// A Secret with its values decoded.
#[derive(Clone, Debug)]
pub struct Secret {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `data` (base64 decoded) and `stringData`; the latter wins.
    pub values: BTreeMap<String, SecretString>,
    /// Where the object starts.
    pub location: Location,
}

impl Secret {
    /// Whether both say the same. Unlike the version of an object, this changes with what is used only.
    pub fn is_same(&self, other: &Self) -> bool {
        let Self {
            labels,
            values,
            location,
        } = self;
        let mut pairs = values.iter().zip(&other.values);
        *labels == other.labels
            && *location == other.location
            && values.len() == other.values.len()
            && pairs.all(|((key, one), (of, two))| key == of && one.expose_secret() == two.expose_secret())
    }

    /// A value; empty if there is none.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.values.get(key).map_or("", |value| value.expose_secret())
    }
}

/// A namespaced name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct ObjectName {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// Where an Application deploys to, as its spec says; empty means not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// Cluster name.
    pub name: String,
    /// Cluster API server URL.
    pub server: String,
    /// Namespace in that cluster.
    pub namespace: String,
}

/// The parts of an `Application` that the gateway needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// Namespace and name.
    pub name: ObjectName,
    /// `spec.project`, `default` when empty.
    pub project: String,
    /// `spec.destination`.
    pub destination: Destination,
    /// The repositories of its sources, as Argo CD selects them: those of `sourceHydrator`, else of
    /// `sources`, else of `source`. Empty if there are no sources.
    pub repositories: Vec<String>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// The ApplicationSet that controls it, by its owner references.
    pub application_set: Option<SetReference>,
    /// Where the object starts.
    pub location: Location,
}

/// An owner reference to an ApplicationSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetReference {
    /// Name, in the namespace of what it owns.
    pub name: String,
    /// Identity of the object. A set that is created again has the name, and another identity. Empty in
    /// files, which do not name it.
    pub uid: String,
}

/// A role of an `AppProject`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectRole {
    /// Role name; its RBAC subject is `proj:<project>:<role>`.
    pub name: String,
    /// Policy lines and their locations.
    pub policies: Vec<Text>,
    /// Groups that hold the role.
    pub groups: Vec<Text>,
    /// Tokens issued for the role.
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

/// An entry of `spec.destinationServiceAccounts`, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationServiceAccount {
    /// Pattern of the cluster's API server URL.
    pub server: String,
    /// Pattern of the Application's destination namespace; empty matches only an
    /// empty one.
    pub namespace: String,
    /// `name`, in the destination namespace, or `namespace:name`.
    pub default_service_account: String,
    /// Where the entry starts.
    pub location: Location,
}

/// A text is not a [`DestinationServiceAccount`] because it does not have three parts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` has {observed} parts between commas, the form is SERVER,NAMESPACE,ACCOUNT")]
pub struct ParseDestinationServiceAccountError {
    /// The text.
    pub text: String,
    /// How many parts it has.
    pub observed: usize,
}

impl FromStr for DestinationServiceAccount {
    type Err = ParseDestinationServiceAccountError;

    /// Reads `SERVER,NAMESPACE,ACCOUNT`; parts may be empty and are kept as they are, not trimmed.
    ///
    /// Source: Argo CD, `argocd proj create --dest-service-accounts`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split(',').collect();
        let [server, namespace, account] = *parts.as_slice() else {
            let (text, observed) = (text.to_owned(), parts.len());
            return Err(ParseDestinationServiceAccountError { text, observed });
        };
        Ok(Self {
            server: server.to_owned(),
            namespace: namespace.to_owned(),
            default_service_account: account.to_owned(),
            location: Location::default(),
        })
    }
}

/// A sync window of an `AppProject`, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncWindow {
    /// `allow` or `deny`.
    pub kind: String,
    /// When it opens, in five fields of cron.
    pub schedule: String,
    /// How long it stays open, as Go writes durations.
    pub duration: String,
    /// Name of the time zone of `schedule`; empty is UTC.
    pub time_zone: String,
    /// Patterns of names of Applications.
    pub applications: Vec<String>,
    /// Patterns of destination namespaces.
    pub namespaces: Vec<String>,
    /// Patterns of names or servers of destination clusters.
    pub clusters: Vec<String>,
    /// `andOperator`: whether an Application must match every list that is set, not just one.
    pub use_and_operator: bool,
    /// Whether it does not restrict manual syncs.
    pub manual_sync: bool,
    /// Where the window starts.
    pub location: Location,
}

/// An entry of a list of resources that an `AppProject` allows or denies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRule {
    /// Pattern of the API group; empty is the core group.
    pub group: String,
    /// Pattern of the kind.
    pub kind: String,
    /// Pattern of the object's name; empty for all. Only lists of cluster-scoped
    /// resources have it.
    pub name: String,
}

/// The lists of resources of an `AppProject`, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRules {
    /// `spec.clusterResourceWhitelist`: nothing is allowed without an entry.
    pub cluster_allowed: Vec<ResourceRule>,
    /// `spec.clusterResourceBlacklist`.
    pub cluster_denied: Vec<ResourceRule>,
    /// `spec.namespaceResourceWhitelist`: everything is allowed when the key is
    /// absent, nothing when its list is empty.
    pub namespaced_allowed: Option<Vec<ResourceRule>>,
    /// `spec.namespaceResourceBlacklist`.
    pub namespaced_denied: Vec<ResourceRule>,
}

/// The parts of an `AppProject` that the gateway needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`; global projects select by them.
    pub labels: BTreeMap<String, String>,
    /// `spec.destinations`.
    pub destinations: Vec<Destination>,
    /// `spec.sourceRepos`.
    pub source_repos: Vec<String>,
    /// `spec.sourceNamespaces`.
    pub source_namespaces: Vec<String>,
    /// `spec.permitOnlyProjectScopedClusters`.
    pub permit_only_project_scoped_clusters: bool,
    /// `spec.destinationServiceAccounts`, in order.
    pub destination_service_accounts: Vec<DestinationServiceAccount>,
    /// `spec.syncWindows`.
    pub sync_windows: Vec<SyncWindow>,
    /// Which resources its Applications may write.
    pub resources: ResourceRules,
    /// `spec.roles`.
    pub roles: Vec<ProjectRole>,
    /// Where the object starts.
    pub location: Location,
}

/// A cluster known from a cluster Secret, or the control plane's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    /// Display name, unique by convention only.
    pub name: String,
    /// API server URL.
    pub server: String,
    /// Project the cluster belongs to; empty for all.
    pub project: String,
}

/// The backend an `ArgoCDExtension` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionObject {
    /// `metadata.name`, the extension's name in paths.
    pub name: String,
    /// `http://<service>.<namespace>.svc[:<port>]<endpoint>`.
    pub url: url::Url,
    /// Where the object starts.
    pub location: Location,
}

/// A tenant's object that has a mistake and is not used. Requests that need it are denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidObject {
    /// Its `kind`.
    pub kind: &'static str,
    /// Namespace and name.
    pub name: ObjectName,
    /// Where it starts.
    pub location: Location,
    /// The first of its mistakes.
    pub mistake: String,
}

/// Every object of one load.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    /// Namespace of the control plane, normally `argocd`.
    pub control_plane_namespace: String,
    /// ConfigMap `argocd-cm`.
    pub argocd_cm: ConfigMap,
    /// Where `argocd-cm` starts; `None` if there is no such ConfigMap.
    pub argocd_cm_location: Option<Location>,
    /// ConfigMap `argocd-rbac-cm`.
    pub rbac_cm: ConfigMap,
    /// ConfigMap `argocd-cmd-params-cm`: flags of Argo CD's own programs.
    pub command_parameters: ConfigMap,
    /// Secrets of the control-plane namespace by name, `argocd-secret` among them.
    pub secrets: BTreeMap<String, Arc<Secret>>,
    /// Projects by name.
    pub projects: BTreeMap<String, Arc<Project>>,
    /// Applications by namespace and name.
    pub applications: BTreeMap<ObjectName, Arc<Application>>,
    /// ApplicationSets by namespace and name, whole except for `metadata.managedFields`.
    /// `metadata.resourceVersion` is the version that a write names.
    pub application_sets: BTreeMap<ObjectName, Arc<Value>>,
    /// Clusters, `in-cluster` first unless switched off.
    pub clusters: Vec<Cluster>,
    /// How each of [`Self::clusters`] is reached, by server.
    pub cluster_configs: BTreeMap<String, Arc<ClusterConfig>>,
    /// Repositories and credentials for repositories, by the name of their Secret.
    pub repositories: BTreeMap<String, Arc<Repository>>,
    /// Extensions defined by their own objects, by name.
    pub extensions: BTreeMap<String, Arc<ExtensionObject>>,
    /// Services of the control plane's namespace by name.
    pub services: BTreeMap<String, Arc<network::Service>>,
    /// Ingresses of the control plane's namespace by name.
    pub ingresses: BTreeMap<String, Arc<network::Ingress>>,
    /// NetworkPolicies of the control plane's namespace by name.
    pub network_policies: BTreeMap<String, Arc<network::NetworkPolicy>>,
    /// Agents of the Kubernetes front by name, including those with mistakes.
    pub agents: BTreeMap<String, Arc<agent::AgentObject>>,
    /// Users, groups and projects.
    pub people: Arc<people::UserDirectory>,
    /// Names of the `UserDirectory` objects that they are in.
    pub user_directories: BTreeSet<String>,
    /// Objects of tenants that have mistakes, in no order.
    pub invalid_objects: Vec<InvalidObject>,
}

impl Resources {
    /// Whether a project with this name exists but has a mistake.
    pub fn is_invalid_project(&self, project: &str) -> bool {
        let mut invalid = self.invalid_objects.iter();
        invalid.any(|object| object.kind == "AppProject" && object.name.name == project)
    }
}
