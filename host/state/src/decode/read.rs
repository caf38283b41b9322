//! Decodes the YAML tree of one file or object into [`DecodedItem`]s.
//!
//! Invariant: a document is decoded without looking at any other, so its items can be reused as
//! long as it stays the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::{agent, application_set, cluster, extension, people, project, repository, secret};
use crate::fields::{Fields, SourceMap};
use crate::{Application, Cluster, ClusterConfig, ConfigMap, ExtensionObject, ObjectName, Project, Repository, Secret};
use tollgate_core::diagnostic::{Diagnostic, Location, Severity};
use tollgate_core::yaml::{Node, Parsed};

/// Most bytes of keys and values in one ConfigMap or Secret, as the Kubernetes API server enforces
/// it (`MaxSecretSize`).
const MAX_OBJECT_BYTES: usize = 1024 * 1024;

/// The kinds that are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ObjectKind {
    /// `v1`; only two names are read.
    ConfigMap,
    /// `v1`.
    Secret,
    /// `argoproj.io/v1alpha1`.
    AppProject,
    /// `argoproj.io/v1alpha1`, in any namespace.
    Application,
    /// `argoproj.io/v1alpha1`, in any namespace.
    ApplicationSet,
    /// `argoproj.io/v1alpha1`.
    ArgoCDExtension,
    /// `tollgate.dev/v1alpha1`.
    Agent,
    /// `tollgate.dev/v1alpha1`.
    UserDirectory,
}

impl ObjectKind {
    const ALL: [Self; 8] = [
        Self::ConfigMap,
        Self::Secret,
        Self::AppProject,
        Self::Application,
        Self::ApplicationSet,
        Self::ArgoCDExtension,
        Self::Agent,
        Self::UserDirectory,
    ];

    /// `kind` as objects have it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::AppProject => "AppProject",
            Self::Application => "Application",
            Self::ApplicationSet => "ApplicationSet",
            Self::ArgoCDExtension => "ArgoCDExtension",
            Self::Agent => "Agent",
            Self::UserDirectory => "UserDirectory",
        }
    }

    /// `apiVersion` as objects have it.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::ConfigMap | Self::Secret => "v1",
            Self::AppProject | Self::Application | Self::ApplicationSet | Self::ArgoCDExtension => {
                "argoproj.io/v1alpha1"
            }
            Self::Agent | Self::UserDirectory => "tollgate.dev/v1alpha1",
        }
    }

    /// Whether tenants write objects of this kind. One with a mistake is not used, and requests
    /// that need it are denied. Agents are treated the same way, see [`agent`].
    fn is_tenant_writable(self) -> bool {
        match self {
            Self::AppProject | Self::Application | Self::ApplicationSet | Self::ArgoCDExtension => true,
            Self::ConfigMap | Self::Secret | Self::Agent | Self::UserDirectory => false,
        }
    }

    /// Whether objects outside the control plane's namespace are used.
    pub(crate) fn allows_any_namespace(self) -> bool {
        match self {
            Self::Application | Self::ApplicationSet => true,
            Self::ConfigMap
            | Self::Secret
            | Self::AppProject
            | Self::ArgoCDExtension
            | Self::Agent
            | Self::UserDirectory => false,
        }
    }
}

/// A finding, an object or an agent configuration of one document.
#[derive(Clone, Debug)]
pub(crate) enum DecodedItem {
    /// A finding that belongs to no object.
    Finding(Diagnostic),
    /// An object.
    Object(DecodedObject),
    /// The configuration file of an agent.
    AgentConfiguration(agent::ConfigurationFile),
}

/// A decoded Kubernetes object.
#[derive(Clone, Debug)]
pub(crate) struct DecodedObject {
    /// Its kind.
    pub(crate) kind: ObjectKind,
    /// Its namespace and name.
    pub(crate) name: ObjectName,
    /// Where it starts.
    pub(crate) location: Location,
    /// The findings about it.
    pub(crate) findings: Vec<Diagnostic>,
    /// Its content.
    pub(crate) content: ObjectContent,
}

/// The content of an object.
#[derive(Clone, Debug)]
pub(crate) enum ObjectContent {
    /// The object has nothing the gateway uses, or cannot be used.
    Unused,
    /// A tenant's object with a mistake, and the first of its mistakes.
    InvalidObject(String),
    /// ConfigMap `argocd-cm`.
    ArgocdCm(ConfigMap),
    /// ConfigMap `argocd-rbac-cm`.
    RbacCm(ConfigMap),
    /// A Secret, and the cluster or repository it describes.
    Secret {
        secret: Arc<Secret>,
        cluster: Option<(Cluster, Arc<ClusterConfig>)>,
        repository: Option<Arc<Repository>>,
    },
    /// An AppProject.
    Project(Arc<Project>),
    /// An Application.
    Application(Arc<Application>),
    /// An ApplicationSet, whole.
    ApplicationSet(Arc<Value>),
    /// An ArgoCDExtension with a backend.
    Extension(Arc<ExtensionObject>),
    /// An Agent.
    Agent(agent::DecodedAgent),
    /// A UserDirectory.
    People(Arc<people::Unresolved>),
}

/// The fields that every object has.
pub(super) struct Object<'a> {
    pub(super) fields: Fields<'a>,
    pub(super) name: ObjectName,
    pub(super) labels: BTreeMap<String, String>,
}

/// Decodes documents; `namespace` is the control plane's.
#[derive(Debug)]
pub(crate) struct ObjectDecoder<'n> {
    namespace: &'n str,
    findings: Vec<Diagnostic>,
    items: Vec<DecodedItem>,
}

/// Reads the file at `path`, relative to the loaded folder, if it is an agent's configuration;
/// otherwise gives `None`.
pub(crate) fn configuration(path: &str, parsed: &Parsed, source: &SourceMap) -> Option<Vec<DecodedItem>> {
    let name = agent::configured_agent(path)?;
    let mut findings = Vec::new();
    let file = agent::ConfigurationFile::read(name, parsed, source, &mut findings);
    let mut items: Vec<DecodedItem> = findings.into_iter().map(DecodedItem::Finding).collect();
    items.push(DecodedItem::AgentConfiguration(file));
    Some(items)
}

/// Handles a file that cannot be read. If it is an agent's configuration, only that agent cannot be
/// used; any other file refuses the load.
pub(crate) fn unreadable(path: &str, finding: Diagnostic) -> Vec<DecodedItem> {
    let Some(name) = agent::configured_agent(path) else {
        return vec![DecodedItem::Finding(finding)];
    };
    let mut findings = Vec::new();
    let file = agent::ConfigurationFile::unreadable(name, finding, &mut findings);
    let items = findings.into_iter().map(DecodedItem::Finding);
    items.chain(file.map(DecodedItem::AgentConfiguration)).collect()
}

impl<'n> ObjectDecoder<'n> {
    /// A decoder without items.
    pub(crate) fn new(namespace: &'n str) -> Self {
        Self {
            namespace,
            findings: Vec::new(),
            items: Vec::new(),
        }
    }

    /// Adds a finding.
    pub(crate) fn report(&mut self, finding: Diagnostic) {
        self.findings.push(finding);
    }

    /// The decoded items.
    pub(crate) fn finish(mut self) -> Vec<DecodedItem> {
        self.flush();
        self.items
    }

    /// Decodes one document: an object or a list of objects.
    pub(crate) fn document(&mut self, node: &Node, source: &SourceMap) {
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

    /// Decodes a list as `kubectl get -o yaml` (`List`) or the API (`SecretList`, whose items have
    /// no kind of their own) gives it.
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
        let known = ObjectKind::ALL
            .into_iter()
            .find(|known| known.as_str() == kind && known.version() == version);
        let Some(kind) = known else {
            if let Some(meant) = ObjectKind::ALL
                .into_iter()
                .find(|known| is_misspelled(*known, (kind, version)))
            {
                let message = format!("`{kind}` of `{version}` is not read");
                let hint = format!("`{}` of `{}` is", meant.as_str(), meant.version());
                self.findings
                    .push(Diagnostic::warning(fields.location(), message).with_hint(hint));
            }
            tracing::debug!(kind, version, location = %fields.location(), "object of a kind the gateway does not use");
            return;
        };
        self.decode_object(fields, kind);
    }

    /// Decodes an object whose kind is known.
    pub(crate) fn decode_object(&mut self, fields: Fields<'_>, kind: ObjectKind) {
        let mut findings = Vec::new();
        let location = fields.location();
        let object = self.named(fields, kind, &mut findings);
        let Some(object) = object else {
            if kind.is_tenant_writable() {
                // Without a valid name no other object can refer to it.
                downgrade_errors(&mut findings);
            }
            return self.findings.append(&mut findings);
        };
        if !kind.allows_any_namespace() && object.name.namespace != self.namespace {
            tracing::debug!(kind = kind.as_str(), namespace = %object.name.namespace, %location, "object of another namespace");
            return;
        }
        self.flush();
        let mut content = content(kind, &object, &mut findings);
        if kind.is_tenant_writable()
            && let Some(mistake) = downgrade_errors(&mut findings)
        {
            content = ObjectContent::InvalidObject(mistake);
        }
        self.items.push(DecodedItem::Object(DecodedObject {
            kind,
            location,
            name: object.name,
            findings,
            content,
        }));
    }

    /// Reads the fields that every object has; `None` if it has no name.
    fn named<'a>(&self, fields: Fields<'a>, kind: ObjectKind, findings: &mut Vec<Diagnostic>) -> Option<Object<'a>> {
        let Some(metadata) = fields.child("metadata", findings) else {
            let message = format!("{} without `metadata`", kind.as_str());
            findings.push(Diagnostic::error(fields.location(), message));
            return None;
        };
        let namespace = metadata
            .text("namespace", findings)
            .filter(|namespace| !namespace.is_empty());
        let namespace = namespace.unwrap_or_else(|| self.namespace.to_owned());
        let name = metadata.required("name", findings)?;
        let labels = metadata.text_map("labels", findings);
        let labels = labels
            .into_iter()
            .map(|(key, text)| (key, text.value.as_ref().to_owned()))
            .collect();
        let name = ObjectName { namespace, name };
        Some(Object { fields, name, labels })
    }

    fn flush(&mut self) {
        self.items.extend(self.findings.drain(..).map(DecodedItem::Finding));
    }
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

/// Replaces new Applications, ApplicationSets and projects by equal `old` ones, so that comparing
/// pointers shows what did not change.
pub(crate) fn reuse_equal(new: &mut [DecodedItem], old: &[DecodedItem]) {
    let by_name: BTreeMap<(ObjectKind, &ObjectName), &DecodedObject> = old
        .iter()
        .filter_map(|item| match item {
            DecodedItem::Object(decoded) => Some(((decoded.kind, &decoded.name), decoded)),
            DecodedItem::Finding(_) | DecodedItem::AgentConfiguration(_) => None,
        })
        .collect();
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
            _ => {}
        }
    }
}

/// Whether an object was probably meant to be of a known kind: its kind differs by one letter, or
/// its version is another one of the same group.
fn is_misspelled(known: ObjectKind, (kind, version): (&str, &str)) -> bool {
    let group = |version: &str| {
        version
            .split_once('/')
            .map(|(group, _)| group.to_owned())
            .unwrap_or_default()
    };
    let is_near = |one: &str, two: &str| strsim::levenshtein(&one.to_ascii_lowercase(), &two.to_ascii_lowercase()) <= 1;
    let is_kind = kind == known.as_str();
    let (wanted, found) = (group(known.version()), group(version));
    match (is_kind, wanted == found) {
        (true, true) => true,
        (false, true) => is_near(kind, known.as_str()),
        (true, false) => is_near(&wanted, &found),
        (false, false) => false,
    }
}

fn content(kind: ObjectKind, object: &Object<'_>, findings: &mut Vec<Diagnostic>) -> ObjectContent {
    let read = match kind {
        ObjectKind::ConfigMap => return config_map(object, findings),
        ObjectKind::Secret => return secret(object, findings),
        ObjectKind::UserDirectory => Some(ObjectContent::People(Arc::new(people::Unresolved::read(
            object, findings,
        )))),
        ObjectKind::AppProject => {
            project::project(object, findings).map(|project| ObjectContent::Project(Arc::new(project)))
        }
        ObjectKind::Application => {
            let application = project::application(object, findings);
            application.map(|application| ObjectContent::Application(Arc::new(application)))
        }
        ObjectKind::ApplicationSet => {
            let set = application_set::application_set(object, findings);
            set.map(|set| ObjectContent::ApplicationSet(Arc::new(set)))
        }
        ObjectKind::ArgoCDExtension => {
            let extension = extension::extension(object, findings);
            extension.map(|extension| ObjectContent::Extension(Arc::new(extension)))
        }
        ObjectKind::Agent => agent::DecodedAgent::object(object, findings).map(ObjectContent::Agent),
    };
    read.unwrap_or(ObjectContent::Unused)
}

fn config_map(object: &Object<'_>, findings: &mut Vec<Diagnostic>) -> ObjectContent {
    let name = object.name.name.as_str();
    if !matches!(name, "argocd-cm" | "argocd-rbac-cm") {
        tracing::debug!(name, "ConfigMap the gateway does not use");
        return ObjectContent::Unused;
    }
    let data = object.fields.text_map("data", findings);
    let bytes = data
        .iter()
        .map(|(key, text)| key.len().saturating_add(text.value.len()))
        .sum();
    check_size("ConfigMap", bytes, object, findings);
    match name {
        "argocd-cm" => ObjectContent::ArgocdCm(ConfigMap { data }),
        _ => ObjectContent::RbacCm(ConfigMap { data }),
    }
}

fn secret(object: &Object<'_>, findings: &mut Vec<Diagnostic>) -> ObjectContent {
    let (mut secret, bytes) = secret::secret(object, findings);
    check_size("Secret", bytes, object, findings);
    let name = &object.name.name;
    let secret_type = object.labels.get(secret::TYPE_LABEL).map_or("", String::as_str);
    let is_cluster = secret_type == "cluster";
    let repository = repository::kind(secret_type)
        .and_then(|kind| repository::repository(&secret, (name, kind), findings))
        .map(Arc::new);
    let usable = !is_cluster || expand_kubeconfig(&mut secret, name, findings);
    let cluster = (is_cluster && usable)
        .then(|| secret::cluster(&secret, name, findings))
        .flatten();
    let cluster = cluster.map(|cluster| {
        let config = cluster::config(object, &secret, &cluster, findings);
        (cluster, Arc::new(config))
    });
    ObjectContent::Secret {
        secret: Arc::new(secret),
        cluster,
        repository,
    }
}

/// Expands the kubeconfig of a Secret; returns whether the Secret can be used.
fn expand_kubeconfig(secret: &mut Secret, name: &str, findings: &mut Vec<Diagnostic>) -> bool {
    let Err(mistakes) = cluster::kubeconfig::expand(secret) else {
        return true;
    };
    for mistake in mistakes {
        let message = format!("the cluster of secret `{name}` cannot be used: {mistake}");
        findings.push(Diagnostic::warning(secret.location.clone(), message));
    }
    false
}

fn check_size(kind: &str, bytes: usize, object: &Object<'_>, findings: &mut Vec<Diagnostic>) {
    if bytes > MAX_OBJECT_BYTES {
        let message = format!(
            "{kind} `{}` holds {bytes} bytes, at most {MAX_OBJECT_BYTES} are allowed",
            object.name.name
        );
        findings.push(Diagnostic::error(object.fields.location(), message));
    }
}
