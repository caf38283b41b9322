//! The section `applicationSets` of the settings file: its written shape, and the checks that turn
//! it into [`ApplicationSets`]. Every mistake, unknown keys included, is reported with its key.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::SettingsValidator;
use crate::{
    ApplicationSetChecks, ApplicationSetPermissions, ApplicationSets, GenerationLimits, GitCache, GitLimits,
    UnknownFields,
};

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawApplicationSets {
    compat: Option<ApplicationSetChecks>,
    permissions: Option<ApplicationSetPermissions>,
    namespaces: Vec<String>,
    repositories: Vec<String>,
    limits: RawLimits,
    git: RawGit,
    concurrency: Option<usize>,
    max_deletions: Option<u64>,
    controller_timeout: Option<String>,
    unknown_fields: Option<UnknownFields>,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLimits {
    applications: Option<u64>,
    parameters: Option<u64>,
    generators: Option<u64>,
    bytes: Option<u64>,
    time: Option<String>,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
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
    pub(super) fn check(self, validator: &mut SettingsValidator<'_>) -> ApplicationSets {
        if self.compat.is_some() && self.permissions.is_some() {
            let message = "`inherited` checks the Applications of a set, and `compat: argocd` checks only the set: \
                           leave out one of the two";
            validator.error("applicationSets.permissions", message);
        }
        let Self { limits, git, .. } = self;
        let (default, default_git) = (GenerationLimits::default(), GitLimits::default());
        let default_cache = GitCache::default();
        let directory = git.directory.map(|folder| validator.base.join(folder));
        let mut number = |key: &str, raw: Option<u64>, default: u64, bounds| {
            validator.bounded(&format!("applicationSets.{key}"), raw, default, bounds)
        };
        let applications = number(
            "limits.applications",
            limits.applications,
            default.applications,
            1..=100_000,
        );
        let parameters = number(
            "limits.parameters",
            limits.parameters,
            default.parameters,
            1..=1_000_000,
        );
        let generators = number("limits.generators", limits.generators, default.generators, 1..=10_000);
        let bytes = number("limits.bytes", limits.bytes, default.bytes, 1_024..=1 << 30);
        let git_bytes = number("git.bytes", git.bytes, default_git.bytes, 1_024..=1 << 34);
        let cache_bytes = number(
            "git.cacheBytes",
            git.cache_bytes,
            default_cache.bytes,
            1 << 20..=1 << 44,
        );
        let max_deletions = number("maxDeletions", self.max_deletions, 50, 0..=1_000_000);
        let mut duration = |key: &str, raw: Option<String>, default: Duration| {
            validator.duration(&format!("applicationSets.{key}"), raw.as_deref(), default)
        };
        let controller_timeout = duration("controllerTimeout", self.controller_timeout, Duration::from_secs(60));
        ApplicationSets {
            checks: self.compat.unwrap_or_default(),
            permissions: self.permissions.unwrap_or_default(),
            namespaces: self.namespaces,
            repositories: self.repositories,
            limits: GenerationLimits {
                applications,
                parameters,
                generators,
                bytes,
                time: duration("limits.time", limits.time, default.time),
            },
            git: GitLimits {
                time: duration("git.time", git.time, default_git.time),
                bytes: git_bytes,
                revision_ttl: duration("git.fresh", git.fresh, default_git.revision_ttl),
            },
            git_cache: GitCache {
                directory,
                bytes: cache_bytes,
                unused_ttl: duration("git.keep", git.keep, default_cache.unused_ttl),
            },
            concurrency: validator.bounded("applicationSets.concurrency", self.concurrency, 4, 1..=256),
            max_deletions,
            controller_timeout,
            unknown_fields: self.unknown_fields.unwrap_or_default(),
        }
    }
}
