//! Builds the index of Applications and reuses entries of the previous index that have not changed.
//!
//! Invariant: an entry is reused only if the Application, its project, its cluster and the rules
//! are the same as before.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use rustc_hash::FxHashMap;

use super::accounts::Changes;
use super::global::GlobalProjects;
use super::{
    ApplicationIndex, ApplicationsByName, IndexedApplication, MergedProject, Tracking, is_app_namespace_permitted,
    projects, settings, target,
};
use crate::impersonate::service_account::{DestinationServiceAccounts, Error, Fallback, ImpersonationRules};
use crate::sync_windows::SyncWindows;
use tollgate_config::{ImpersonationMode, ServiceAccountSemantics};
use tollgate_objects::destination::{self, ClustersByProject, CompiledDestinations};
use tollgate_objects::{Application, Cluster, Destination, Project, Resources, ScopedObjects};

impl ApplicationIndex {
    /// Determines project, cluster and account of each Application of `resources`.
    ///
    /// Takes some 20 ms for 10,000 Applications in 500 projects. Entries whose objects are the same
    /// `Arc` as in `previous` are reused.
    ///
    /// - `mode_override`: whether service accounts act, regardless of `argocd-cm`.
    /// - `previous`: the index of the previous snapshot.
    pub fn build(
        resources: &Resources,
        rules: &ImpersonationRules,
        mode_override: Option<ImpersonationMode>,
        previous: Option<&Self>,
    ) -> Self {
        let semantics = rules.semantics;
        let argocd_cm = &resources.argocd_cm;
        let (globals, mut findings) = GlobalProjects::read(argocd_cm, resources, semantics);
        if mode_override.is_none() {
            findings.extend(settings::findings(resources));
        }
        // Compiled lists and derived accounts depend on the semantics.
        let of_before = previous.filter(|before| before.semantics == semantics);
        // The same `Arc` if they are equal, as `unchanged` below compares its address only.
        let clusters = match previous {
            Some(before) if *before.clusters == *resources.clusters => Arc::clone(&before.clusters),
            Some(_) | None => Arc::from(resources.clusters.as_slice()),
        };
        let control_plane: Arc<str> = Arc::from(resources.control_plane_namespace.as_str());
        let fallback = settings::fallback(argocd_cm, rules.fallback);
        let projects = prepare(resources, &globals, semantics, of_before);
        let unchanged = of_before.filter(|before| {
            before.fallback == fallback
                && before.control_plane_namespace == control_plane
                && Arc::ptr_eq(&before.clusters, &clusters)
        });
        let mut builder = IndexBuilder {
            control_plane: &control_plane,
            clusters: &clusters,
            clusters_by_project: OnceCell::new(),
            projects: &projects,
            fallback,
            resolved: FxHashMap::default(),
            permitted: FxHashMap::default(),
        };
        let mut by_namespace: HashMap<String, ApplicationsByName, _> = HashMap::default();
        let mut changes = Changes::default();
        let mut found_before = 0_usize;
        for (name, application) in &resources.applications {
            let project = builder.project(application);
            let before = unchanged.and_then(|before| before.find(&name.namespace, &name.name));
            found_before = found_before.saturating_add(usize::from(before.is_some()));
            let indexed = match before {
                Some(before) if is_same(before, application, project) => Arc::clone(before),
                Some(_) | None => {
                    let indexed = Arc::new(builder.resolve_application(application, project));
                    changes.removed.extend(before.cloned());
                    changes.added.push(Arc::clone(&indexed));
                    indexed
                }
            };
            let members = by_namespace.entry_ref(name.namespace.as_str());
            let members = members.or_insert_with(|| {
                let before = previous.and_then(|before| before.by_namespace.get(&name.namespace));
                ApplicationsByName::with_room_of(before)
            });
            members.insert(indexed);
        }
        let acting = match unchanged {
            Some(before) => {
                // Otherwise no Application is gone, and the pass over all of them is saved.
                if found_before < before.len() {
                    let is_gone = |indexed: &&Arc<IndexedApplication>| {
                        let name = &indexed.application.name;
                        let members = by_namespace.get(&name.namespace);
                        members.and_then(|members| members.find(&name.name)).is_none()
                    };
                    changes.removed.extend(before.iter().filter(is_gone).cloned());
                }
                changes.apply(&before.acting)
            }
            None => changes.apply(&Arc::default()),
        };
        Self {
            mode: mode_override.unwrap_or_else(|| settings::mode(argocd_cm)),
            fallback,
            inheritance: settings::inheritance(argocd_cm),
            tracking: Arc::new(Tracking::from_config_map(argocd_cm)),
            semantics,
            control_plane_namespace: control_plane,
            clusters,
            projects,
            by_namespace,
            findings,
            acting,
        }
    }
}

fn is_same(before: &IndexedApplication, application: &Arc<Application>, project: Option<&Arc<MergedProject>>) -> bool {
    let project = project.map(|project| Arc::as_ptr(&project.merged));
    before.project.as_ref().map(Arc::as_ptr) == project && Arc::ptr_eq(&before.application, application)
}

fn prepare(
    resources: &Resources,
    globals: &GlobalProjects,
    semantics: ServiceAccountSemantics,
    previous: Option<&ApplicationIndex>,
) -> BTreeMap<String, Arc<MergedProject>> {
    let mut scoped = resources.scoped_objects();
    let mut projects = BTreeMap::new();
    for (name, own) in &resources.projects {
        let globals = globals.projects_for(own, &resources.projects);
        let scoped = scoped.remove(name.as_str()).unwrap_or_default();
        let before = previous.and_then(|before| before.projects.get(name));
        let merged_project = match before {
            Some(before) if before.is_unchanged(own, &globals, &scoped) => Arc::clone(before),
            Some(_) | None => Arc::new(MergedProject::new(own, globals, scoped, semantics)),
        };
        projects.insert(name.clone(), merged_project);
    }
    projects
}

impl MergedProject {
    fn new(
        own: &Arc<Project>,
        globals: Vec<Arc<Project>>,
        scoped: ScopedObjects,
        semantics: ServiceAccountSemantics,
    ) -> Self {
        let merged = projects::merged(own, &scoped, &globals);
        let accounts = DestinationServiceAccounts::compile(&merged.destination_service_accounts, semantics);
        let sync_windows = SyncWindows::compile(&merged.sync_windows);
        // What is wrong with entries of global projects is reported once, with those projects.
        let mut findings = accounts.findings(own.destination_service_accounts.len());
        findings.extend(sync_windows.findings(own.sync_windows.len()));
        Self {
            findings,
            destinations: CompiledDestinations::of(&merged),
            accounts: Arc::new(accounts),
            sync_windows: Arc::new(sync_windows),
            own: Arc::clone(own),
            globals,
            scoped,
            merged,
        }
    }

    fn is_unchanged(&self, own: &Arc<Project>, globals: &[Arc<Project>], scoped: &ScopedObjects) -> bool {
        let mut pairs = self.globals.iter().zip(globals);
        Arc::ptr_eq(&self.own, own)
            && self.scoped == *scoped
            && self.globals.len() == globals.len()
            && pairs.all(|(before, now)| Arc::ptr_eq(before, now))
    }
}

/// Builds the index; holds what is computed once for many Applications.
struct IndexBuilder<'a> {
    control_plane: &'a str,
    clusters: &'a [Cluster],
    /// Made when a project permits only its own clusters.
    clusters_by_project: OnceCell<ClustersByProject<'a>>,
    projects: &'a BTreeMap<String, Arc<MergedProject>>,
    fallback: Fallback,
    /// By name and server of a destination.
    resolved: FxHashMap<(&'a str, &'a str), Result<Arc<Cluster>, destination::Error>>,
    /// By project and namespace: the project, if it takes Applications from there.
    permitted: FxHashMap<(&'a str, &'a str), Option<&'a Arc<MergedProject>>>,
}

impl<'a> IndexBuilder<'a> {
    fn project(&mut self, application: &'a Application) -> Option<&'a Arc<MergedProject>> {
        let key = (application.project.as_str(), application.name.namespace.as_str());
        let (projects, control_plane) = (self.projects, self.control_plane);
        *self.permitted.entry(key).or_insert_with(|| {
            let project = projects.get(key.0)?;
            is_app_namespace_permitted(&project.own, control_plane, key.1).then_some(project)
        })
    }

    fn resolve(&mut self, destination: &'a Destination) -> Result<Arc<Cluster>, destination::Error> {
        let clusters = self.clusters;
        let resolved = self.resolved.entry((&destination.name, &destination.server));
        resolved
            .or_insert_with(|| destination::resolve(destination, clusters).map(Arc::new))
            .clone()
    }

    fn resolve_application(
        &mut self,
        application: &'a Arc<Application>,
        project: Option<&Arc<MergedProject>>,
    ) -> IndexedApplication {
        let destination = self.resolve(&application.destination);
        let derived_account = match (project, &destination) {
            (None, _) => Err(Error::Project {
                project: application.project.clone(),
                namespace: application.name.namespace.clone(),
            }),
            (Some(_), Err(error)) => Err(Error::Destination(error.clone())),
            (Some(project), Ok(cluster)) => {
                let target = target(application, cluster, self.control_plane);
                project.accounts.derive_account(&target, self.fallback)
            }
        };
        let is_destination_permitted = match (project, &destination) {
            (Some(project), Ok(cluster)) => {
                let clusters = || {
                    self.clusters_by_project
                        .get_or_init(|| ClustersByProject::of(self.clusters))
                };
                let namespace = &application.destination.namespace;
                project.destinations.permit_among(cluster, namespace, clusters)
            }
            (None, _) | (Some(_), Err(_)) => false,
        };
        IndexedApplication {
            is_destination_permitted,
            application: Arc::clone(application),
            project: project.map(|project| Arc::clone(&project.merged)),
            destination,
            derived_account,
            accounts: project.map(|project| Arc::clone(&project.accounts)),
            sync_windows: project.map(|project| Arc::clone(&project.sync_windows)),
        }
    }
}
