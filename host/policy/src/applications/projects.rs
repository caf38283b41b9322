//! Projects as Argo CD puts them together: with the repositories and clusters that belong to them, and
//! with the lists of their global projects.
//!
//! Invariant: all code that asks what a project permits takes it from here.
//!
//! Source: Argo CD, `GetAppProjectByName` and `GetAppVirtualProject`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::global::GlobalProjects;
use super::merge;
use tollgate_config::ServiceAccountSemantics;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_objects::{Project, Resources, ScopedObjects};

/// Every project, by name.
#[derive(Clone, Debug, Default)]
pub struct Projects(BTreeMap<String, Arc<Project>>);

impl Projects {
    /// Puts every project together. If a finding is an error, `globalProjects` is broken, and nothing
    /// of the load may be used.
    pub fn build(resources: &Resources) -> (Self, Vec<Diagnostic>) {
        let semantics = ServiceAccountSemantics::Argocd;
        let (globals, findings) = GlobalProjects::read(&resources.argocd_cm, resources, semantics);
        let mut scoped = resources.scoped_objects();
        let merged = resources.projects.iter().map(|(name, own)| {
            let globals = globals.projects_for(own, &resources.projects);
            let scoped = scoped.remove(name.as_str()).unwrap_or_default();
            (name.clone(), merged(own, &scoped, &globals))
        });
        (Self(merged.collect()), findings)
    }

    /// The project of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Project>> {
        self.0.get(name)
    }

    /// Whether both hold the same projects.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl FromIterator<(String, Arc<Project>)> for Projects {
    fn from_iter<I: IntoIterator<Item = (String, Arc<Project>)>>(projects: I) -> Self {
        Self(projects.into_iter().collect())
    }
}

/// A project with what belongs to it, and with the lists of its global projects.
pub(super) fn merged(own: &Arc<Project>, scoped: &ScopedObjects, globals: &[Arc<Project>]) -> Arc<Project> {
    let ScopedObjects {
        repositories,
        destinations,
    } = scoped;
    if repositories.is_empty() && destinations.is_empty() {
        return merge::merge(own, globals);
    }
    let mut project = Project::clone(own);
    project.source_repos.extend_from_slice(repositories);
    project.destinations.extend_from_slice(destinations);
    merge::merge(&Arc::new(project), globals)
}
