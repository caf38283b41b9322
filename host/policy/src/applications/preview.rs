//! Who would act for the Applications of a project if its accounts were others.

use std::sync::Arc;

use super::ApplicationIndex;
use crate::impersonate::service_account::ImpersonationRules;
use tollgate_objects::{DestinationServiceAccount, Project, Resources};

impl ApplicationIndex {
    /// The Applications of a project as they would be with these entries, and no others. `None` if
    /// there is no such project.
    ///
    /// Takes time in proportion to the Applications of the state.
    pub fn with_entries(
        &self,
        resources: &Resources,
        rules: &ImpersonationRules,
        project: &str,
        entries: Vec<DestinationServiceAccount>,
    ) -> Option<Self> {
        let stored = resources.projects.get(project)?;
        let changed = Arc::new(Project {
            destination_service_accounts: entries,
            ..Project::clone(stored)
        });
        let mut projects = resources.projects.clone();
        projects.insert(project.to_owned(), changed);
        let of_project = resources
            .applications
            .iter()
            .filter(|(_, application)| application.project == project);
        let candidate = Resources {
            control_plane_namespace: resources.control_plane_namespace.clone(),
            argocd_cm: resources.argocd_cm.clone(),
            argocd_cm_location: resources.argocd_cm_location.clone(),
            projects,
            applications: of_project
                .map(|(name, application)| (name.clone(), Arc::clone(application)))
                .collect(),
            clusters: resources.clusters.clone(),
            // Repositories and clusters that belong to projects are read from these.
            cluster_configs: resources.cluster_configs.clone(),
            secrets: resources.secrets.clone(),
            ..Resources::default()
        };
        Some(Self::build(&candidate, rules, Some(self.mode), Some(self)))
    }
}
