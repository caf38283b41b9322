//! Collects the [`DecodedItem`]s of all documents into [`Resources`], and every finding.
//!
//! Security: objects outside the control plane's namespace are left out, except Applications and
//! ApplicationSets. No finding contains a secret value.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use super::agent::AgentObject;
use super::{Application, Cluster, ClusterConfig, InvalidObject, ObjectName, Resources, destination};
use tollgate_core::diagnostic::{Diagnostic, Location};

mod agent;
mod application_set;
mod cluster;
mod extension;
pub mod last_known_good;
pub mod load;
mod network;
mod people;
mod project;
pub mod read;
mod repository;
mod secret;
mod text;

pub use agent::configured_agent;
pub use cluster::{CREDENTIAL_LABEL, CREDENTIAL_TYPE};
use last_known_good::DecodedInput;
use read::{DecodedItem, DecodedObject, Object, ObjectContent, ObjectKind};
pub use secret::TYPE_LABEL;
pub use text::{load_text, read_file, version_of};

/// The annotation in which kubectl keeps what it applied.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Debug, Default)]
struct Collector<'p> {
    resources: Resources,
    seen: HashMap<(ObjectKind, &'p ObjectName), &'p Location, FxBuildHasher>,
    applications: Vec<(ObjectName, Arc<Application>)>,
    found_clusters: Vec<(Cluster, Location)>,
    /// How the gateway reaches clusters that are enrolled, with their servers.
    credentials: Vec<(String, Arc<ClusterConfig>)>,
    agents: agent::Unresolved,
    people: Vec<Arc<people::Unresolved>>,
    /// Second definitions of tenants' objects. Neither definition is used.
    duplicates: Vec<&'p DecodedObject>,
    findings: Vec<Diagnostic>,
}

/// Collects the objects of `inputs` with every finding; `namespace` is the control plane's. `memo` is
/// of the load that the inputs belong to.
pub(crate) fn collect(inputs: &[DecodedInput], namespace: &str, memo: &mut LoadMemo) -> (Resources, Vec<Diagnostic>) {
    let resources = Resources {
        control_plane_namespace: namespace.to_owned(),
        ..Resources::default()
    };
    let mut collector = Collector {
        resources,
        ..Collector::default()
    };
    for input in inputs {
        collector.add(&input.items);
    }
    collector.finish(memo)
}

/// Results of a load that are built from several objects and reused by the next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadMemo {
    people: people::LoadMemo,
    agents: BTreeMap<String, Arc<AgentObject>>,
    /// How the control plane's own cluster is reached when it has no Secret.
    in_cluster: Option<Arc<ClusterConfig>>,
    /// Clusters that are enrolled, by server.
    enrolled: BTreeMap<String, EnrolledCluster>,
}

/// How a cluster that is enrolled is reached, and what that was made of.
#[derive(Clone, Debug)]
struct EnrolledCluster {
    secret: Arc<ClusterConfig>,
    credential: Option<Arc<ClusterConfig>>,
    joined: Arc<ClusterConfig>,
}

/// Replaces what the Secrets of enrolled clusters say by the gateway's own Secrets. What has not
/// changed since the last load is taken over.
fn join_credentials(
    configs: &mut BTreeMap<String, Arc<ClusterConfig>>,
    credentials: &[(String, Arc<ClusterConfig>)],
    memo: &mut BTreeMap<String, EnrolledCluster>,
    findings: &mut Vec<Diagnostic>,
) {
    let mut before = std::mem::take(memo);
    let mut by_server = HashMap::<&str, (&Arc<ClusterConfig>, Option<&Arc<ClusterConfig>>)>::new();
    for (server, credential) in credentials {
        let known = by_server.entry(server);
        known
            .and_modify(|(_, second)| *second = second.or(Some(credential)))
            .or_insert((credential, None));
    }
    for (server, config) in configs.iter_mut().filter(|(_, config)| config.is_enrolled) {
        let credential = match by_server.get(server.as_str()) {
            // SECURITY: it is ambiguous which of several is meant.
            Some((credential, None)) => Some(Arc::clone(credential)),
            Some((first, Some(second))) => {
                let (at, other) = (second.location.clone(), first.location.as_ref());
                let other = other.map(ToString::to_string).unwrap_or_default();
                let message = format!("two secrets say how the gateway reaches `{server}`, the other at {other}");
                findings.push(Diagnostic::warning(at, message).with_hint("the cluster is not used until one is gone"));
                None
            }
            None => {
                let message = format!("Argo CD reaches `{server}` through the gateway, which has no secret for it");
                let hint = format!(
                    "create one with the label `{}: {}` in a namespace of the gateway's own",
                    cluster::CREDENTIAL_LABEL,
                    cluster::CREDENTIAL_TYPE
                );
                findings.push(Diagnostic::warning(config.location.clone(), message).with_hint(hint));
                None
            }
        };
        let is_same = |one: &Option<Arc<ClusterConfig>>| match (one, &credential) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let known = before.remove(server);
        // With the same pointer, the next snapshot keeps the clusters that it has.
        let known = known.filter(|known| Arc::ptr_eq(&known.secret, config) && is_same(&known.credential));
        let known = known.unwrap_or_else(|| EnrolledCluster {
            joined: Arc::new(cluster::with_own_credential(config, credential.as_deref())),
            secret: Arc::clone(config),
            credential,
        });
        *config = Arc::clone(&known.joined);
        memo.insert(server.clone(), known);
    }
}

impl<'p> Collector<'p> {
    fn add(&mut self, items: &'p [DecodedItem]) {
        for item in items {
            match item {
                DecodedItem::Finding(finding) => self.findings.push(finding.clone()),
                DecodedItem::AgentConfiguration(file) => self.agents.add_file(file.clone(), &mut self.findings),
                DecodedItem::Object(decoded) => {
                    if self.is_first(decoded) {
                        self.findings.extend_from_slice(&decoded.findings);
                        self.keep(decoded);
                    }
                }
            }
        }
    }

    fn is_first(&mut self, decoded: &'p DecodedObject) -> bool {
        let (kind, name) = (decoded.kind, &decoded.name);
        match self.seen.entry((kind, name)) {
            Entry::Vacant(vacant) => {
                vacant.insert(&decoded.location);
                true
            }
            Entry::Occupied(first) => {
                let location = decoded.location.clone();
                let named = format!("{} `{}` in namespace `{}`", kind.as_str(), name.name, name.namespace);
                let message = format!("{named} is defined twice, first at {}", first.get());
                let what = match kind {
                    ObjectKind::Agent => {
                        self.agents.exclude(&name.name);
                        "it is closed"
                    }
                    ObjectKind::AppProject
                    | ObjectKind::Application
                    | ObjectKind::ApplicationSet
                    | ObjectKind::ArgoCDExtension
                    | ObjectKind::Service
                    | ObjectKind::Ingress
                    | ObjectKind::NetworkPolicy => {
                        self.duplicates.push(decoded);
                        "neither is used"
                    }
                    // Operators write these, and every request may depend on them: the load is refused.
                    ObjectKind::ConfigMap | ObjectKind::Secret | ObjectKind::UserDirectory => {
                        self.findings.push(Diagnostic::error(location, message));
                        return false;
                    }
                };
                self.findings
                    .push(Diagnostic::warning(location, format!("{message}; {what}")));
                false
            }
        }
    }

    fn keep(&mut self, decoded: &DecodedObject) {
        let name = &decoded.name;
        let resources = &mut self.resources;
        match &decoded.content {
            ObjectContent::Unused => {}
            ObjectContent::InvalidObject(mistake) => resources.invalid_objects.push(InvalidObject {
                kind: decoded.kind.as_str(),
                name: name.clone(),
                location: decoded.location.clone(),
                mistake: mistake.clone(),
            }),
            ObjectContent::ArgocdCm(map) => {
                resources.argocd_cm = map.clone();
                resources.argocd_cm_location = Some(decoded.location.clone());
            }
            ObjectContent::RbacCm(map) => resources.rbac_cm = map.clone(),
            ObjectContent::CommandParameters(map) => resources.command_parameters = map.clone(),
            ObjectContent::Secret {
                secret,
                cluster,
                repository,
            } => {
                if let Some(repository) = repository {
                    let repositories = &mut resources.repositories;
                    repositories.insert(name.name.clone(), Arc::clone(repository));
                }
                if let Some((cluster, config)) = cluster {
                    let configs = &mut resources.cluster_configs;
                    configs.insert(cluster.server.clone(), Arc::clone(config));
                    self.found_clusters.push((cluster.clone(), secret.location.clone()));
                }
                resources.secrets.insert(name.name.clone(), Arc::clone(secret));
            }
            ObjectContent::ClusterCredential(server, config) => {
                self.credentials.push((server.clone(), Arc::clone(config)));
            }
            ObjectContent::Project(project) => {
                resources.projects.insert(name.name.clone(), Arc::clone(project));
            }
            ObjectContent::Application(application) => {
                self.applications.push((name.clone(), Arc::clone(application)));
            }
            ObjectContent::ApplicationSet(set) => {
                resources.application_sets.insert(name.clone(), Arc::clone(set));
            }
            ObjectContent::Extension(extension) => {
                resources.extensions.insert(name.name.clone(), Arc::clone(extension));
            }
            ObjectContent::Service(service) => {
                resources.services.insert(name.name.clone(), Arc::clone(service));
            }
            ObjectContent::Ingress(ingress) => {
                resources.ingresses.insert(name.name.clone(), Arc::clone(ingress));
            }
            ObjectContent::NetworkPolicy(policy) => {
                resources.network_policies.insert(name.name.clone(), Arc::clone(policy));
            }
            ObjectContent::Agent(agent) => self.agents.add(agent.clone()),
            ObjectContent::People(part) => {
                resources.user_directories.insert(name.name.clone());
                self.people.push(Arc::clone(part));
            }
        }
    }

    fn remove_duplicates(&mut self) {
        for duplicate in std::mem::take(&mut self.duplicates) {
            let (name, resources) = (&duplicate.name, &mut self.resources);
            match duplicate.kind {
                ObjectKind::AppProject => drop(resources.projects.remove(&name.name)),
                ObjectKind::Application => drop(resources.applications.remove(name)),
                ObjectKind::ApplicationSet => drop(resources.application_sets.remove(name)),
                ObjectKind::ArgoCDExtension => drop(resources.extensions.remove(&name.name)),
                ObjectKind::Service => drop(resources.services.remove(&name.name)),
                ObjectKind::Ingress => drop(resources.ingresses.remove(&name.name)),
                ObjectKind::NetworkPolicy => drop(resources.network_policies.remove(&name.name)),
                ObjectKind::ConfigMap | ObjectKind::Secret | ObjectKind::Agent | ObjectKind::UserDirectory => continue,
            }
            // Without this, a project would only be missing, and its clusters would stay in use.
            resources.invalid_objects.push(InvalidObject {
                kind: duplicate.kind.as_str(),
                name: name.clone(),
                location: duplicate.location.clone(),
                mistake: "it is defined twice".to_owned(),
            });
        }
    }

    /// Finds clusters that two Secrets describe. Neither is used, because it is ambiguous which
    /// Secret is meant.
    fn shared_servers(&mut self) -> Vec<Cluster> {
        let mut ambiguous = Vec::new();
        let clusters = &self.found_clusters;
        // They are sorted by server, so Secrets of one server are neighbors.
        for ((first, at), (second, location)) in clusters.iter().zip(clusters.iter().skip(1)) {
            if first.server == second.server {
                let server = &first.server;
                let message = format!("two cluster secrets name the server `{server}`, the other at {at}");
                let hint = "the cluster is not used until one of them is gone";
                self.findings
                    .push(Diagnostic::warning(location.clone(), message).with_hint(hint));
                ambiguous.extend([first.clone(), second.clone()]);
            }
        }
        ambiguous
    }

    /// Warns about a name that two clusters share: it is allowed, but is no usable destination.
    fn shared_names(&mut self) {
        let mut seen: BTreeMap<&str, &Location> = BTreeMap::new();
        let named = self.found_clusters.iter();
        for (cluster, location) in named.filter(|(cluster, _)| !cluster.name.is_empty()) {
            if let Some(first) = seen.insert(&cluster.name, location) {
                let message = format!("two clusters have the name `{}`, the other at {first}", cluster.name);
                let hint = "destinations by that name are refused";
                self.findings
                    .push(Diagnostic::warning(location.clone(), message).with_hint(hint));
            }
        }
    }

    /// Warns once about each project that Applications name and that does not exist. A project with
    /// a mistake has its own finding.
    fn absent_projects(&mut self) {
        let mut absent: BTreeMap<&str, (&Application, usize)> = BTreeMap::new();
        for application in self.resources.applications.values() {
            let project = &application.project;
            if !self.resources.projects.contains_key(project) && !self.resources.is_invalid_project(project) {
                absent.entry(project).or_insert((&**application, 0)).1 += 1;
            }
        }
        for (project, (first, count)) in absent {
            let more = match count {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            let ObjectName { namespace, name } = &first.name;
            let message =
                format!("there is no project `{project}`, which Application `{namespace}/{name}`{more} is in");
            let finding = Diagnostic::warning(first.location.clone(), message);
            self.findings
                .push(finding.with_hint("every request about them is refused until it is there"));
        }
    }

    fn finish(mut self, memo: &mut LoadMemo) -> (Resources, Vec<Diagnostic>) {
        if self.resources.argocd_cm_location.is_none() {
            let namespace = &self.resources.control_plane_namespace;
            let message = format!("no ConfigMap `argocd-cm` in namespace `{namespace}`");
            let finding = Diagnostic::warning(None, message).with_hint("without it nothing is configured");
            self.findings.push(finding);
        }
        // Sorted, so that the order of files does not matter.
        self.found_clusters
            .sort_by(|a, b| (&a.0.server, &a.0.name).cmp(&(&b.0.server, &b.0.name)));
        let ambiguous = self.shared_servers();
        self.shared_names();
        // Building the map of thousands at once is faster than inserting them one by one.
        self.resources.applications = std::mem::take(&mut self.applications).into_iter().collect();
        self.remove_duplicates();
        self.absent_projects();
        let found = self.found_clusters.into_iter().map(|(cluster, _)| cluster).collect();
        let mut known = destination::known_clusters(&self.resources.argocd_cm, found);
        // This also removes the control plane's own cluster, which would be there without a Secret.
        // A name that two clusters shared must not start to mean the one that remains.
        let is_alike = |a: &Cluster, b: &Cluster| a.server == b.server || (!a.name.is_empty() && a.name == b.name);
        known.retain(|cluster| !ambiguous.iter().any(|other| is_alike(other, cluster)));
        // SECURITY: the restrictions of a project with a mistake cannot be enforced, so nobody may
        // access its clusters, just as nobody may access those of its Applications.
        known.retain(|known| known.project.is_empty() || !self.resources.is_invalid_project(&known.project));
        self.resources.clusters = known;
        let configs = &mut self.resources.cluster_configs;
        let servers: HashSet<&str> = self.resources.clusters.iter().map(|known| &*known.server).collect();
        configs.retain(|server, _| servers.contains(server.as_str()));
        join_credentials(configs, &self.credentials, &mut memo.enrolled, &mut self.findings);
        let in_cluster = memo.in_cluster.get_or_insert_with(|| Arc::new(cluster::in_cluster()));
        for known in &self.resources.clusters {
            // Only the control plane's own cluster can be known without a Secret.
            let config = configs.entry(known.server.clone());
            config.or_insert_with(|| Arc::clone(in_cluster));
        }
        self.resources.agents = self.agents.finish(&self.resources.clusters, &mut self.findings);
        // Equal agents keep their pointer, so that the next snapshot reuses what was built of them.
        for (name, agent) in &mut self.resources.agents {
            if let Some(before) = memo.agents.get(name).filter(|before| *before == agent) {
                *agent = Arc::clone(before);
            }
        }
        memo.agents.clone_from(&self.resources.agents);
        self.resources.people = memo.people.directory(self.people, &mut self.findings);
        (self.resources, self.findings)
    }
}
