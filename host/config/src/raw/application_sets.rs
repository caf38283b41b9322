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
    /// Set to `argocd` to check only the permission for the set itself and to write only the set; Argo CD's
    /// controller then generates the Applications. By default, everything that a set generates is checked,
    /// and written with it.
    compat: Option<ApplicationSetChecks>,
    /// Set to `inherited` to derive the permissions on a set from those on all of its Applications
    /// (docs/applicationset-rights.md#inherited-permissions). Not together with `compat`. By default,
    /// they come from rows about `applicationsets`.
    permissions: Option<ApplicationSetPermissions>,
    /// Namespaces, besides the control plane's, in which sets may be: names, globs, or `/regular
    /// expressions/`, like Argo CD's `application.namespaces`.
    namespaces: Vec<String>,
    /// Patterns of repositories that git generators may read without a repository Secret, matched like a
    /// project's `sourceRepos`; a leading `!` refuses. A local path needs a pattern that is itself a path.
    repositories: Vec<String>,
    /// Limits on what one set generates.
    limits: RawLimits,
    /// Limits on what git generators fetch, and their cache.
    git: RawGit,
    /// Number of sets that are processed at once; further ones wait. A set that waits for a repository or a
    /// plugin does not count, up to eight times this number. 1 to 256.
    #[schemars(extend("default" = 4))]
    concurrency: Option<usize>,
    /// Number of Applications that one change may delete without stating the number. 0 to 1000000.
    #[schemars(extend("default" = 50))]
    max_deletions: Option<u64>,
    /// Time for which a watch of one set waits for a controller to write the first condition. Then the watch,
    /// and with it `argocd appset create --wait`, ends with an error. Must be above 0.
    #[schemars(extend("default" = "60s"))]
    controller_timeout: Option<String>,
    /// What happens to a set with keys that no field has.
    #[schemars(extend("default" = "refuse"))]
    unknown_fields: Option<UnknownFields>,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLimits {
    /// Most Applications of one set. 1 to 100000.
    #[schemars(extend("default" = 5_000))]
    applications: Option<u64>,
    /// Most sets of parameters that all generators of one set produce, including those that a matrix or merge
    /// discards. 1 to 1000000.
    #[schemars(extend("default" = 50_000))]
    parameters: Option<u64>,
    /// Most generators of one set, including nested ones. 1 to 10000.
    #[schemars(extend("default" = 100))]
    generators: Option<u64>,
    /// Most bytes of memory for the output of one set's generators and templates. 1024 to 1073741824 (1 GiB).
    /// Defaults to 64 MiB.
    #[schemars(extend("default" = 64 << 20))]
    bytes: Option<u64>,
    /// Wall time to generate one set, including waits for `applicationSets.concurrency`, git and plugins.
    /// Must be above 0.
    #[schemars(extend("default" = "30s"))]
    time: Option<String>,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawGit {
    /// Wall time of one fetch. Must be above 0.
    #[schemars(extend("default" = "20s"))]
    time: Option<String>,
    /// Most bytes received in one fetch. 1024 to 17179869184 (16 GiB). Defaults to 256 MiB.
    #[schemars(extend("default" = 256 << 20))]
    bytes: Option<u64>,
    /// Time for which the commit of a branch or tag is cached. Must be above 0.
    #[schemars(extend("default" = "30s"))]
    fresh: Option<String>,
    /// Folder for fetched data. Each process creates a folder in it and removes it when it ends; the next
    /// start removes the folder of a killed process. Defaults to the system's folder for temporary files.
    directory: Option<PathBuf>,
    /// Most bytes on disk of all fetched data; data being fetched counts twice. Above this limit, or when the
    /// disk is full, the least recently requested data is removed. 1048576 (1 MiB) to 17592186044416 (16
    /// TiB). Defaults to 2 GiB.
    #[schemars(extend("default" = 2_u64 << 30))]
    cache_bytes: Option<u64>,
    /// Time for which an unused commit is kept. Must be above 0.
    #[schemars(extend("default" = "1h"))]
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
