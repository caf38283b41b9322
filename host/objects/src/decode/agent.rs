//! Decodes `Agent` objects and GitLab's `config.yaml` files into [`AgentObject`]s.
//!
//! A mistake in an agent, such as an unknown key, is a warning of the load and makes only that
//! agent's configuration unusable: many people write configurations, and one of them must not stop
//! the gateway for all. The access stage decides what is in force then: the last good configuration
//! in the same process, nothing after a start.
//!
//! Two agents with one id or one name are both unusable, because it is ambiguous which one is
//! meant. If an agent has two configurations, neither is used.
//!
//! Invariant: a configuration that has a mistake is never used in part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{DecodedItem, Object};
use crate::Cluster;
use crate::agent::{AccessMode, AgentBinding, AgentObject, MappedAuthorization, Sharing, UserAccess};
use crate::fields::{Fields, Findings, SourceMap};
use tollgate_core::agent::AgentId;
use tollgate_core::diagnostic::{Diagnostic, Location, Severity};
use tollgate_core::dns::is_label;
use tollgate_core::yaml::Parsed;
use tollgate_core::yaml::to_json;

mod ci;

/// Most entries of one list that are used, as in GitLab.
const MAX_LIST_ENTRIES: usize = 500;

/// The key that says who may use an agent.
const USER_ACCESS: &str = "user_access";
/// Keys of GitLab's `config.yaml` that are not about access.
const IGNORED_KEYS: [&str; 8] = [
    "gitops",
    "flux",
    "observability",
    "starboard",
    "container_scanning",
    "remote_development",
    "receptive_agent",
    "cilium",
];

/// Agents and configuration files that are not combined yet.
#[derive(Debug, Default)]
pub(super) struct Unresolved {
    agents: BTreeMap<String, DecodedAgent>,
    files: BTreeMap<String, (Configuration, Location)>,
    /// Names that several objects have.
    exclude: BTreeSet<String>,
}

/// An agent, and where the configuration in its object starts, if it has one.
#[derive(Clone, Debug)]
pub struct DecodedAgent {
    agent: AgentObject,
    inline: Option<Location>,
}

/// The file with the configuration of an agent.
#[derive(Clone, Debug)]
pub struct ConfigurationFile {
    name: String,
    configuration: Configuration,
    location: Location,
}

/// What a configuration says, and all of it as JSON, unless it has mistakes.
#[derive(Clone, Debug)]
struct Configuration {
    sharing: Sharing,
    document: Option<Arc<Value>>,
}

impl Configuration {
    fn invalid() -> Self {
        Self {
            sharing: Sharing::Invalid,
            document: None,
        }
    }

    /// The one of an agent without a configuration.
    fn none() -> Self {
        Self {
            sharing: Sharing::Nobody,
            document: Some(Arc::new(Value::Object(Map::new()))),
        }
    }

    /// - `fields`: the whole configuration.
    fn read(fields: &Fields<'_>) -> Self {
        match sharing(fields) {
            Sharing::Invalid => Self::invalid(),
            sharing => Self {
                sharing,
                document: Some(Arc::new(to_json(fields.node))),
            },
        }
    }
}

/// The agent that a file configures: `…/agents/<name>/config.yaml`.
pub fn configured_agent(path: &str) -> Option<&str> {
    let (folder, name) = path.rsplit_once('/')?.0.rsplit_once('/')?;
    let folder = folder.rsplit_once('/').map_or(folder, |(_, last)| last);
    (path.ends_with("/config.yaml") && folder == "agents" && !name.is_empty()).then_some(name)
}

impl DecodedAgent {
    /// Reads an `Agent` object; `None` if its name is not valid.
    pub(super) fn object(object: &Object<'_>) -> Option<Self> {
        let location = object.fields.location();
        let name = object.name.name.clone();
        if !is_name(&name) {
            let message = format!("agent `{name}` is closed: its name is no DNS label with a letter in it");
            let hint = "names are 1 to 63 of a-z, 0-9 and `-`, with a letter or digit at both ends";
            let finding = Diagnostic::warning(location, message).with_hint(hint);
            object.fields.report(finding);
            return None;
        }
        let mistakes = Findings::default();
        let fields = object.fields.collecting(&mistakes);
        let spec = fields.child("spec");
        if spec.is_none() && mistakes.borrow().is_empty() {
            fields.error("`spec` is missing");
        }
        let binding = spec.as_ref().and_then(binding);
        // Only mistakes outside of the configuration so far: those in it close the sharing, and the binding stays.
        let binding = binding.filter(|_| mistakes.borrow().is_empty());
        let configured = spec.filter(|spec| spec.node("config").is_some());
        let configuration = configured.as_ref().map_or_else(Configuration::none, |spec| {
            let config = spec.child("config");
            config.map_or_else(Configuration::invalid, |config| Configuration::read(&config))
        });
        let inline = configured.map(|spec| spec.location());
        for warning in unusable(&name, mistakes.take()) {
            object.fields.report(warning);
        }
        let agent = AgentObject {
            name,
            binding,
            sharing: configuration.sharing,
            configuration: configuration.document,
            location,
        };
        Some(Self { agent, inline })
    }
}

impl ConfigurationFile {
    pub(super) fn read(name: &str, parsed: &Parsed, source: &SourceMap) -> Vec<DecodedItem> {
        let problems = parsed.problems.iter().map(|problem| {
            let location = source.location_at(problem.line, problem.column);
            Diagnostic::error(location, problem.message.clone())
        });
        let mistakes = Findings::new(problems.collect());
        let configuration = match parsed.documents.as_slice() {
            [] if parsed.problems.is_empty() => Configuration::none(),
            [document] => {
                let fields = Fields::open(document, source, &mistakes);
                fields.map_or_else(Configuration::invalid, |fields| Configuration::read(&fields))
            }
            [] => Configuration::invalid(),
            [_, second, ..] => {
                let finding = Diagnostic::error(source.location_of(second), "a second document, one is allowed");
                mistakes.borrow_mut().push(finding);
                Configuration::invalid()
            }
        };
        let mistakes = mistakes.take();
        // The text may have problems although its document could be read.
        let broken = mistakes.iter().any(Diagnostic::is_error);
        let file = Self {
            name: name.to_owned(),
            configuration: if broken {
                Configuration::invalid()
            } else {
                configuration
            },
            location: source.location_at(1, 0),
        };
        let findings = unusable(name, mistakes).map(DecodedItem::Finding);
        findings.chain([DecodedItem::AgentConfiguration(file)]).collect()
    }

    pub(super) fn unreadable(name: &str, finding: Diagnostic) -> Vec<DecodedItem> {
        let file = finding.location.clone().map(|location| Self {
            name: name.to_owned(),
            configuration: Configuration::invalid(),
            location,
        });
        let findings = unusable(name, vec![finding]).map(DecodedItem::Finding);
        findings.chain(file.map(DecodedItem::AgentConfiguration)).collect()
    }
}

impl Unresolved {
    pub(super) fn add(&mut self, decoded: DecodedAgent) {
        self.agents.insert(decoded.agent.name.clone(), decoded);
    }

    pub(super) fn exclude(&mut self, name: &str) {
        self.exclude.insert(name.to_owned());
    }

    pub(super) fn add_file(&mut self, file: ConfigurationFile, findings: &mut Vec<Diagnostic>) {
        let (name, location) = (file.name, file.location);
        let mut configuration = file.configuration;
        if let Some((_, first)) = self.files.get(&name) {
            let first = &first.file;
            let message = format!("agent `{name}` has two configuration files, the other is {first}; neither is used");
            findings.push(Diagnostic::warning(location.clone(), message));
            configuration = Configuration::invalid();
        }
        self.files.insert(name, (configuration, location));
    }

    pub(super) fn finish(
        mut self,
        clusters: &[Cluster],
        findings: &mut Vec<Diagnostic>,
    ) -> BTreeMap<String, Arc<AgentObject>> {
        self.agents.retain(|name, _| !self.exclude.contains(name));
        for (name, (configuration, location)) in self.files {
            let Some(decoded) = self.agents.get_mut(&name) else {
                let message = format!("there is no Agent `{name}` this file could configure");
                findings.push(Diagnostic::warning(location, message));
                continue;
            };
            let configuration = match &decoded.inline {
                None => configuration,
                Some(inline) => {
                    let message =
                        format!("agent `{name}` has a configuration in its object too, at {inline}; neither is used");
                    findings.push(Diagnostic::warning(location, message));
                    Configuration::invalid()
                }
            };
            decoded.agent.sharing = configuration.sharing;
            decoded.agent.configuration = configuration.document;
        }
        let duplicates = duplicate_ids(self.agents.values().map(|decoded| &decoded.agent), findings);
        // SECURITY: neither of two agents may take over what the other one is granted.
        self.agents.retain(|_, decoded| {
            let id = decoded.agent.binding.as_ref().map(|binding| binding.id);
            id.is_none_or(|id| !duplicates.contains(&id))
        });
        for DecodedAgent { agent, .. } in self.agents.values() {
            let Some(binding) = &agent.binding else { continue };
            let cluster = &binding.cluster;
            let is_it = |known: &Cluster| known.name == *cluster || known.server == *cluster;
            if !clusters.iter().any(is_it) {
                let name = &agent.name;
                let message = format!("agent `{name}` is for the cluster `{cluster}`, which is not known");
                findings.push(Diagnostic::warning(agent.location.clone(), message));
            }
        }
        let agents = self.agents.into_values().map(|decoded| decoded.agent);
        agents.map(|agent| (agent.name.clone(), Arc::new(agent))).collect()
    }
}

/// Ids that several agents have. Each is a finding with both locations.
fn duplicate_ids<'a>(
    agents: impl Iterator<Item = &'a AgentObject>,
    findings: &mut Vec<Diagnostic>,
) -> BTreeSet<AgentId> {
    let mut by_id: BTreeMap<AgentId, &AgentObject> = BTreeMap::new();
    let mut duplicates = BTreeSet::new();
    for agent in agents {
        let Some(binding) = &agent.binding else { continue };
        let Some(first) = by_id.get(&binding.id) else {
            by_id.insert(binding.id, agent);
            continue;
        };
        let (id, first) = (binding.id, &first.location);
        let message = format!("two agents have the number `{id}`, the other at {first}; both are closed");
        findings.push(Diagnostic::warning(agent.location.clone(), message));
        duplicates.insert(binding.id);
    }
    duplicates
}

/// Whether an agent may have this name: a DNS label (RFC 1123) that is not a number, because
/// callers may use an agent's name or its number.
fn is_name(text: &str) -> bool {
    is_label(text) && text.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// The mistakes as warnings that name the consequence.
fn unusable(name: &str, mistakes: Vec<Diagnostic>) -> impl Iterator<Item = Diagnostic> {
    mistakes.into_iter().map(move |mut mistake| {
        if mistake.is_error() {
            let why = mistake.message;
            mistake.message = format!("the configuration of agent `{name}` cannot be used: {why}");
            mistake.severity = Severity::Warning;
        }
        mistake
    })
}

fn binding(spec: &Fields<'_>) -> Option<AgentBinding> {
    spec.reject_unknown_keys(&["id", "configProject", "cluster", "config"]);
    let id = spec.positive_integer("id").and_then(AgentId::new);
    if spec.node("configProject").is_none() {
        spec.error(format!("`{}` is missing", spec.path_of("configProject")));
    }
    let config_project = spec.child("configProject").and_then(|project| {
        project.reject_unknown_keys(&["id"]);
        project.positive_integer("id")
    });
    let cluster = spec.required("cluster");
    Some(AgentBinding {
        id: id?,
        config_project: config_project?,
        cluster: cluster?,
    })
}

/// Reads a configuration: GitLab's `config.yaml`, or `spec.config`.
fn sharing(fields: &Fields<'_>) -> Sharing {
    let earlier = fields.error_count();
    let has_access = fields.entries().iter().any(|entry| &*entry.key == USER_ACCESS);
    for entry in fields.entries() {
        let key = &*entry.key;
        if ![USER_ACCESS, "ci_access"].contains(&key) && !IGNORED_KEYS.contains(&key) {
            let message = format!("`{}` is not known", fields.path_of(key));
            if !has_access && resembles_access(key) {
                // Without `user_access` the agent is closed, so this is a mistake like one within it.
                let finding = Diagnostic::error(fields.key_location(entry), message);
                let hint = "is `user_access` meant? without it nobody may use the agent";
                fields.report(finding.with_hint(hint));
                continue;
            }
            // A key of a newer GitLab does not make the configuration unusable.
            fields.report(Diagnostic::warning(fields.key_location(entry), message));
        }
    }
    if let Some(ci_access) = fields.child("ci_access") {
        ci::check(&ci_access);
    }
    let user_access = fields.child(USER_ACCESS).and_then(|access| user_access(&access));
    // One mistake is enough: what could be read may share the agent with others than was meant.
    match (fields.error_count() > earlier, user_access) {
        (true, _) => Sharing::Invalid,
        (false, None) => Sharing::Nobody,
        (false, Some(user_access)) => Sharing::People(Arc::new(user_access)),
    }
}

/// Whether a key is `user_access` in another spelling, or with a typing error.
fn resembles_access(key: &str) -> bool {
    const MIN_SIMILARITY: f64 = 0.9;
    let plain = |text: &str| text.to_lowercase().replace(['_', '-'], "");
    strsim::jaro_winkler(&plain(key), &plain(USER_ACCESS)) >= MIN_SIMILARITY
}

fn user_access(fields: &Fields<'_>) -> Option<UserAccess> {
    fields.reject_unknown_keys(&["access_as", "projects", "groups"]);
    let access_as = one_of(fields, "access_as", &["agent", "user", "mapped"]);
    let mut keys = fields.entries().iter().map(|entry| &*entry.key);
    // By the keys: lists that are empty share with nobody, and must not leave the decision to the claim.
    let has_list = keys.any(|key| matches!(key, "projects" | "groups"));
    let access_mode = match access_as {
        Some("agent") => Some(AccessMode::Agent),
        Some("user") => Some(AccessMode::User),
        Some("mapped") if has_list => Some(AccessMode::Mapped(MappedAuthorization::Membership)),
        Some("mapped") => Some(AccessMode::Mapped(MappedAuthorization::Claim)),
        Some(_) | None => None,
    };
    let (projects, groups) = (list(fields, "projects"), list(fields, "groups"));
    Some(UserAccess {
        access_mode: access_mode?,
        projects,
        groups,
        location: fields.location(),
    })
}

/// Reads the only key of a mapping of empty mappings, such as `access_as: {user: {}}`.
fn one_of<'k>(fields: &Fields<'_>, key: &str, known: &[&'k str]) -> Option<&'k str> {
    let path = fields.path_of(key);
    let choices: Vec<String> = known.iter().map(|known| format!("`{known}: {{}}`")).collect();
    let hint = format!("it is one of {}", choices.join(", "));
    if fields.node(key).is_none() {
        fields.error_with_hint(format!("`{path}` is missing"), hint);
        return None;
    }
    let choice = fields.child(key)?;
    choice.reject_unknown_keys(known);
    let [entry] = choice.entries() else {
        let message = format!("`{path}` has {} keys, exactly one is allowed", choice.entries().len());
        choice.error_with_hint(message, hint);
        return None;
    };
    if !entry.value.entries().is_some_and(<[_]>::is_empty) {
        let message = format!("`{path}.{}` must be `{{}}`", entry.key);
        choice.report(Diagnostic::error(choice.key_location(entry), message));
        return None;
    }
    known.iter().find(|known| **known == &*entry.key).copied()
}

fn list(fields: &Fields<'_>, key: &str) -> Vec<Arc<str>> {
    let mut paths: Vec<Arc<str>> = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in fields.children(key) {
        entry.reject_unknown_keys(&["id"]);
        let Some(id) = entry.required("id") else { continue };
        match path(&id) {
            Some(path) if seen.insert(Arc::clone(&path)) => paths.push(path),
            Some(_) => {}
            None => entry.error(format!("`{}` is `{id}`, which is no path", entry.path_of("id"))),
        }
    }
    if paths.len() > MAX_LIST_ENTRIES {
        let (path, count) = (fields.path_of(key), paths.len());
        let message = format!("`{path}` has {count} entries, the first {MAX_LIST_ENTRIES} count");
        fields.report(Diagnostic::warning(fields.location(), message));
        paths.truncate(MAX_LIST_ENTRIES);
    }
    paths
}

/// Reads a path of a group or project, in lower case, as GitLab compares them.
pub(super) fn path(text: &str) -> Option<Arc<str>> {
    let plain = |letter: char| !letter.is_control() && !letter.is_whitespace();
    let whole = !text.is_empty() && text.split('/').all(|part| !part.is_empty());
    (whole && text.chars().all(plain)).then(|| Arc::from(text.to_lowercase()))
}
