//! Settings of the ApplicationSet front, as checked by `raw`.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of the ApplicationSet front; it is closed when absent.
#[derive(Clone, Debug)]
pub struct ApplicationSets {
    /// Whether the API checks what a set generates, or only the set itself, as Argo CD does.
    pub checks: ApplicationSetChecks,
    /// Where permissions on a set come from.
    pub permissions: ApplicationSetPermissions,
    /// Namespaces, besides the control plane's, that sets may be in: names, globs, or `/regular
    /// expressions/`, as in Argo CD's `application.namespaces`.
    pub namespaces: Vec<String>,
    /// Patterns of repositories that generators may read without a repository Secret, matched like
    /// a project's `sourceRepos`.
    pub repositories: Vec<String>,
    /// Bounds on generating one set.
    pub limits: GenerationLimits,
    /// Bounds on reading one repository.
    pub git: GitLimits,
    /// Where fetched repositories are kept, and how much of them.
    pub git_cache: GitCache,
    /// Most sets generated at the same time; further ones wait.
    pub concurrency: usize,
    /// Most Applications that one change may delete without stating their number.
    pub max_deletions: u64,
    /// How long a watch of one set waits for a controller to write the set's first condition.
    pub controller_timeout: Duration,
    /// What happens to a set with keys that no field has.
    pub unknown_fields: UnknownFields,
}

/// What happens to a set with keys that no field has, which a cluster would drop silently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum UnknownFields {
    /// The set is refused.
    #[default]
    Refuse,
    /// The set is written, and the response has warnings.
    Warn,
}

/// What is checked when a set is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ApplicationSetChecks {
    /// The set, what it reads, and every Application that it owns or generates. The generated
    /// Applications are written with the set.
    #[default]
    #[serde(skip)]
    Generated,
    /// Only the set, as Argo CD's API does; Argo CD's controller generates the Applications.
    Argocd,
}

/// Where the permissions on a set come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ApplicationSetPermissions {
    /// From its own RBAC object, resource `applicationsets`.
    #[default]
    #[serde(skip)]
    Own,
    /// From the permissions on all of its Applications; rows about `applicationsets` do not count.
    Inherited,
}

/// Bounds on reading one repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GitLimits {
    /// Wall time of one fetch.
    pub time: Duration,
    /// Most bytes received for one fetch.
    pub bytes: u64,
    /// How long the commit of a branch or tag is reused before it is looked up again.
    pub revision_ttl: Duration,
}

impl Default for GitLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(20),
            bytes: 256 * 1024 * 1024,
            revision_ttl: Duration::from_secs(30),
        }
    }
}

/// Where fetched repositories are kept, and how much of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitCache {
    /// Folder in which each process makes its own; `None` for the system's folder for temporary
    /// files.
    pub directory: Option<PathBuf>,
    /// Most bytes on disk, counting what is being fetched and read.
    pub bytes: u64,
    /// How long an unused commit is kept.
    pub unused_ttl: Duration,
}

impl Default for GitCache {
    fn default() -> Self {
        Self {
            directory: None,
            bytes: 2 * 1024 * 1024 * 1024,
            unused_ttl: Duration::from_secs(3600),
        }
    }
}

/// Bounds on generating and rendering one set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationLimits {
    /// Most Applications of one set.
    pub applications: u64,
    /// Most sets of parameters that all its generators make, counting those that a matrix or merge
    /// discards.
    pub parameters: u64,
    /// Most generators, counting children.
    pub generators: u64,
    /// Most bytes of memory for everything that generators and templates make and that is read for
    /// them.
    pub bytes: u64,
    /// Wall time, including waits for git and plugins.
    pub time: Duration,
}

impl Default for GenerationLimits {
    fn default() -> Self {
        Self {
            applications: 5_000,
            parameters: 50_000,
            generators: 100,
            bytes: 64 * 1024 * 1024,
            time: Duration::from_secs(30),
        }
    }
}
