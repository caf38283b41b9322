//! Mints a credential in this process, from a gateway's settings and with its code. It opens no
//! listener.
//!
//! Security: no policy is evaluated, because anyone who can read the files may use them anyway.

use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Runtime;
use zeroize::Zeroizing;

use super::ExecCredentialVersion;
use tollgate_client::api::runtime;
use tollgate_client::failure::Failure;
use tollgate_cluster::access::{ClusterAccess, ClusterLookup, Clusters};
use tollgate_config::{Config, raw};
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_credential::cache::{self, CredentialCache};
use tollgate_credential::exec::exec_credential;
use tollgate_gateway::loader::Loader;
use tollgate_identity::clock::Clock;
use tollgate_proxy::metrics::Metrics;
use tollgate_rego::Checker;

pub(super) struct LocalClusters {
    pub(super) clusters: Arc<Clusters>,
    pub(super) runtime: Runtime,
    /// Mints run in it as in a gateway, and end when it is dropped.
    _cache: Arc<CredentialCache>,
}

impl LocalClusters {
    pub(super) fn load(settings: &Path) -> Result<Self, Failure> {
        let config = require_loaded(raw::load(settings))?;
        let runtime = runtime()?;
        let (loader, cache) = loader(Arc::new(config), &runtime)?;
        Ok(Self {
            clusters: require_loaded(loader.load_clusters())?,
            runtime,
            _cache: cache,
        })
    }

    /// Finds a cluster by name or API server URL.
    pub(super) fn find(&self, name: &str) -> Result<&Arc<ClusterAccess>, Failure> {
        match self.clusters.find(name) {
            ClusterLookup::One(access) => Ok(access),
            ClusterLookup::Several(several) => {
                let servers: Vec<&str> = several.iter().map(|access| access.cluster().server.as_str()).collect();
                let message = format!("{} clusters have the name `{name}`", several.len());
                Err(Failure::new("cluster_ambiguous", message)
                    .with_hint(format!("name one by its server: {}", servers.join(", "))))
            }
            ClusterLookup::None => {
                let names: Vec<&str> = self.clusters.iter().map(|access| &*access.label).collect();
                let failure = Failure::new("cluster_not_found", format_args!("there is no cluster `{name}`"));
                Err(failure.with_hint(format!("there are {}", names.join(", "))))
            }
        }
    }
}

/// What loads snapshots as a gateway does, and the cache of credentials that it needs.
pub(crate) fn loader(config: Arc<Config>, runtime: &Runtime) -> Result<(Loader, Arc<CredentialCache>), Failure> {
    let checker = Checker::current()
        .map_err(|error| Failure::new("host.program", format_args!("this program cannot be found: {error}")))?;
    let clock = Arc::new(cache::clock::SystemClock::start());
    let handle = runtime.handle().clone();
    let cache = Arc::new(CredentialCache::new(cache::Settings::default(), clock, handle));
    let credentials = Arc::clone(&cache);
    let loader = Loader::new(
        config,
        checker,
        Arc::new(Metrics::default()),
        credentials,
        Clock::default(),
    )
    .map_err(|error| Failure::new("host.plugins", error))?;
    Ok((loader, cache))
}

pub(super) fn fetch(
    settings: &Path,
    cluster: &str,
    version: ExecCredentialVersion,
) -> Result<Zeroizing<String>, Failure> {
    let local = LocalClusters::load(settings)?;
    let access = local.find(cluster)?;
    let lease = local.runtime.block_on(access.lease()).map_err(|error| {
        let message = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        Failure::new(error.code(), message)
            .with_hint(format!("see its requests with `tollgate credential explain {cluster}`"))
    })?;
    let until = access.usable_until(&lease);
    exec_credential(&lease.credential, until, version).ok_or_else(|| {
        let message = "this cluster's credential is neither a token nor a client certificate";
        Failure::new("credential_not_portable", message).with_hint("reach it by way of the gateway")
    })
}

/// The loaded value, or its first error.
pub(crate) fn require_loaded<T>(loaded: Loaded<T>) -> Result<T, Failure> {
    loaded.value.ok_or_else(|| {
        let error = loaded.diagnostics.iter().find(|finding| finding.is_error());
        let text = error.map_or_else(|| "the settings cannot be used".to_owned(), Diagnostic::to_string);
        Failure::new("config.load", text).with_hint("`tollgate check` shows every mistake")
    })
}
