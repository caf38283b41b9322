//! Finds the [`ResourceKind`] of a cluster's resource and whether it is namespaced, from the
//! cluster, group, version and resource of a request. Resources that the cluster does not serve are
//! refused, and so is everything while the cluster does not answer.
//!
//! One [`Discovery`] serves the whole process: what it holds outlives snapshots.
//!
//! Invariant: a kind is never guessed from a name. No two fetches of the same endpoint run at once,
//! lookups of a resource that does not exist fetch it at most once every 3 s, and no lock is held
//! while waiting for a cluster.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/discovery`, aggregated discovery since
//! Kubernetes 1.26, lists by group and version before.

use std::sync::Arc;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use rustc_hash::FxBuildHasher;

use crate::access::ClusterAccess;
use tollgate_credential::cache::key::CredentialKey;
use tollgate_identity::clock::Clock;

mod answer;
mod cluster_discovery;
#[cfg(test)]
mod tests;

use answer::EndpointError;
use cluster_discovery::{ClusterDiscovery, GroupVersionResource};

/// Each cluster counts as this many additional kinds, so at most 10,000 clusters are cached.
const CLUSTER_WEIGHT: u32 = 50;
/// Time after which a cluster without lookups is removed from the cache.
const TIME_TO_IDLE: Duration = Duration::from_secs(3600);

/// Limits of one fetch, and of the cache.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Longest response, in bytes. A cluster with 2,000 custom kinds sends 3 MB.
    bytes: usize,
    /// Most resources of one response.
    kinds: usize,
    /// Most kinds in the cache, those of all clusters together: 500,000 take some 100 MB.
    max_kinds: u64,
    /// Longest wait for a response; a credential may take 15 s of it.
    timeout: Duration,
}

const LIMITS: Limits = Limits {
    bytes: 16 * 1024 * 1024,
    kinds: 20_000,
    max_kinds: 500_000,
    timeout: Duration::from_secs(20),
};

/// The kind that a cluster serves for a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceKind {
    /// API group in which it is served; empty for the core group.
    pub group: Arc<str>,
    /// Kind, such as `Deployment`. A subresource has its parent's.
    pub kind: Arc<str>,
    /// Whether its objects are in namespaces.
    pub scope: ResourceScope,
}

/// Whether the objects of a kind are in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResourceScope {
    /// In namespaces.
    Namespaced,
    /// In the cluster itself.
    Cluster,
}

/// Why a kind is not known. Each error denies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The cluster does not serve it, according to a response that is a few seconds old at most.
    #[error("the cluster `{cluster}` does not serve the resource `{resource}`")]
    Unknown {
        /// The cluster's name, or its server.
        cluster: Arc<str>,
        /// `resource.group/version`, at most 256 bytes.
        resource: String,
    },
    /// The cluster did not answer.
    #[error("the cluster `{cluster}` does not say which resources it serves")]
    Unavailable {
        /// The cluster's name, or its server.
        cluster: Arc<str>,
        /// Why, for the record.
        #[source]
        source: EndpointError,
    },
}

/// The cached kinds of every cluster. Clones share the same state.
#[derive(Clone, Debug)]
pub struct Discovery {
    clusters: Cache<CredentialKey, Arc<ClusterDiscovery>, FxBuildHasher>,
    clock: Clock,
    limits: Limits,
}

impl Discovery {
    /// Starts empty. Sends nothing before the first lookup.
    pub fn new(clock: Clock) -> Self {
        Self::with(clock, LIMITS)
    }

    fn with(clock: Clock, limits: Limits) -> Self {
        let clusters = Cache::builder()
            .weigher(|_, cluster_discovery: &Arc<ClusterDiscovery>| {
                cluster_discovery.kind_count().saturating_add(CLUSTER_WEIGHT)
            })
            .max_capacity(limits.max_kinds)
            // LRU, so that a cluster that is looked up is always admitted, however rarely that
            // happens.
            .eviction_policy(EvictionPolicy::lru())
            .time_to_idle(TIME_TO_IDLE);
        Self {
            clusters: clusters.build_with_hasher(FxBuildHasher),
            clock,
            limits,
        }
    }

    /// Finds the kind of `resource` in the cluster behind `access`.
    ///
    /// - `group`: empty for the core group.
    /// - `resource`: plural, without a subresource; as the request spells it.
    ///
    /// Answers immediately from the cache. What is older than 10 minutes is refreshed in the
    /// background. What is older than an hour, or not cached, is waited for, at most 20 s.
    ///
    /// # Errors
    /// [`Error`]; each one denies.
    ///
    /// Cancel safe: a fetch continues.
    pub async fn find(
        &self,
        access: &Arc<ClusterAccess>,
        group: &str,
        version: &str,
        resource: &str,
    ) -> Result<ResourceKind, Error> {
        // The key covers the server.
        let key = access.connection;
        let cluster_discovery = self.clusters.get_with(key, Arc::default);
        let gvr = GroupVersionResource {
            group,
            version,
            resource,
        };
        let found = cluster_discovery.find(access, gvr, &self.clock, self.limits).await;
        if cluster_discovery.kind_count_changed()
            && self
                .clusters
                .get(&key)
                .is_some_and(|cached| Arc::ptr_eq(&cached, &cluster_discovery))
        {
            // The cache computes a value's weight only on insertion.
            self.clusters.insert(key, cluster_discovery);
        }
        found
    }
}

/// The resource that a kind most likely is, by convention. Only the cluster knows.
///
/// Source: Kubernetes, `meta.UnsafeGuessKindToResource`.
pub fn likely_resource(kind: &str) -> String {
    let kind = kind.to_ascii_lowercase();
    match (kind.as_str(), kind.strip_suffix('y')) {
        ("endpoints", _) => kind,
        (_, Some(stem)) => format!("{stem}ies"),
        (_, None) if kind.ends_with('s') => format!("{kind}es"),
        (_, None) => format!("{kind}s"),
    }
}
