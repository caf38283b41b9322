//! Decodes the YAML tree of one file or object into [`DecodedItem`]s.
//!
//! Invariant: a document is decoded without looking at any other, so its items can be reused as
//! long as it stays the same.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use strum::VariantArray as _;

use super::{agent, application_set, cluster, extension, network, people, project, repository, secret};
use crate::fields::{Fields, Findings, SourceMap};
use crate::network::{Ingress, NetworkPolicy, Service};
use crate::{
    Application, Cluster, ClusterConfig, ConfigMap, ExtensionObject, ObjectName, Project, Repository, Secret, Text,
};
use tollgate_core::diagnostic::{Diagnostic, Location, Severity};
use tollgate_core::yaml::{self, Node, Parsed};

/// Most bytes of keys and values in one ConfigMap or Secret, as the Kubernetes API server enforces
/// it (`MaxSecretSize`).
const MAX_OBJECT_BYTES: usize = 1024 * 1024;

/// The kinds of objects that are read.
#[expect(missing_docs, reason = "each is the kind of its name")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::VariantArray)]
pub enum ObjectKind {
    /// Only three names are read.
    ConfigMap,
    Secret,
    AppProject,
    Application,
    ApplicationSet,
    ArgoCDExtension,
    Agent,
    UserDirectory,
    Service,
    Ingress,
    NetworkPolicy,
}

impl ObjectKind {
    /// `kind`, `apiVersion` and the plural name in paths.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        const ARGOCD: &str = "argoproj.io/v1alpha1";
        const OWN: &str = "tollgate.dev/v1alpha1";
        const NETWORKING: &str = "networking.k8s.io/v1";
        match self {
            Self::ConfigMap => ("ConfigMap", "v1", "configmaps"),
            Self::Secret => ("Secret", "v1", "secrets"),
            Self::AppProject => ("AppProject", ARGOCD, "appprojects"),
            Self::Application => ("Application", ARGOCD, "applications"),
            Self::ApplicationSet => ("ApplicationSet", ARGOCD, "applicationsets"),
            Self::ArgoCDExtension => ("ArgoCDExtension", ARGOCD, "argocdextensions"),
            Self::Agent => ("Agent", OWN, "agents"),
            Self::UserDirectory => ("UserDirectory", OWN, "userdirectories"),
            Self::Service => ("Service", "v1", "services"),
            Self::Ingress => ("Ingress", NETWORKING, "ingresses"),
            Self::NetworkPolicy => ("NetworkPolicy", NETWORKING, "networkpolicies"),
        }
    }

    /// Its `kind`.
    pub const fn as_str(self) -> &'static str {
        self.names().0
    }

    /// Its `apiVersion`.
    pub const fn version(self) -> &'static str {
        self.names().1
    }

    /// Its name in paths of the API.
    pub const fn plural(self) -> &'static str {
        self.names().2
    }

    /// Whether tenants write objects of this kind, or no request depends on it. One with a mistake is
    /// not used, and requests that need it are denied. Agents are treated the same way, see
    /// [`agent`].
    fn is_set_aside(self) -> bool {
        match self {
            Self::AppProject
            | Self::Application
            | Self::ApplicationSet
            | Self::ArgoCDExtension
            | Self::Service
            | Self::Ingress
            | Self::NetworkPolicy => true,
            Self::ConfigMap | Self::Secret | Self::Agent | Self::UserDirectory => false,
        }
    }

    pub(crate) fn allows_any_namespace(self) -> bool {
        match self {
            Self::Application | Self::ApplicationSet => true,
            Self::ConfigMap
            | Self::Secret
            | Self::AppProject
            | Self::ArgoCDExtension
            | Self::Agent
            | Self::UserDirectory
            | Self::Service
            | Self::Ingress
            | Self::NetworkPolicy => false,
        }
    }
}

/// A finding, an object or an agent configuration of one document.
#[expect(missing_docs, reason = "each is what its type says")]
#[derive(Clone, Debug)]
pub enum DecodedItem {
    Finding(Diagnostic),
    Object(DecodedObject),
    AgentConfiguration(agent::ConfigurationFile),
}

/// An object, and what is wrong with it.
#[expect(missing_docs, reason = "each is what its type says")]
#[derive(Clone, Debug)]
pub struct DecodedObject {
    pub kind: ObjectKind,
    pub name: ObjectName,
    pub location: Location,
    pub findings: Vec<Diagnostic>,
    pub content: ObjectContent,
}

/// What the gateway uses of an object.
#[expect(missing_docs, reason = "each is what its type says")]
#[derive(Clone, Debug)]
pub enum ObjectContent {
    /// The object has nothing the gateway uses, or cannot be used.
    Unused,
    /// A tenant's object with a mistake, and the first of its mistakes.
    InvalidObject(String),
    ArgocdCm(ConfigMap),
    RbacCm(ConfigMap),
    CommandParameters(ConfigMap),
    /// A Secret, and the cluster or repository it describes.
    Secret {
        secret: Arc<Secret>,
        cluster: Option<(Cluster, Arc<ClusterConfig>)>,
        repository: Option<Arc<Repository>>,
    },
    /// A Secret of the gateway's, with the server of a cluster and how it is reached.
    ClusterCredential(String, Arc<ClusterConfig>),
    Project(Arc<Project>),
    Application(Arc<Application>),
    ApplicationSet(Arc<Value>),
    /// An ArgoCDExtension with a backend.
    Extension(Arc<ExtensionObject>),
    Service(Arc<Service>),
    Ingress(Arc<Ingress>),
    NetworkPolicy(Arc<NetworkPolicy>),
    Agent(agent::DecodedAgent),
    People(Arc<people::Unresolved>),
}

/// The fields that every object has.
pub(super) struct Object<'a> {
    pub(super) fields: Fields<'a>,
    pub(super) name: ObjectName,
    pub(super) labels: BTreeMap<String, String>,
}

impl Object<'_> {
    pub(super) fn warn(&self, message: impl Into<String>) {
        self.fields.report(Diagnostic::warning(self.fields.location(), message));
    }
}

/// Decodes documents; `namespace` is the control plane's.
#[derive(Debug)]
pub(crate) struct ObjectDecoder<'n> {
    namespace: &'n str,
    findings: Findings,
    items: RefCell<Vec<DecodedItem>>,
}

/// Reads the file at `path`, relative to the loaded folder, if it is an agent's configuration;
/// otherwise gives `None`.
pub(crate) fn configuration(path: &str, parsed: &Parsed, source: &SourceMap) -> Option<Vec<DecodedItem>> {
    let name = agent::configured_agent(path)?;
    Some(agent::ConfigurationFile::read(name, parsed, source))
}

/// Handles a file that cannot be read. If it is an agent's configuration, only that agent cannot be
/// used; any other file refuses the load.
pub fn unreadable(path: &str, finding: Diagnostic) -> Vec<DecodedItem> {
    match agent::configured_agent(path) {
        Some(name) => agent::ConfigurationFile::unreadable(name, finding),
        None => vec![DecodedItem::Finding(finding)],
    }
}

impl<'n> ObjectDecoder<'n> {
    pub(crate) fn new(namespace: &'n str) -> Self {
        Self {
            namespace,
            findings: Findings::default(),
            items: RefCell::default(),
        }
    }

    pub(crate) fn report(&self, finding: Diagnostic) {
        self.findings.borrow_mut().push(finding);
    }

    pub(crate) fn finish(self) -> Vec<DecodedItem> {
        self.flush();
        self.items.into_inner()
    }

    pub(crate) fn document(&self, node: &Node, source: &SourceMap) {
        let Some(fields) = Fields::open(node, source, &self.findings) else {
            return;
        };
        if fields.node("kind").is_none() && fields.node("apiVersion").is_none() {
            let hint = "keep only Kubernetes objects in this folder; a file cut short looks like this";
            return fields.error_with_hint("not a Kubernetes object: `kind` is missing", hint);
        }
        let (Some(kind), Some(version)) = (fields.required("kind"), fields.required("apiVersion")) else {
            return;
        };
        match kind.strip_suffix("List") {
            Some(inner) if fields.node("items").is_some() => self.list(&fields, inner, &version),
            Some(_) | None => self.object(&fields, &kind, &version),
        }
    }

    /// Decodes a list as `kubectl get -o yaml` (`List`) or the API (`SecretList`, whose items have
    /// no kind) gives it.
    fn list(&self, list: &Fields<'_>, inner_kind: &str, version: &str) {
        for fields in list.children("items") {
            let kind = match fields.node("kind") {
                Some(_) => fields.text("kind"),
                None if inner_kind.is_empty() => fields.required("kind"),
                None => Some(inner_kind.to_owned()),
            };
            let version = match fields.node("apiVersion") {
                Some(_) => fields.text("apiVersion"),
                None => Some(version.to_owned()),
            };
            if let (Some(kind), Some(version)) = (kind, version) {
                self.object(&fields, &kind, &version);
            }
        }
    }

    fn object(&self, fields: &Fields<'_>, kind: &str, version: &str) {
        let mut all = ObjectKind::VARIANTS.iter().copied();
        if let Some(kind) = all.find(|known| known.as_str() == kind && known.version() == version) {
            return self.decode_object(fields, kind, None);
        }
        let mut all = ObjectKind::VARIANTS.iter().copied();
        if let Some(meant) = all.find(|known| is_misspelled(*known, kind, version)) {
            let message = format!("`{kind}` of `{version}` is not read");
            let hint = format!("`{}` of `{}` is", meant.as_str(), meant.version());
            self.report(Diagnostic::warning(fields.location(), message).with_hint(hint));
        }
        tracing::debug!(kind, version, location = %fields.location(), "object of a kind the gateway does not use");
    }

    /// - `defect`: why the object cannot be used, regardless of its fields.
    pub(crate) fn decode_object(&self, fields: &Fields<'_>, kind: ObjectKind, defect: Option<&str>) {
        let findings = Findings::default();
        let location = fields.location();
        let Some(object) = self.named(fields.collecting(&findings), kind) else {
            let mut findings = findings.take();
            if kind.is_set_aside() {
                // Without a valid name no other object can refer to it.
                downgrade_errors(&mut findings);
            }
            return self.findings.borrow_mut().append(&mut findings);
        };
        let is_control_planes = object.name.namespace == self.namespace;
        let is_credential = kind == ObjectKind::Secret && is_cluster_credential(&object);
        if is_credential && is_control_planes {
            // SECURITY: Argo CD reads all Secrets of its namespace.
            let label = cluster::CREDENTIAL_LABEL;
            let message = format!(
                "the secret `{}` has the label `{label}` and is not used, because Argo CD can read it",
                object.name.name
            );
            let finding = Diagnostic::warning(location, message);
            return self.report(finding.with_hint("keep it in a namespace of the gateway's own"));
        }
        if !kind.allows_any_namespace() && !is_control_planes && !is_credential {
            tracing::debug!(kind = kind.as_str(), namespace = %object.name.namespace, %location, "object of another namespace");
            return;
        }
        // Findings of the document come before those of its objects, as in the text.
        self.flush();
        if let Some(defect) = defect {
            object.fields.error(defect);
        }
        let mut content = content(kind, &object);
        let name = object.name;
        let mut findings = findings.take();
        if kind.is_set_aside()
            && let Some(mistake) = downgrade_errors(&mut findings)
        {
            content = ObjectContent::InvalidObject(mistake);
        }
        self.items.borrow_mut().push(DecodedItem::Object(DecodedObject {
            kind,
            location,
            name,
            findings,
            content,
        }));
    }

    /// Reads the fields that every object has; `None` if it has no name.
    fn named<'a>(&self, fields: Fields<'a>, kind: ObjectKind) -> Option<Object<'a>> {
        let Some(metadata) = fields.child("metadata") else {
            fields.error(format!("{} without `metadata`", kind.as_str()));
            return None;
        };
        let namespace = metadata.text("namespace").filter(|namespace| !namespace.is_empty());
        let namespace = namespace.unwrap_or_else(|| self.namespace.to_owned());
        let name = metadata.required("name")?;
        let labels = metadata.text_map("labels").into_iter();
        let labels = labels.map(|(key, text)| (key, text.value.to_string())).collect();
        let name = ObjectName { namespace, name };
        Some(Object { fields, name, labels })
    }

    fn flush(&self) {
        let mut findings = self.findings.borrow_mut();
        let findings = findings.drain(..).map(DecodedItem::Finding);
        self.items.borrow_mut().extend(findings);
    }
}

pub(crate) fn objects(items: &[DecodedItem]) -> impl Iterator<Item = ((ObjectKind, &ObjectName), &DecodedObject)> {
    items.iter().filter_map(|item| match item {
        DecodedItem::Object(decoded) => Some(((decoded.kind, &decoded.name), decoded)),
        DecodedItem::Finding(_) | DecodedItem::AgentConfiguration(_) => None,
    })
}

/// Decodes an object of an API server. Findings name it by `file`; `defect` is why the object is not whole.
pub fn read_object(
    kind: ObjectKind,
    object: &Value,
    file: Arc<str>,
    namespace: &str,
    defect: Option<&str>,
) -> Vec<DecodedItem> {
    let source = SourceMap::file(file);
    let node = yaml::from_json(object);
    let decoder = ObjectDecoder::new(namespace);
    let findings = Findings::default();
    if let Some(fields) = Fields::open(&node, &source, &findings) {
        decoder.decode_object(&fields, kind, defect);
    }
    findings.take().into_iter().for_each(|finding| decoder.report(finding));
    decoder.finish()
}

/// Whether an Application, an ApplicationSet, a project or a Secret decoded to the same as before. Argo CD
/// writes the status of Applications and ApplicationSets all the time, and the status does not
/// matter here.
pub fn is_unchanged(new: &[DecodedItem], old: &[DecodedItem]) -> bool {
    let ([DecodedItem::Object(new)], [DecodedItem::Object(old)]) = (new, old) else {
        return false;
    };
    let same = match (&new.content, &old.content) {
        (ObjectContent::Application(new), ObjectContent::Application(old)) => Arc::ptr_eq(new, old),
        (ObjectContent::Project(new), ObjectContent::Project(old)) => Arc::ptr_eq(new, old),
        (ObjectContent::ApplicationSet(new), ObjectContent::ApplicationSet(old)) => is_same_set(new, old),
        // What a Secret says of a cluster or repository includes its annotations and its version.
        (
            ObjectContent::Secret {
                secret: new,
                cluster: None,
                repository: None,
            },
            ObjectContent::Secret {
                secret: old,
                cluster: None,
                repository: None,
            },
        ) => Arc::ptr_eq(new, old),
        (ObjectContent::Unused, ObjectContent::Unused) => true,
        _ => false,
    };
    same && new.findings == old.findings
}

/// Whether two states of an ApplicationSet differ at most in what a write of its status changes.
fn is_same_set(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
        return new == old;
    };
    compared_fields(new).eq(compared_fields(old)) && compared_metadata(new).eq(compared_metadata(old))
}

fn compared_fields(set: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    set.iter()
        .filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status"))
}

fn compared_metadata(set: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let metadata = set.get("metadata").and_then(Value::as_object);
    let members = metadata.into_iter().flatten();
    members.filter(|(key, _)| !matches!(key.as_str(), "resourceVersion" | "generation"))
}

/// Turns the errors of an object into warnings that name the consequence. Returns the message of
/// the first one.
pub(crate) fn downgrade_errors(findings: &mut [Diagnostic]) -> Option<String> {
    let mut first = None;
    for finding in findings.iter_mut().filter(|finding| finding.is_error()) {
        first.get_or_insert_with(|| finding.message.clone());
        finding.severity = Severity::Warning;
        finding.message = format!("the object is set aside: {}", finding.message);
    }
    first
}

/// Replaces new Applications, ApplicationSets, projects and Secrets by equal `old` ones, so that comparing
/// pointers shows what did not change.
pub fn reuse_equal(new: &mut [DecodedItem], old: &[DecodedItem]) {
    let by_name: BTreeMap<_, _> = objects(old).collect();
    for item in new {
        let DecodedItem::Object(new) = item else { continue };
        let Some(old) = by_name.get(&(new.kind, &new.name)) else {
            continue;
        };
        match (&mut new.content, &old.content) {
            (ObjectContent::Application(new), ObjectContent::Application(old)) if new == old => *new = Arc::clone(old),
            (ObjectContent::Project(new), ObjectContent::Project(old)) if new == old => *new = Arc::clone(old),
            (ObjectContent::ApplicationSet(new), ObjectContent::ApplicationSet(old)) if new == old => {
                *new = Arc::clone(old)
            }
            (ObjectContent::Secret { secret: new, .. }, ObjectContent::Secret { secret: old, .. })
                if new.is_same(old) =>
            {
                *new = Arc::clone(old)
            }
            _ => {}
        }
    }
}

/// Whether an object was probably meant to be of a known kind: its kind differs by one letter, or
/// its version is another one of the same group.
fn is_misspelled(known: ObjectKind, kind: &str, version: &str) -> bool {
    fn group(version: &str) -> &str {
        version.split_once('/').map_or("", |(group, _)| group)
    }
    let is_near = |one: &str, two: &str| strsim::levenshtein(&one.to_ascii_lowercase(), &two.to_ascii_lowercase()) <= 1;
    let is_kind = kind == known.as_str();
    let (wanted, found) = (group(known.version()), group(version));
    match (is_kind, wanted == found) {
        (true, true) => true,
        (false, true) => is_near(kind, known.as_str()),
        (true, false) => is_near(wanted, found),
        (false, false) => false,
    }
}

fn content(kind: ObjectKind, object: &Object<'_>) -> ObjectContent {
    let read = match kind {
        ObjectKind::ConfigMap => return config_map(object),
        ObjectKind::Secret => return secret(object),
        ObjectKind::UserDirectory => Some(ObjectContent::People(Arc::new(people::Unresolved::read(object)))),
        ObjectKind::AppProject => project::project(object).map(Arc::new).map(ObjectContent::Project),
        ObjectKind::Application => project::application(object)
            .map(Arc::new)
            .map(ObjectContent::Application),
        ObjectKind::ApplicationSet => application_set::application_set(object)
            .map(Arc::new)
            .map(ObjectContent::ApplicationSet),
        ObjectKind::ArgoCDExtension => extension::extension(object).map(Arc::new).map(ObjectContent::Extension),
        ObjectKind::Agent => agent::DecodedAgent::object(object).map(ObjectContent::Agent),
        ObjectKind::Service => network::service(object).map(Arc::new).map(ObjectContent::Service),
        ObjectKind::Ingress => network::ingress(object).map(Arc::new).map(ObjectContent::Ingress),
        ObjectKind::NetworkPolicy => network::network_policy(object)
            .map(Arc::new)
            .map(ObjectContent::NetworkPolicy),
    };
    read.unwrap_or(ObjectContent::Unused)
}

fn config_map(object: &Object<'_>) -> ObjectContent {
    let name = object.name.name.as_str();
    let content = match name {
        "argocd-cm" => ObjectContent::ArgocdCm,
        "argocd-rbac-cm" => ObjectContent::RbacCm,
        "argocd-cmd-params-cm" => ObjectContent::CommandParameters,
        _ => {
            tracing::debug!(name, "ConfigMap the gateway does not use");
            return ObjectContent::Unused;
        }
    };
    let data = object.fields.text_map("data");
    let size = |(key, text): (&String, &Text)| key.len().saturating_add(text.value.len());
    check_size("ConfigMap", data.iter().map(size).sum(), object);
    content(ConfigMap { data })
}

fn is_cluster_credential(object: &Object<'_>) -> bool {
    let label = object.labels.get(cluster::CREDENTIAL_LABEL);
    label.is_some_and(|value| value == cluster::CREDENTIAL_TYPE)
}

/// A Secret that says how the gateway reaches a cluster. Another one with its name, in the control
/// plane's namespace, has nothing to do with it.
fn cluster_credential(secret: &Secret, object: &Object<'_>) -> ObjectContent {
    let Some(cluster) = secret::cluster(secret, object) else {
        return ObjectContent::Unused;
    };
    let config = cluster::config(object, secret, &cluster);
    if config.is_enrolled {
        let name = &object.name.name;
        object.warn(format!(
            "the secret `{name}` is not used: the gateway reaches clusters without `proxyUrl`"
        ));
        return ObjectContent::Unused;
    }
    ObjectContent::ClusterCredential(cluster.server, Arc::new(config))
}

fn secret(object: &Object<'_>) -> ObjectContent {
    let (mut secret, bytes) = secret::secret(object);
    check_size("Secret", bytes, object);
    if is_cluster_credential(object) {
        return cluster_credential(&secret, object);
    }
    let name = &object.name.name;
    let secret_type = object.labels.get(secret::TYPE_LABEL).map_or("", String::as_str);
    let repository = repository::kind(secret_type)
        .and_then(|kind| repository::repository(&secret, name, kind, object))
        .map(Arc::new);
    let mut cluster = None;
    if secret_type == "cluster" && expand_kubeconfig(&mut secret, object) {
        cluster = secret::cluster(&secret, object);
    }
    let cluster = cluster.map(|cluster| {
        let config = cluster::config(object, &secret, &cluster);
        (cluster, Arc::new(config))
    });
    ObjectContent::Secret {
        secret: Arc::new(secret),
        cluster,
        repository,
    }
}

/// Expands the kubeconfig of a Secret; returns whether the Secret can be used.
fn expand_kubeconfig(secret: &mut Secret, object: &Object<'_>) -> bool {
    let mistakes = cluster::kubeconfig::expand(secret).err();
    for mistake in mistakes.iter().flatten() {
        let name = &object.name.name;
        object.warn(format!("the cluster of secret `{name}` cannot be used: {mistake}"));
    }
    mistakes.is_none()
}

fn check_size(kind: &str, bytes: usize, object: &Object<'_>) {
    if bytes > MAX_OBJECT_BYTES {
        let name = &object.name.name;
        let message = format!("{kind} `{name}` holds {bytes} bytes, at most {MAX_OBJECT_BYTES} are allowed");
        object.fields.error(message);
    }
}
