//! Finds the [`ResourceKind`] of a cluster's resource and whether it is namespaced, from the cluster,
//! group, version and resource of a request. Resources that the cluster does not serve are refused,
//! and so is everything while the cluster does not answer.
//!
//! One value serves the whole process: what it learned outlives snapshots.
//!
//! Invariant: a kind is never guessed from a name. No two requests for the same part run at once,
//! requests for a resource that does not exist ask the cluster at most once every 3 s, and no lock
//! is held while waiting for a cluster.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/discovery`, aggregated discovery since
//! Kubernetes 1.26, lists by group and version before.

use std::sync::Arc;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use rustc_hash::FxBuildHasher;

use crate::cluster_access::ClusterAccess;
use tollgate_identity::clock::Clock;
use tollgate_plugin::credential::cache::key::CredentialKey;

mod answer;
mod cluster_discovery;
#[cfg(test)]
mod tests;

pub use answer::EndpointError;

use cluster_discovery::{Asked, ClusterDiscovery};

/// Kinds that are remembered, those of all clusters together: some 100 MB.
const KINDS: u64 = 500_000;
/// Each cluster counts as this many additional kinds, so at most 10,000 clusters are remembered.
const CLUSTER_WEIGHT: u32 = 50;
/// How long a cluster is remembered that nobody asks about.
const IDLE: Duration = Duration::from_secs(3600);

/// Limits of one exchange with a cluster.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Longest answer, in bytes. A cluster with 2,000 custom kinds sends 3 MB.
    bytes: usize,
    /// Resources of one answer.
    kinds: usize,
    /// Kinds that are remembered of all clusters.
    max_kinds: u64,
    /// Longest wait for an answer; a credential may take 15 s of it.
    timeout: Duration,
}

const LIMITS: Limits = Limits {
    bytes: 16 * 1024 * 1024,
    kinds: 20_000,
    max_kinds: KINDS,
    timeout: Duration::from_secs(20),
};

/// The kind of a cluster's resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceKind {
    /// API group it is served in; empty for the core group.
    pub group: Arc<str>,
    /// Kind, such as `Deployment`. A subresource has its parent's.
    pub kind: Arc<str>,
    /// Where its objects are.
    pub scope: ResourceScope,
}

/// Where objects of a kind are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceScope {
    /// In namespaces.
    Namespaced,
    /// In the cluster itself.
    Cluster,
}

/// Why a kind is not known; both deny.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The cluster does not serve it, according to an answer a few seconds old at most.
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
        /// For the record.
        #[source]
        source: EndpointError,
    },
}

/// The kinds of every cluster. Clones share the same state.
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
            .time_to_idle(IDLE);
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
    /// Answers immediately from memory. What is older than 10 minutes is refreshed in the
    /// background. What is older than an hour, or unknown, is waited for, at most 20 s.
    ///
    /// # Errors
    /// [`Error`]; each one denies.
    ///
    /// Cancel safe: a request to the cluster continues.
    pub async fn find(
        &self,
        access: &Arc<ClusterAccess>,
        group: &str,
        version: &str,
        resource: &str,
    ) -> Result<ResourceKind, Error> {
        // The server is part of how it is connected to.
        let key = access.connection();
        let cluster_discovery = self.clusters.get_with(key, Arc::default);
        let asked = Asked {
            group,
            version,
            resource,
        };
        let found = cluster_discovery.find(access, asked, (&self.clock, self.limits)).await;
        if cluster_discovery.kind_count_changed()
            && self
                .clusters
                .get(&key)
                .is_some_and(|kept| Arc::ptr_eq(&kept, &cluster_discovery))
        {
            // The cache computes a value's weight only on insertion.
            self.clusters.insert(key, cluster_discovery);
        }
        found
    }
}
