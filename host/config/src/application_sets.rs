//! Settings of the ApplicationSet front.
//!
//! In: checked by `raw`. Out: values. Never: a default that lets generators read
//! what nobody listed.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of the ApplicationSet front; it is closed when absent.
#[derive(Clone, Debug)]
pub struct ApplicationSets {
    /// Whether the API checks what a set generates, or only the set, as Argo CD.
    pub checks: SetChecks,
    /// Namespaces besides the control plane's that sets may be in: names, globs, or
    /// `/regular expressions/`, as Argo CD's `application.namespaces`.
    pub namespaces: Vec<String>,
    /// Patterns of repositories that generators may read without a repository
    /// Secret, matched as a project's `sourceRepos`.
    pub repositories: Vec<String>,
    /// Bounds on generating one set.
    pub limits: GenerationLimits,
    /// Bounds on reading one repository.
    pub git: GitLimits,
    /// Where what was fetched is kept, and how much of it.
    pub git_cache: GitCache,
    /// Sets generated at once; more wait.
    pub concurrency: usize,
    /// Applications that one change may delete without naming their number.
    pub max_deletions: u64,
}

/// What is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetChecks {
    /// The set, what it reads, and every Application it owns or generates; what it
    /// generates is written with it.
    #[default]
    Generated,
    /// The set alone, as Argo CD's API does; its controller generates.
    Argocd,
}

/// Bounds on reading one repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GitLimits {
    /// Wall time of one fetch.
    pub time: Duration,
    /// Bytes that are received for one fetch.
    pub bytes: u64,
    /// How long what a branch or tag names is taken as known.
    pub fresh: Duration,
}

impl Default for GitLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(20),
            bytes: 256 * 1024 * 1024,
            fresh: Duration::from_secs(30),
        }
    }
}

/// Where what was fetched of repositories is kept, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitCache {
    /// Each process has a folder of its own in it; none for the system's folder for
    /// temporary files.
    pub directory: Option<PathBuf>,
    /// Bytes on disk, what is being fetched and read included.
    pub bytes: u64,
    /// How long a commit is kept that nobody asks for.
    pub keep: Duration,
}

impl Default for GitCache {
    fn default() -> Self {
        Self {
            directory: None,
            bytes: 2 * 1024 * 1024 * 1024,
            keep: Duration::from_secs(3600),
        }
    }
}

/// Bounds on generating and rendering one set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationLimits {
    /// Applications of one set.
    pub applications: u64,
    /// Sets of parameters that all its generators make on the way, those a matrix
    /// or merge throws away included.
    pub parameters: u64,
    /// Generators, children counted.
    pub generators: u64,
    /// Bytes of memory of all that generators and templates make, and of what is read for
    /// them.
    pub bytes: u64,
    /// Wall time, waiting for git and plugins included.
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
