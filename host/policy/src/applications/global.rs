//! Reads `globalProjects` of `argocd-cm`: the projects whose lists also apply to other projects,
//! which they select by label.
//!
//! Security: a value that cannot be read, such as a misspelled selector, is an error with its
//! location. It never selects every project.
//!
//! Source: Argo CD, `GetGlobalProjects`; Kubernetes, `LabelSelectorAsSelector`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use tollgate_config::ServiceAccountSemantics;
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_core::yaml;
use tollgate_objects::{ConfigMap, Project, Resources};

const KEY: &str = "globalProjects";

/// Every global project, in the order of the setting.
#[derive(Debug, Default)]
pub(super) struct GlobalProjects(Vec<Global>);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Global {
    project_name: String,
    label_selector: Selector,
}

/// An empty selector selects every project.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Requirement>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl GlobalProjects {
    /// Reads the setting. If any finding is an error, there are no global projects.
    pub(super) fn read(
        argocd_cm: &ConfigMap,
        resources: &Resources,
        semantics: ServiceAccountSemantics,
    ) -> (Self, Vec<Diagnostic>) {
        let projects = &resources.projects;
        let none = |found| (Self::default(), found);
        let Some(setting) = argocd_cm.data.get(KEY).filter(|text| !text.value.trim().is_empty()) else {
            return none(Vec::new());
        };
        let entries: Option<Vec<Global>> = match yaml::deserialize(&setting.location.file, &setting.value) {
            Ok(entries) => entries,
            Err(finding) => return none(vec![relocate(&setting.location, finding)]),
        };
        let entries = entries.unwrap_or_default();
        let mut found = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            for problem in entry.problems() {
                let message = format!("`{KEY}[{at}]`: {problem}");
                found.push(Diagnostic::error(setting.location.clone(), message));
            }
            if !entry.project_name.is_empty() && !projects.contains_key(&entry.project_name) {
                let message = format!("`{KEY}[{at}]`: there is no project `{}`", entry.project_name);
                let (location, hint) = (setting.location.clone(), "what it denies is denied nowhere");
                // SECURITY: a load that lost the deny lists of such a project would permit more
                // than the one before.
                let finding = match (semantics, resources.is_invalid_project(&entry.project_name)) {
                    (ServiceAccountSemantics::Strict, _) | (_, true) => Diagnostic::error(location, message),
                    (ServiceAccountSemantics::Argocd, false) => Diagnostic::warning(location, message),
                };
                found.push(finding.with_hint(hint));
            }
        }
        if found.iter().any(Diagnostic::is_error) {
            return none(found);
        }
        (Self(entries), found)
    }

    /// The global projects of `project`, in order. A project is never its own global project.
    pub(super) fn projects_for(
        &self,
        project: &Project,
        projects: &BTreeMap<String, Arc<Project>>,
    ) -> Vec<Arc<Project>> {
        let mut globals = Vec::new();
        for entry in &self.0 {
            if entry.project_name == project.name || !entry.label_selector.takes(&project.labels) {
                continue;
            }
            // In Argo CD a project that does not exist ends the list. Strict semantics have refused
            // the load.
            let Some(global) = projects.get(&entry.project_name) else {
                break;
            };
            globals.push(Arc::clone(global));
        }
        globals
    }
}

/// Translates the location of a finding within the setting to the file that holds the setting.
fn relocate(setting: &Location, finding: Diagnostic) -> Diagnostic {
    let line = finding.location.as_ref().map_or(0, |location| location.line);
    Diagnostic {
        location: Some(setting.below(line.saturating_sub(1))),
        message: format!("`{KEY}`: {}", finding.message),
        ..finding
    }
}

impl Global {
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.project_name.is_empty() {
            problems.push("`projectName` is missing".to_owned());
        }
        for Requirement { key, operator, values } in &self.label_selector.match_expressions {
            match (operator, values.is_empty()) {
                (Operator::In | Operator::NotIn, true) => {
                    problems.push(format!("`{key}` is to be `{operator:?}` of no values, one is needed"));
                }
                (Operator::Exists | Operator::DoesNotExist, false) => {
                    problems.push(format!("`{key}` has values, `{operator:?}` takes none"));
                }
                (Operator::In | Operator::NotIn, false) | (Operator::Exists | Operator::DoesNotExist, true) => {}
            }
            if key.is_empty() {
                problems.push("`key` is empty".to_owned());
            }
        }
        problems
    }
}

impl Selector {
    fn takes(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        self.match_labels.iter().all(equal)
            && self
                .match_expressions
                .iter()
                .all(|requirement| requirement.is_met(labels))
    }
}

impl Requirement {
    fn is_met(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}
