//! Merges a project with its global projects, in their order.
//!
//! Invariant: a project's own entries come before those of its global projects.
//!
//! Source: Argo CD, `GetAppVirtualProject`.

use std::sync::Arc;

use tollgate_objects::{Project, ResourceRule, ResourceRules};

/// Appends the lists of `globals` to those of the project. Source namespaces, roles and the
/// restriction to the project's own clusters stay those of the project.
pub(super) fn merge(own: &Arc<Project>, globals: &[Arc<Project>]) -> Arc<Project> {
    if globals.is_empty() {
        return Arc::clone(own);
    }
    let mut merged = Project::clone(own);
    for global in globals {
        let Project {
            name: _,
            labels: _,
            destinations,
            source_repos,
            source_namespaces: _,
            permit_only_project_scoped_clusters: _,
            destination_service_accounts,
            sync_windows,
            resources,
            roles: _,
            location: _,
        } = &**global;
        merged.destinations.extend_from_slice(destinations);
        merged.source_repos.extend_from_slice(source_repos);
        let accounts = &mut merged.destination_service_accounts;
        accounts.extend_from_slice(destination_service_accounts);
        merged.sync_windows.extend_from_slice(sync_windows);
        let ResourceRules {
            cluster_allowed,
            cluster_denied,
            namespaced_allowed,
            namespaced_denied,
        } = resources;
        let own = &mut merged.resources;
        own.cluster_allowed.extend_from_slice(cluster_allowed);
        own.cluster_denied.extend_from_slice(cluster_denied);
        own.namespaced_denied.extend_from_slice(namespaced_denied);
        own.namespaced_allowed = allowed(own.namespaced_allowed.take(), namespaced_allowed.as_deref());
    }
    Arc::new(merged)
}

/// A missing list allows everything, an empty one nothing. As in Argo CD, an empty list of a global
/// project adds nothing: a project without a list still has none.
fn allowed(own: Option<Vec<ResourceRule>>, global: Option<&[ResourceRule]>) -> Option<Vec<ResourceRule>> {
    match (own, global) {
        (own, None | Some([])) => own,
        (None, Some(global)) => Some(global.to_vec()),
        (Some(mut own), Some(global)) => {
            own.extend_from_slice(global);
            Some(own)
        }
    }
}
