//! Settings of the ApplicationSet front.
//!
//! In: checked by `raw`. Out: values. Never: a default that lets generators read
//! what nobody listed.

use std::path::PathBuf;
use std::time::Duration;

use crate::applicationset::Limits;

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
    pub limits: Limits,
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
