//! The access to one cluster outside of a snapshot, with the credential that a Secret holds.

use std::sync::Arc;

use super::{ClusterAccess, ClusterEndpoint};
use tollgate_objects::{Cluster, ClusterConfig};
use tollgate_plugin::credential_source::source_in_secret;

impl ClusterAccess {
    /// The access to a cluster as a gateway would have it with these settings. `None` if they hold no
    /// token, password or certificate.
    ///
    /// - `endpoint`: where the cluster is reached from here.
    pub fn with_credential_in_secret(
        cluster: &Cluster,
        config: &Arc<ClusterConfig>,
        endpoint: &ClusterEndpoint,
    ) -> Option<Self> {
        let source = source_in_secret(&config.auth)?;
        let label = if cluster.name.is_empty() {
            &cluster.server
        } else {
            &cluster.name
        };
        let access = Self::new(
            cluster,
            config,
            Arc::from(label.as_str()),
            None,
            endpoint,
            &Arc::default(),
        );
        Some(access.with_source(source))
    }
}
