//! Kubernetes objects, decoded from YAML trees.
//!
//! In: documents with their places. Out: [`Resources`] and every finding.
//! Never: an object of another namespace than the control plane's, except
//! Applications; a secret value in a finding.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::fields::{Fields, Source};
use super::yaml::{Node, Parsed};
use super::{Cluster, ConfigMap, ObjectName, Resources, destination};
use crate::diagnostic::{Diagnostic, Location};

mod agent;
mod cluster;
mod people;
mod project;
mod secret;

/// Bytes of keys and values one ConfigMap or Secret may hold, as the
/// Kubernetes API server enforces it (`MaxSecretSize`).
const OBJECT_BYTES: usize = 1024 * 1024;

/// The kinds that are decoded, with the API version they must have.
const KINDS: [(&str, &str); 6] = [
    ("ConfigMap", "v1"),
    ("Secret", "v1"),
    ("AppProject", "argoproj.io/v1alpha1"),
    ("Application", "argoproj.io/v1alpha1"),
    ("Agent", "tollgate.dev/v1alpha1"),
    ("UserDirectory", "tollgate.dev/v1alpha1"),
];

/// Objects read so far.
#[derive(Debug)]
pub(crate) struct Collector {
    resources: Resources,
    seen: BTreeMap<(&'static str, ObjectName), Location>,
    found_clusters: Vec<(Cluster, Location)>,
    agents: agent::Draft,
    people: people::Draft,
    /// Every finding so far.
    pub(crate) findings: Vec<Diagnostic>,
}

/// What every object has.
struct Object<'a> {
    fields: Fields<'a>,
    name: ObjectName,
    labels: BTreeMap<String, String>,
}

impl Collector {
    /// Nothing read yet; `namespace` is the control plane's.
    pub(crate) fn new(namespace: &str) -> Self {
        let resources = Resources {
            control_plane_namespace: namespace.to_owned(),
            ..Resources::default()
        };
        Self {
            resources,
            seen: BTreeMap::new(),
            found_clusters: Vec::new(),
            agents: agent::Draft::default(),
            people: people::Draft::default(),
            findings: Vec::new(),
        }
    }

    /// Reads a file that is an agent's configuration by its `path`, which is
    /// relative to the folder of the load. Gives whether it was one.
    pub(crate) fn configuration(&mut self, path: &str, parsed: &Parsed, source: &Source) -> bool {
        let Some(name) = agent::configured_by(path) else {
            return false;
        };
        self.agents.file(name, parsed, source, &mut self.findings);
        true
    }

    /// Takes in that a file cannot be read: an agent's configuration closes that
    /// agent, any other file refuses the load.
    pub(crate) fn unreadable(&mut self, path: &str, finding: Diagnostic) {
        match agent::configured_by(path) {
            Some(name) => self.agents.unreadable(name, finding, &mut self.findings),
            None => self.findings.push(finding),
        }
    }

    /// Reads one document: an object or a list of objects.
    pub(crate) fn document(&mut self, node: &Node, source: &Source) {
        let Some(fields) = Fields::open(node, source, String::new(), &mut self.findings) else {
            return;
        };
        if fields.node("kind").is_none() && fields.node("apiVersion").is_none() {
            let finding = Diagnostic::error(fields.location(), "not a Kubernetes object: `kind` is missing");
            self.findings.push(
                finding.with_hint("keep only Kubernetes objects in this folder; a file cut short looks like this"),
            );
            return;
        }
        let (Some(kind), Some(version)) = (
            fields.required("kind", &mut self.findings),
            fields.required("apiVersion", &mut self.findings),
        ) else {
            return;
        };
        match kind.strip_suffix("List") {
            Some(inner) if fields.node("items").is_some() => self.list(&fields, (inner, &version)),
            Some(_) | None => self.object(fields, (&kind, &version)),
        }
    }

    /// A list as `kubectl get -o yaml` (`List`) or the API (`SecretList`, whose
    /// items carry no kind of their own) gives it.
    fn list(&mut self, list: &Fields<'_>, inner: (&str, &str)) {
        for fields in list.children("items", &mut self.findings) {
            let kind = match fields.node("kind") {
                Some(_) => fields.text("kind", &mut self.findings),
                None if inner.0.is_empty() => fields.required("kind", &mut self.findings),
                None => Some(inner.0.to_owned()),
            };
            let version = match fields.node("apiVersion") {
                Some(_) => fields.text("apiVersion", &mut self.findings),
                None => Some(inner.1.to_owned()),
            };
            if let (Some(kind), Some(version)) = (kind, version) {
                self.object(fields, (&kind, &version));
            }
        }
    }

    fn object(&mut self, fields: Fields<'_>, (kind, version): (&str, &str)) {
        let known = KINDS.iter().find(|known| known.0 == kind && known.1 == version);
        let Some(&(kind, _)) = known else {
            tracing::debug!(kind, version, location = %fields.location(), "object of a kind the gateway does not use");
            return;
        };
        let Some(metadata) = fields.child("metadata", &mut self.findings) else {
            let finding = Diagnostic::error(fields.location(), format!("{kind} without `metadata`"));
            self.findings.push(finding);
            return;
        };
        let own = self.resources.control_plane_namespace.clone();
        let namespace = metadata
            .text("namespace", &mut self.findings)
            .filter(|namespace| !namespace.is_empty());
        let namespace = namespace.unwrap_or_else(|| own.clone());
        let Some(name) = metadata.required("name", &mut self.findings) else {
            return;
        };
        let labels = metadata.text_map("labels", &mut self.findings);
        let labels = labels
            .into_iter()
            .map(|(key, text)| (key, text.value.as_ref().to_owned()))
            .collect();
        let name = ObjectName { namespace, name };
        if kind != "Application" && name.namespace != own {
            tracing::debug!(kind, namespace = %name.namespace, location = %fields.location(), "object of another namespace");
            return;
        }
        if self.is_first(kind, &name, fields.location()) {
            self.keep(kind, &Object { fields, name, labels });
        }
    }

    fn is_first(&mut self, kind: &'static str, name: &ObjectName, location: Location) -> bool {
        match self.seen.entry((kind, name.clone())) {
            Entry::Vacant(vacant) => {
                vacant.insert(location);
                true
            }
            Entry::Occupied(first) => {
                let named = format!("{kind} `{}` in namespace `{}`", name.name, name.namespace);
                let message = format!("{named} is defined twice, first at {}", first.get());
                self.findings.push(if kind == "Agent" {
                    self.agents.shut(&name.name);
                    Diagnostic::warning(location, format!("{message}; it is closed"))
                } else {
                    Diagnostic::error(location, message)
                });
                false
            }
        }
    }

    fn keep(&mut self, kind: &str, object: &Object<'_>) {
        match kind {
            "ConfigMap" => self.config_map(object),
            "Secret" => self.secret(object),
            "AppProject" => {
                if let Some(project) = project::project(object, &mut self.findings) {
                    self.resources
                        .projects
                        .insert(object.name.name.clone(), Arc::new(project));
                }
            }
            "Agent" => self.agents.object(object, &mut self.findings),
            "UserDirectory" => self.people.add(object, &mut self.findings),
            // KINDS holds nothing else.
            _ => {
                if let Some(application) = project::application(object, &mut self.findings) {
                    self.resources
                        .applications
                        .insert(object.name.clone(), Arc::new(application));
                }
            }
        }
    }

    fn config_map(&mut self, object: &Object<'_>) {
        let name = object.name.name.as_str();
        if !matches!(name, "argocd-cm" | "argocd-rbac-cm") {
            tracing::debug!(name, "ConfigMap the gateway does not use");
            return;
        }
        let data = object.fields.text_map("data", &mut self.findings);
        let bytes = data
            .iter()
            .map(|(key, text)| key.len().saturating_add(text.value.len()))
            .sum();
        self.check_size("ConfigMap", bytes, object);
        match name {
            "argocd-cm" => self.resources.argocd_cm = ConfigMap { data },
            _ => self.resources.rbac_cm = ConfigMap { data },
        }
    }

    fn secret(&mut self, object: &Object<'_>) {
        let (mut secret, bytes) = secret::secret(object, &mut self.findings);
        self.check_size("Secret", bytes, object);
        let is_cluster = object
            .labels
            .get(secret::TYPE_LABEL)
            .is_some_and(|kind| kind == "cluster");
        let usable = !is_cluster || self.expand_kubeconfig(&mut secret, &object.name.name);
        if is_cluster
            && usable
            && let Some(cluster) = secret::cluster(&secret, &object.name.name, &mut self.findings)
        {
            let config = cluster::config(object, &secret, &cluster, &mut self.findings);
            let configs = &mut self.resources.cluster_configs;
            configs.insert(cluster.server.clone(), Arc::new(config));
            self.found_clusters.push((cluster, secret.location.clone()));
        }
        self.resources.secrets.insert(object.name.name.clone(), secret);
    }

    /// Whether the Secret can be used, after its kubeconfig was taken apart.
    fn expand_kubeconfig(&mut self, secret: &mut super::Secret, name: &str) -> bool {
        let Err(mistakes) = cluster::kubeconfig::expand(secret) else {
            return true;
        };
        for mistake in mistakes {
            let message = format!("the cluster of secret `{name}` cannot be used: {mistake}");
            let finding = Diagnostic::warning(secret.location.clone(), message);
            self.findings.push(finding);
        }
        false
    }

    fn check_size(&mut self, kind: &str, bytes: usize, object: &Object<'_>) {
        if bytes > OBJECT_BYTES {
            let message = format!(
                "{kind} `{}` holds {bytes} bytes, at most {OBJECT_BYTES} are allowed",
                object.name.name
            );
            self.findings.push(Diagnostic::error(object.fields.location(), message));
        }
    }

    /// A name of two clusters is allowed, and useless as a destination.
    fn shared_names(&mut self) {
        let mut seen: BTreeMap<&str, &Location> = BTreeMap::new();
        for (cluster, location) in self
            .found_clusters
            .iter()
            .filter(|(cluster, _)| !cluster.name.is_empty())
        {
            if let Some(first) = seen.insert(&cluster.name, location) {
                let message = format!("two clusters have the name `{}`, the other at {first}", cluster.name);
                let hint = "destinations by that name are refused";
                self.findings
                    .push(Diagnostic::warning(location.clone(), message).with_hint(hint));
            }
        }
    }

    /// The objects, with the clusters they make.
    pub(crate) fn finish(mut self) -> (Resources, Vec<Diagnostic>) {
        if !self
            .seen
            .keys()
            .any(|(kind, name)| *kind == "ConfigMap" && name.name == "argocd-cm")
        {
            let message = format!(
                "no ConfigMap `argocd-cm` in namespace `{}`",
                self.resources.control_plane_namespace
            );
            self.findings
                .push(Diagnostic::warning(None, message).with_hint("without it nothing is configured"));
        }
        // Sorted, so that the order of files does not matter.
        self.found_clusters
            .sort_by(|a, b| (&a.0.server, &a.0.name).cmp(&(&b.0.server, &b.0.name)));
        for pair in self.found_clusters.windows(2) {
            let [(first, at), (second, location)] = pair else {
                continue;
            };
            if first.server == second.server {
                let message = format!(
                    "two cluster secrets name the server `{}`, the other at {at}",
                    first.server
                );
                self.findings.push(Diagnostic::error(location.clone(), message));
            }
        }
        self.shared_names();
        let found = self.found_clusters.into_iter().map(|(cluster, _)| cluster).collect();
        self.resources.clusters = destination::known_clusters(&self.resources.argocd_cm, found);
        let configs = &mut self.resources.cluster_configs;
        configs.retain(|server, _| self.resources.clusters.iter().any(|known| known.server == *server));
        for known in &self.resources.clusters {
            configs
                .entry(known.server.clone())
                .or_insert_with(|| Arc::new(cluster::own()));
        }
        self.resources.agents = self.agents.finish(&self.resources.clusters, &mut self.findings);
        self.resources.people = Arc::new(self.people.finish(&mut self.findings));
        (self.resources, self.findings)
    }
}
