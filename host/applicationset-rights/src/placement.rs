//! Checks whether the project of an Application permits its sources and its destination. The
//! results are findings, and facts for policies. Each check is made once a request.
//!
//! Invariant: the results are those that a direct write of the Application would get.

use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::application::ApplicationFields;
use crate::finding::Finding;
use tollgate_core::glob::{redact_credentials, source_permitted};
use tollgate_objects::destination::{self, CompiledDestinations};
use tollgate_objects::{Cluster, Destination, Project, Resources};
use tollgate_policy::applications::{Projects, is_app_namespace_permitted};
use tollgate_rego::{CheckedFact, PlacementChecks};

/// A fact for the policy, and the finding that refuses, if any.
#[derive(Clone, Debug)]
pub(super) struct CheckResult {
    pub(super) fact: CheckedFact,
    pub(super) finding: Option<Rc<Finding>>,
}

#[derive(Clone, Debug)]
pub(super) struct PlacementVerdict {
    pub(super) placement: PlacementChecks,
    pub(super) findings: Vec<Rc<Finding>>,
}

#[derive(Debug)]
struct ProjectChecks {
    project: Option<(Arc<Project>, CompiledDestinations)>,
    exists: CheckResult,
    accepts_namespace: CheckResult,
    sources: FxHashMap<Vec<String>, CheckResult>,
    destinations: FxHashMap<[String; 3], CheckResult>,
}

#[derive(Debug)]
pub(super) struct PlacementChecker<'a> {
    resources: &'a Resources,
    all_projects: &'a Projects,
    namespace: &'a str,
    by_name: FxHashMap<&'a str, Vec<&'a Cluster>>,
    by_server: FxHashMap<&'a str, Vec<&'a Cluster>>,
    projects: FxHashMap<String, ProjectChecks>,
}

impl<'a> PlacementChecker<'a> {
    /// - `namespace`: namespace of the Applications.
    pub(super) fn new(resources: &'a Resources, all_projects: &'a Projects, namespace: &'a str) -> Self {
        let mut by_name: FxHashMap<&str, Vec<&Cluster>> = FxHashMap::default();
        let mut by_server: FxHashMap<&str, Vec<&Cluster>> = FxHashMap::default();
        for cluster in &resources.clusters {
            by_name.entry(&cluster.name).or_default().push(cluster);
            // `destination::resolve` ignores a trailing slash, too, and must find the same clusters.
            let server = cluster.server.trim_end_matches('/');
            by_server.entry(server).or_default().push(cluster);
        }
        Self {
            resources,
            all_projects,
            namespace,
            by_name,
            by_server,
            projects: FxHashMap::default(),
        }
    }

    pub(super) fn judge(&mut self, application: &ApplicationFields<'_>) -> PlacementVerdict {
        let resolved = self.resolve(&application.destination);
        let resources = self.resources;
        let project_checks = match self.projects.get_mut(application.project) {
            Some(project_checks) => project_checks,
            None => {
                let stored = self.all_projects.find(application.project);
                let control_plane = &resources.control_plane_namespace;
                let fresh = ProjectChecks::new(application.project, stored, control_plane, self.namespace);
                self.projects.entry(application.project.to_owned()).or_insert(fresh)
            }
        };
        let source = project_checks.source(application);
        let destination = project_checks.destination(application, &resolved, &resources.clusters);
        let answers = [
            &project_checks.exists,
            &project_checks.accepts_namespace,
            &source,
            &destination,
        ];
        let findings = answers
            .into_iter()
            .filter_map(|answer| answer.finding.clone())
            .collect();
        PlacementVerdict {
            placement: PlacementChecks {
                project: project_checks.exists.fact.clone(),
                namespace: project_checks.accepts_namespace.fact.clone(),
                source: source.fact,
                destination: destination.fact,
            },
            findings,
        }
    }

    pub(super) fn missing_project(&self, project: &str) -> Option<String> {
        let exists = self.all_projects.find(project).is_some();
        (!exists).then(|| no_project(project))
    }

    /// The text for a destination that does not identify exactly one cluster.
    pub(super) fn destination_error(&self, destination: &Destination) -> Option<String> {
        self.resolve(destination).err()
    }

    /// The cluster, searched only among those that have the name or the server.
    fn resolve(&self, destination: &Destination) -> Result<Cluster, String> {
        let named = self.by_name.get(destination.name.as_str());
        let served = self.by_server.get(destination.server.trim_end_matches('/'));
        let candidates = named.into_iter().chain(served).flatten();
        let candidates: Vec<Cluster> = candidates.map(|cluster| (*cluster).clone()).collect();
        destination::resolve(destination, &candidates).map_err(|error| unresolved(&error))
    }
}

impl ProjectChecks {
    fn new(name: &str, project: Option<&Arc<Project>>, control_plane: &str, namespace: &str) -> Self {
        let missing = project
            .is_none()
            .then(|| Finding::invalid(&no_project(name)).by(format!("project `{name}`")));
        let not_permitted = project.and_then(|project| refused_namespace(project, control_plane, namespace));
        Self {
            exists: CheckResult::new(missing, |refused| {
                CheckedFact::project(name, project.map(|project| &**project), refused)
            }),
            accepts_namespace: CheckResult::new(not_permitted, CheckedFact::new),
            project: project.map(|project| (Arc::clone(project), CompiledDestinations::of(project))),
            sources: FxHashMap::default(),
            destinations: FxHashMap::default(),
        }
    }

    fn source(&mut self, application: &ApplicationFields<'_>) -> CheckResult {
        let key: Vec<String> = application.repositories.iter().map(|url| (*url).to_owned()).collect();
        if let Some(answer) = self.sources.get(&key) {
            return answer.clone();
        }
        let refused = self.project.as_ref().and_then(|(project, _)| {
            let mut urls = application.repositories.iter();
            let url = urls.find(|url| !source_permitted(&project.source_repos, url))?;
            let rule = format!("sourceRepos of project `{}`", project.name);
            let (url, name) = (redact_credentials(url), &project.name);
            let reason = format!("application repo {url} is not permitted in project '{name}'");
            Some(Finding::denied(&reason).by(rule))
        });
        let answer = CheckResult::new(refused, |refused| {
            let urls = application.repositories.iter().map(|url| redact_credentials(url));
            let urls: Vec<String> = urls.collect();
            let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
            CheckedFact::source(&urls, refused)
        });
        self.sources.insert(key, answer.clone());
        answer
    }

    fn destination(
        &mut self,
        application: &ApplicationFields<'_>,
        resolved: &Result<Cluster, String>,
        all: &[Cluster],
    ) -> CheckResult {
        let Destination {
            name,
            server,
            namespace,
        } = &application.destination;
        let key = [name.clone(), server.clone(), namespace.clone()];
        if let Some(answer) = self.destinations.get(&key) {
            return answer.clone();
        }
        let refused = match (resolved, &self.project) {
            (Err(reason), _) => Some(Finding::invalid(reason).by("spec.destination")),
            // `exists` refuses it already.
            (Ok(_), None) => None,
            (Ok(cluster), Some((_, destinations))) if destinations.permit(cluster, namespace, all) => None,
            (Ok(cluster), Some((project, _))) => {
                let target = if name.is_empty() {
                    &cluster.server
                } else {
                    &cluster.name
                };
                let rule = format!("destinations of project `{}`", project.name);
                let reason = format!(
                    "application destination server '{target}' and namespace '{namespace}' do not match any of the \
                     allowed destinations in project '{}'",
                    project.name
                );
                Some(Finding::denied(&reason).by(rule))
            }
        };
        let cluster = resolved.as_ref().ok();
        let answer = CheckResult::new(refused, |refused| CheckedFact::destination(cluster, namespace, refused));
        self.destinations.insert(key, answer.clone());
        answer
    }
}

impl CheckResult {
    fn new(finding: Option<Finding>, fact: impl FnOnce(Option<&str>) -> CheckedFact) -> Self {
        Self {
            fact: fact(finding.as_ref().map(Finding::reason)),
            finding: finding.map(Rc::new),
        }
    }
}

/// The finding if a project does not accept Applications and sets of a namespace.
pub(super) fn refused_namespace(project: &Project, control_plane: &str, namespace: &str) -> Option<Finding> {
    let name = &project.name;
    let refused = !is_app_namespace_permitted(project, control_plane, namespace);
    refused.then(|| {
        let reason = format!("namespace '{namespace}' is not permitted to use project '{name}'");
        Finding::denied(&reason).by(format!("sourceNamespaces of project `{name}`"))
    })
}

fn no_project(name: &str) -> String {
    format!("application references project {name} which does not exist")
}

/// Argo CD's text for a destination that does not resolve.
fn unresolved(error: &destination::Error) -> String {
    use destination::Error;
    let why = match error {
        Error::Missing => "destination server missing from app spec".to_owned(),
        Error::NameAndServer { name, server } => {
            format!("application destination can't have both name and server defined: {name} {server}")
        }
        Error::UnknownName(name) => format!("there are no clusters with this name: {name}"),
        Error::UnknownServer(server) => {
            format!("error getting cluster by server \"{server}\": cluster \"{server}\" not found")
        }
        Error::Ambiguous { servers, .. } => {
            let (count, servers) = (servers.len(), servers.join(" "));
            format!("there are {count} clusters with the same name: [{servers}]")
        }
        Error::ProjectClusters(why) => format!("could not retrieve project clusters: {why}"),
    };
    format!("application destination spec is invalid: {why}")
}
