//! The section `applicationSets` of the settings file: its written shape, and the checks that turn
//! it into [`ApplicationSets`]. Every mistake, unknown keys included, is reported with its key.

use std::path::PathBuf;

use serde::Deserialize;

use super::{RawCompatibility, SettingsValidator};
use crate::{ApplicationSetChecks, ApplicationSets, GenerationLimits, GitCache, GitLimits};

/// `applicationSets`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawApplicationSets {
    compat: Option<RawCompatibility>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default)]
    repositories: Vec<String>,
    #[serde(default)]
    limits: RawLimits,
    #[serde(default)]
    git: RawGit,
    concurrency: Option<usize>,
    max_deletions: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLimits {
    applications: Option<u64>,
    parameters: Option<u64>,
    generators: Option<u64>,
    bytes: Option<u64>,
    time: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawGit {
    time: Option<String>,
    bytes: Option<u64>,
    fresh: Option<String>,
    directory: Option<PathBuf>,
    cache_bytes: Option<u64>,
    keep: Option<String>,
}

impl RawApplicationSets {
    /// Checks the settings.
    pub(super) fn check(self, validator: &mut SettingsValidator<'_>) -> ApplicationSets {
        let (limits, git, cache) = (GenerationLimits::default(), GitLimits::default(), GitCache::default());
        let list = |kind| format!("applicationSets.limits.{kind}");
        ApplicationSets {
            checks: match self.compat {
                None => ApplicationSetChecks::Generated,
                Some(RawCompatibility::Argocd) => ApplicationSetChecks::Argocd,
            },
            namespaces: self.namespaces,
            repositories: self.repositories,
            limits: GenerationLimits {
                applications: validator.bounded(
                    &list("applications"),
                    self.limits.applications,
                    limits.applications,
                    1,
                    100_000,
                ),
                parameters: validator.bounded(
                    &list("parameters"),
                    self.limits.parameters,
                    limits.parameters,
                    1,
                    1_000_000,
                ),
                generators: validator.bounded(
                    &list("generators"),
                    self.limits.generators,
                    limits.generators,
                    1,
                    10_000,
                ),
                bytes: validator.bounded(&list("bytes"), self.limits.bytes, limits.bytes, 1_024, 1 << 30),
                time: validator.duration(&list("time"), self.limits.time.as_deref(), limits.time),
            },
            git: GitLimits {
                time: validator.duration("applicationSets.git.time", self.git.time.as_deref(), git.time),
                bytes: validator.bounded("applicationSets.git.bytes", self.git.bytes, git.bytes, 1_024, 1 << 34),
                revision_ttl: validator.duration(
                    "applicationSets.git.fresh",
                    self.git.fresh.as_deref(),
                    git.revision_ttl,
                ),
            },
            git_cache: GitCache {
                directory: self.git.directory.map(|folder| validator.base.join(folder)),
                bytes: validator.bounded(
                    "applicationSets.git.cacheBytes",
                    self.git.cache_bytes,
                    cache.bytes,
                    1 << 20,
                    1 << 44,
                ),
                unused_ttl: validator.duration("applicationSets.git.keep", self.git.keep.as_deref(), cache.unused_ttl),
            },
            concurrency: validator.bounded("applicationSets.concurrency", self.concurrency, 4, 1, 256),
            max_deletions: validator.bounded("applicationSets.maxDeletions", self.max_deletions, 50, 0, 1_000_000),
        }
    }
}
