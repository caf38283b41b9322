//! Which kind a resource of a cluster is, and whether it is in namespaces.
//!
//! In: a cluster, group, version and resource of a request. Out: [`Kind`]. Refuses:
//! what the cluster does not serve, and everything while it does not say. Never: a
//! guess from a name; two questions about the same at once; a question more often
//! than every 3 s because somebody asks for what is not there; a lock held while
//! a cluster is waited for.
//!
//! One value serves the whole process: what is known outlives snapshots.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/discovery`, aggregated discovery since
//! Kubernetes 1.26, lists by group and version before.

use std::sync::Arc;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use rustc_hash::FxBuildHasher;

use crate::clock::Clock;
use crate::credential::cache::key::Key;
use crate::credential::clusters::ClusterAccess;

mod answer;
mod room;
#[cfg(test)]
mod tests;

pub use answer::Problem;

use room::{Asked, Room};

/// Kinds that are remembered, those of all clusters together: some 100 MB.
const KINDS: u64 = 500_000;
/// A cluster counts as so many kinds besides, so 10,000 at most are remembered.
const OF_A_CLUSTER: u32 = 50;
/// How long a cluster is remembered that nobody asks for.
const IDLE: Duration = Duration::from_secs(3600);

/// What bounds one exchange with a cluster.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Longest answer, in bytes. A cluster with 2,000 kinds of its own says 3 MB.
    bytes: usize,
    /// Resources of one answer.
    kinds: usize,
    /// Kinds that are remembered of all clusters.
    all: u64,
    /// Longest wait for an answer; a credential may take 15 s of it.
    within: Duration,
}

const LIMITS: Limits = Limits {
    bytes: 16 * 1024 * 1024,
    kinds: 20_000,
    all: KINDS,
    within: Duration::from_secs(20),
};

/// What a resource of a cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group it is served in; empty for the core group.
    pub group: Arc<str>,
    /// Kind, such as `Deployment`. A subresource has its parent's.
    pub kind: Arc<str>,
    /// Where its objects are.
    pub scope: Scope,
}

/// Where objects of a kind are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In namespaces.
    Namespaced,
    /// In the cluster itself.
    Cluster,
}

/// Why a kind is not known; both deny.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The cluster does not serve it, as far as it said within the last seconds.
    #[error("the cluster `{cluster}` does not serve the resource `{resource}`")]
    Unknown {
        /// The cluster's name, or its server.
        cluster: Arc<str>,
        /// `resource.group/version`, at most 256 bytes.
        resource: String,
    },
    /// The cluster did not say.
    #[error("the cluster `{cluster}` does not say which resources it serves")]
    Unavailable {
        /// The cluster's name, or its server.
        cluster: Arc<str>,
        /// For the record.
        #[source]
        source: Problem,
    },
}

/// The kinds of every cluster; clones are the same.
#[derive(Clone, Debug)]
pub struct Discovery {
    rooms: Cache<Key, Arc<Room>, FxBuildHasher>,
    clock: Clock,
    limits: Limits,
}

impl Discovery {
    /// Nothing known yet. Asks nobody before it is asked.
    pub fn new(clock: Clock) -> Self {
        Self::with(clock, LIMITS)
    }

    fn with(clock: Clock, limits: Limits) -> Self {
        let rooms = Cache::builder()
            .weigher(|_, room: &Arc<Room>| room.weigh().saturating_add(OF_A_CLUSTER))
            .max_capacity(limits.all)
            // One that is asked about comes in, however seldom that is.
            .eviction_policy(EvictionPolicy::lru())
            .time_to_idle(IDLE);
        Self {
            rooms: rooms.build_with_hasher(FxBuildHasher),
            clock,
            limits,
        }
    }

    /// What `resource` is in the cluster behind `access`.
    ///
    /// - `group`: empty for the core group.
    /// - `resource`: plural, without a subresource; as the request spells it.
    ///
    /// Answers at once from what is known. What is older than 10 minutes is asked
    /// for again meanwhile; what is older than an hour, or not known, is waited for,
    /// at most 20 s.
    ///
    /// # Errors
    /// [`Error`]; each one denies.
    ///
    /// Cancel safe: a question to the cluster goes on.
    pub async fn find(
        &self,
        access: &Arc<ClusterAccess>,
        group: &str,
        version: &str,
        resource: &str,
    ) -> Result<Kind, Error> {
        // The server is part of how it is connected to.
        let key = access.connection();
        let room = self.rooms.get_with(key, Arc::default);
        let asked = Asked {
            group,
            version,
            resource,
        };
        let found = room.find(access, asked, (&self.clock, self.limits)).await;
        if room.is_misweighed() && self.rooms.get(&key).is_some_and(|kept| Arc::ptr_eq(&kept, &room)) {
            // What a value weighs is looked at only when it comes in.
            self.rooms.insert(key, room);
        }
        found
    }
}
