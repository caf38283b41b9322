//! All configuration as one immutable [`Snapshot`] behind an atomic pointer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;

use crate::extension_registry::Registry;
use crate::policies::Policies;
use tollgate_cluster::access::Clusters;
use tollgate_core::agent::ClusterAgent;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_identity::access::Agents;
use tollgate_identity::authenticate::Authenticator;
use tollgate_proxy::metrics::Counted;

/// All configuration by which requests are decided and carried out. A request takes one snapshot
/// and keeps it.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts up from 1 with every change that took effect.
    pub generation: u64,
    /// What requests are decided by.
    pub policies: Policies,
    /// Verifies callers.
    pub authenticator: Arc<Authenticator>,
    /// The extensions of `argocd-cm`.
    pub extensions: Arc<Registry>,
    /// The plugins that are loaded.
    pub plugins: Arc<tollgate_plugin::PluginSet>,
    /// The clusters, and how to reach them.
    pub clusters: Arc<Clusters>,
    /// When the load that made it began.
    pub begun: Instant,
    /// Counts it among those in memory.
    pub counted: Counted,
    /// The snapshot of a refused load. A request passes only if this snapshot permits it in the
    /// same way.
    pub narrowed_by: Option<Arc<Self>>,
}

/// The pointer to the snapshot in force, which requests read. Clones share it.
pub type CurrentSnapshot = Arc<ArcSwap<Snapshot>>;

impl Snapshot {
    /// The agents that are shared with people; `None` while the Kubernetes front is closed.
    pub fn agents(&self) -> Option<&Arc<Agents>> {
        Some(&self.policies.kubernetes.as_ref()?.agents)
    }

    /// What is wrong with clusters and agents as they are in force.
    pub fn findings(&self) -> Vec<Diagnostic> {
        let of_agents = self.agents().into_iter().flat_map(|agents| &agents.findings).cloned();
        self.clusters.findings().into_iter().chain(of_agents).collect()
    }

    /// The clusters with an agent, by their server.
    // SECURITY: what a refused load takes away is gone at once.
    pub fn clusters_with_agents(&self) -> HashMap<Arc<str>, ClusterAgent> {
        let mut clusters = self.clusters.agents();
        if let Some(narrower) = &self.narrowed_by {
            let narrower = narrower.clusters.agents();
            clusters.retain(|server, agent| {
                let Some(narrower) = narrower.get(server) else {
                    return false;
                };
                // An agent keeps only what both loads give it, never the better of the two.
                agent.keys.retain(|key| narrower.keys.contains(key));
                agent.processes = agent.processes.min(narrower.processes);
                agent.join_token = agent
                    .join_token
                    .take()
                    .filter(|token| narrower.join_token.as_ref() == Some(token));
                true
            });
        }
        clusters
    }
}
