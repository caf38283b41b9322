//! A project together with its global projects.
//!
//! In: a project, global projects in order. Out: one project. Never: an entry of a
//! global project before one of the project's own.
//!
//! Source: Argo CD, `GetAppVirtualProject`.

use std::sync::Arc;

use tollgate_state::{Project, ResourceRule, ResourceRules};

/// The project with the lists of `globals` behind its own. Source namespaces, roles
/// and whose clusters it may use stay its own.
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
            resources,
            roles: _,
            location: _,
        } = &**global;
        merged.destinations.extend_from_slice(destinations);
        merged.source_repos.extend_from_slice(source_repos);
        let accounts = &mut merged.destination_service_accounts;
        accounts.extend_from_slice(destination_service_accounts);
        append(&mut merged.resources, resources);
    }
    Arc::new(merged)
}

fn append(own: &mut ResourceRules, global: &ResourceRules) {
    let ResourceRules {
        cluster_allowed,
        cluster_denied,
        namespaced_allowed,
        namespaced_denied,
    } = global;
    own.cluster_allowed.extend_from_slice(cluster_allowed);
    own.cluster_denied.extend_from_slice(cluster_denied);
    own.namespaced_denied.extend_from_slice(namespaced_denied);
    own.namespaced_allowed = allowed(own.namespaced_allowed.take(), namespaced_allowed.as_deref());
}

/// No list allows everything, an empty one nothing. As in Argo CD an empty list of a
/// global project adds nothing: where the project has none, there is none still.
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
