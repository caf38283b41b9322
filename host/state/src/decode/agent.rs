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

use super::Object;
use crate::Cluster;
use crate::agent::{AccessMode, AgentBinding, AgentObject, MappedAuthorization, Sharing, UserAccess};
use crate::fields::{Fields, SourceMap};
use tollgate_core::agent::AgentId;
use tollgate_core::diagnostic::{Diagnostic, Location, Severity};
use tollgate_core::dns::is_label;
use tollgate_core::yaml::Parsed;

mod ci;

/// Most entries of one list that are used, as in GitLab.
const MAX_LIST_ENTRIES: usize = 500;

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
    files: BTreeMap<String, (Sharing, Location)>,
    /// Names that several objects have.
    exclude: BTreeSet<String>,
}

/// An agent, and where the configuration in its object starts, if it has one.
#[derive(Clone, Debug)]
pub(crate) struct DecodedAgent {
    agent: AgentObject,
    inline: Option<Location>,
}

/// A decoded configuration file.
#[derive(Clone, Debug)]
pub(crate) struct ConfigurationFile {
    name: String,
    sharing: Sharing,
    location: Location,
}

/// The agent that a file configures: `…/agents/<name>/config.yaml`.
pub(super) fn configured_agent(path: &str) -> Option<&str> {
    let (folder, name) = path.rsplit_once('/')?.0.rsplit_once('/')?;
    let folder = folder.rsplit_once('/').map_or(folder, |(_, last)| last);
    (path.ends_with("/config.yaml") && folder == "agents" && !name.is_empty()).then_some(name)
}

impl DecodedAgent {
    /// Reads an `Agent` object; `None` if its name is not valid.
    pub(super) fn object(object: &Object<'_>, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let mut mistakes = Vec::new();
        let name = object.name.name.clone();
        if !is_name(&name) {
            let message = format!("agent `{name}` is closed: its name is no DNS label with a letter in it");
            let hint = "names are 1 to 63 of a-z, 0-9 and `-`, with a letter or digit at both ends";
            findings.push(Diagnostic::warning(object.fields.location(), message).with_hint(hint));
            return None;
        }
        let spec = object.fields.child("spec", &mut mistakes);
        if spec.is_none() && mistakes.is_empty() {
            mistakes.push(Diagnostic::error(object.fields.location(), "`spec` is missing"));
        }
        let binding = spec.as_ref().and_then(|spec| binding(spec, &mut mistakes));
        let binding = binding.filter(|_| mistakes.is_empty());
        let mut inline = None;
        let mut sharing = Sharing::Nobody;
        if let Some(node) = spec.as_ref().filter(|spec| spec.node("config").is_some()) {
            let mut of_config = Vec::new();
            sharing = node
                .child("config", &mut of_config)
                .map_or(Sharing::Invalid, |config| configuration(&config, &mut of_config));
            inline = Some(node.location());
            mistakes.append(&mut of_config);
        }
        warn_unusable(&name, mistakes, findings);
        let agent = AgentObject {
            name,
            binding,
            sharing,
            location: object.fields.location(),
        };
        Some(Self { agent, inline })
    }
}

impl ConfigurationFile {
    /// Reads the configuration file of `name`.
    pub(super) fn read(name: &str, parsed: &Parsed, source: &SourceMap, findings: &mut Vec<Diagnostic>) -> Self {
        let mut mistakes: Vec<Diagnostic> = parsed
            .problems
            .iter()
            .map(|problem| {
                Diagnostic::error(
                    source.location_at(problem.line, problem.column),
                    problem.message.clone(),
                )
            })
            .collect();
        let sharing = match parsed.documents.as_slice() {
            [] if mistakes.is_empty() => Sharing::Nobody,
            [document] => match Fields::open(document, source, String::new(), &mut mistakes) {
                Some(fields) => configuration(&fields, &mut mistakes),
                None => Sharing::Invalid,
            },
            [] => Sharing::Invalid,
            [_, second, ..] => {
                let finding = Diagnostic::error(source.location_of(second), "a second document, one is allowed");
                mistakes.push(finding);
                Sharing::Invalid
            }
        };
        let broken = mistakes.iter().any(Diagnostic::is_error);
        let sharing = if broken { Sharing::Invalid } else { sharing };
        warn_unusable(name, mistakes, findings);
        Self {
            name: name.to_owned(),
            sharing,
            location: source.location_at(1, 0),
        }
    }

    /// Records that the configuration file of `name` cannot be read.
    pub(super) fn unreadable(name: &str, finding: Diagnostic, findings: &mut Vec<Diagnostic>) -> Option<Self> {
        let location = finding.location.clone();
        warn_unusable(name, vec![finding], findings);
        Some(Self {
            name: name.to_owned(),
            sharing: Sharing::Invalid,
            location: location?,
        })
    }
}

impl Unresolved {
    /// Adds an agent.
    pub(super) fn add(&mut self, decoded: DecodedAgent) {
        self.agents.insert(decoded.agent.name.clone(), decoded);
    }

    /// Excludes an agent that several objects define.
    pub(super) fn exclude(&mut self, name: &str) {
        self.exclude.insert(name.to_owned());
    }

    /// Adds a configuration file.
    pub(super) fn add_file(&mut self, file: ConfigurationFile, findings: &mut Vec<Diagnostic>) {
        let ConfigurationFile {
            name,
            sharing,
            location,
        } = file;
        if let Some((_, first)) = self.files.get(&name) {
            let first = &first.file;
            let message = format!("agent `{name}` has two configuration files, the other is {first}; neither is used");
            findings.push(Diagnostic::warning(location.clone(), message));
            self.files.insert(name, (Sharing::Invalid, location));
            return;
        }
        self.files.insert(name, (sharing, location));
    }

    /// Combines agents and configuration files.
    pub(super) fn finish(
        mut self,
        clusters: &[Cluster],
        findings: &mut Vec<Diagnostic>,
    ) -> BTreeMap<String, Arc<AgentObject>> {
        self.agents.retain(|name, _| !self.exclude.contains(name));
        for (name, (sharing, location)) in self.files {
            let Some(decoded) = self.agents.get_mut(&name) else {
                let message = format!("there is no Agent `{name}` this file could configure");
                findings.push(Diagnostic::warning(location, message));
                continue;
            };
            decoded.agent.sharing = match &decoded.inline {
                None => sharing,
                Some(inline) => {
                    let message =
                        format!("agent `{name}` has a configuration in its object too, at {inline}; neither is used");
                    findings.push(Diagnostic::warning(location, message));
                    Sharing::Invalid
                }
            };
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
            if !clusters
                .iter()
                .any(|known| known.name == *cluster || known.server == *cluster)
            {
                let message = format!(
                    "agent `{}` is for the cluster `{cluster}`, which is not known",
                    agent.name
                );
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
        let message = format!(
            "two agents have the number `{}`, the other at {}; both are closed",
            binding.id, first.location
        );
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

/// Passes mistakes on as warnings that name the consequence.
fn warn_unusable(name: &str, mistakes: Vec<Diagnostic>, findings: &mut Vec<Diagnostic>) {
    for mut mistake in mistakes {
        if mistake.is_error() {
            mistake.message = format!(
                "the configuration of agent `{name}` cannot be used: {}",
                mistake.message
            );
            mistake.severity = Severity::Warning;
        }
        findings.push(mistake);
    }
}

fn binding(spec: &Fields<'_>, mistakes: &mut Vec<Diagnostic>) -> Option<AgentBinding> {
    spec.reject_unknown_keys(&["id", "configProject", "cluster", "config"], mistakes);
    let id = spec.positive_integer("id", mistakes).and_then(AgentId::new);
    let project = spec.child("configProject", mistakes);
    if project.is_none() && spec.node("configProject").is_none() {
        let message = format!("`{}` is missing", spec.path_of("configProject"));
        mistakes.push(Diagnostic::error(spec.location(), message));
    }
    let config_project = project.and_then(|project| {
        project.reject_unknown_keys(&["id"], mistakes);
        project.positive_integer("id", mistakes)
    });
    let cluster = spec.required("cluster", mistakes);
    Some(AgentBinding {
        id: id?,
        config_project: config_project?,
        cluster: cluster?,
    })
}

/// Reads a configuration: GitLab's `config.yaml`, or `spec.config`.
fn configuration(fields: &Fields<'_>, findings: &mut Vec<Diagnostic>) -> Sharing {
    let mut mistakes = Vec::new();
    for entry in fields.entries() {
        let key = &*entry.key;
        if !["user_access", "ci_access"].contains(&key) && !IGNORED_KEYS.contains(&key) {
            let message = format!("`{}` is not known", fields.path_of(key));
            // A key of a newer GitLab does not make the configuration unusable.
            mistakes.push(Diagnostic::warning(fields.key_location(entry), message));
        }
    }
    if let Some(ci_access) = fields.child("ci_access", &mut mistakes) {
        ci::check(&ci_access, &mut mistakes);
    }
    let user_access = fields
        .child("user_access", &mut mistakes)
        .and_then(|user_access| decode_user_access(&user_access, &mut mistakes));
    let broken = mistakes.iter().any(Diagnostic::is_error);
    findings.append(&mut mistakes);
    match (broken, user_access) {
        (true, _) => Sharing::Invalid,
        (false, None) => Sharing::Nobody,
        (false, Some(user_access)) => Sharing::People(Arc::new(user_access)),
    }
}

fn decode_user_access(fields: &Fields<'_>, mistakes: &mut Vec<Diagnostic>) -> Option<UserAccess> {
    fields.reject_unknown_keys(&["access_as", "projects", "groups"], mistakes);
    let access_as = one_of(fields, "access_as", &["agent", "user", "mapped"], mistakes);
    let has_list = fields
        .entries()
        .iter()
        .any(|entry| matches!(&*entry.key, "projects" | "groups"));
    let access_mode = match access_as {
        Some("agent") => Some(AccessMode::Agent),
        Some("user") => Some(AccessMode::User),
        Some("mapped") if has_list => Some(AccessMode::Mapped(MappedAuthorization::Membership)),
        Some("mapped") => Some(AccessMode::Mapped(MappedAuthorization::Claim)),
        Some(_) | None => None,
    };
    let (projects, groups) = (list(fields, "projects", mistakes), list(fields, "groups", mistakes));
    Some(UserAccess {
        access_mode: access_mode?,
        projects,
        groups,
        location: fields.location(),
    })
}

/// Reads the only key of a mapping of empty mappings, such as `access_as: {user: {}}`.
fn one_of<'k>(fields: &Fields<'_>, key: &str, known: &[&'k str], mistakes: &mut Vec<Diagnostic>) -> Option<&'k str> {
    let path = fields.path_of(key);
    let before = mistakes.len();
    let Some(choice) = fields.child(key, mistakes) else {
        if mistakes.len() == before {
            let message = format!("`{path}` is missing");
            mistakes.push(Diagnostic::error(fields.location(), message).with_hint(hint(known)));
        }
        return None;
    };
    choice.reject_unknown_keys(known, mistakes);
    let [entry] = choice.entries() else {
        let message = format!("`{path}` has {} keys, exactly one is allowed", choice.entries().len());
        mistakes.push(Diagnostic::error(choice.location(), message).with_hint(hint(known)));
        return None;
    };
    let empty = entry.value.entries().is_some_and(<[_]>::is_empty);
    if !empty {
        let message = format!("`{path}.{}` must be `{{}}`", entry.key);
        mistakes.push(Diagnostic::error(choice.key_location(entry), message));
        return None;
    }
    known.iter().find(|known| **known == &*entry.key).copied()
}

fn hint(known: &[&str]) -> String {
    let choices: Vec<String> = known.iter().map(|known| format!("`{known}: {{}}`")).collect();
    format!("it is one of {}", choices.join(", "))
}

fn list(fields: &Fields<'_>, key: &str, mistakes: &mut Vec<Diagnostic>) -> Vec<Arc<str>> {
    let mut paths: Vec<Arc<str>> = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in fields.children(key, mistakes) {
        entry.reject_unknown_keys(&["id"], mistakes);
        let Some(id) = entry.required("id", mistakes) else {
            continue;
        };
        match path(&id) {
            Some(path) if seen.insert(Arc::clone(&path)) => paths.push(path),
            Some(_) => {}
            None => {
                let message = format!("`{}` is `{id}`, which is no path", entry.path_of("id"));
                mistakes.push(Diagnostic::error(entry.location(), message));
            }
        }
    }
    if paths.len() > MAX_LIST_ENTRIES {
        let message = format!(
            "`{}` has {} entries, the first {MAX_LIST_ENTRIES} count",
            fields.path_of(key),
            paths.len()
        );
        mistakes.push(Diagnostic::warning(fields.location(), message));
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

#[cfg(test)]
mod tests;
