//! What belongs to a project by its Secret: repositories and clusters that name the project. Argo CD
//! permits them to the project's Applications as if the project listed them.
//!
//! Source: Argo CD, `GetAppProjectByName`, `GetProjectRepositories` and `GetProjectClusters`.

use std::collections::BTreeMap;

use crate::decode::TYPE_LABEL;
use crate::{Destination, Resources};

/// The repositories and clusters of one project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopedObjects {
    /// URLs of its repositories of any kind, in the order of their Secrets' names.
    pub repositories: Vec<String>,
    /// Its clusters, each with the namespaces that its Secret names, or all.
    pub destinations: Vec<Destination>,
}

impl Resources {
    /// What belongs to projects, by the project's name. Repositories of git, Helm and OCI count
    /// alike, whether generators can read them or not.
    pub fn scoped_objects(&self) -> BTreeMap<&str, ScopedObjects> {
        let mut by_project: BTreeMap<&str, ScopedObjects> = BTreeMap::new();
        for secret in self.secrets.values() {
            let is_repository = secret.labels.get(TYPE_LABEL).is_some_and(|kind| kind == "repository");
            let (project, url) = (secret.text("project"), secret.text("url"));
            if is_repository && !project.is_empty() && !url.is_empty() {
                by_project.entry(project).or_default().repositories.push(url.to_owned());
            }
        }
        for cluster in self.clusters.iter().filter(|cluster| !cluster.project.is_empty()) {
            let config = self.cluster_configs.get(&cluster.server);
            let secret = config.and_then(|config| self.secrets.get(config.secret_name.as_ref()?));
            let listed = secret.map_or("", |secret| secret.text("namespaces"));
            let mut namespaces: Vec<&str> = listed.split(',').map(str::trim).collect();
            namespaces.retain(|namespace| !namespace.is_empty());
            if namespaces.is_empty() {
                namespaces.push("*");
            }
            let destinations = namespaces.into_iter().map(|namespace| Destination {
                name: String::new(),
                server: cluster.server.clone(),
                namespace: namespace.to_owned(),
            });
            let of_project = by_project.entry(&cluster.project).or_default();
            of_project.destinations.extend(destinations);
        }
        by_project
    }
}
