//! The inputs of a set's generators (repositories, clusters, kinds of plugins) that are known
//! before any generator runs. Strings that depend on another generator's parameters are left out.

use serde_json::Value;

use super::clusters::{cluster_selector, selected};
use super::type_ambiguity::is_templated;
use super::{Error, invalid};
use crate::decode::entry::{GeneratorEntry, NestingLevel};
use crate::decode::fields::child_path;
use crate::decode::settings::{ClusterSettings, CombinationSettings, GitSettings};
use crate::selector::Selector;
use crate::{ClusterInput, GeneratorKind, Spec};

/// The inputs that a set's generators are known to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaticInputs {
    /// URLs of repositories as written, sorted, without duplicates.
    pub repositories: Vec<String>,
    /// The clusters that cluster generators select.
    pub clusters: Vec<ClusterSelection>,
    /// Kinds that plugins provide, in order of first occurrence, without duplicates.
    pub plugin_kinds: Vec<GeneratorKind>,
    /// Whether inputs may be missing: a second child of a matrix uses parameters in a URL or
    /// selector.
    pub is_incomplete: bool,
}

/// The clusters that one cluster generator selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSelection {
    /// Path of the generator, from the root of the object.
    pub path: String,
    selector: Selector,
}

impl ClusterSelection {
    /// The selected clusters, in the order in which the generator returns them.
    pub fn of<'c>(&self, clusters: &'c [ClusterInput]) -> Vec<&'c ClusterInput> {
        selected(&self.selector, clusters)
    }
}

/// Finds the inputs that the generators of a set are known to read before any of them runs.
///
/// # Errors
/// [`Error::Decode`]; [`Error::Invalid`] if a selector is invalid.
pub fn static_inputs(spec: &Spec) -> Result<StaticInputs, Error> {
    let mut found = StaticInputs::default();
    for (index, generator) in spec.generators.iter().enumerate() {
        let path = format!("spec.generators[{index}]");
        found.add(&generator.raw, NestingLevel::Top, &path, false)?;
    }
    found.repositories.sort_unstable();
    found.repositories.dedup();
    Ok(found)
}

impl StaticInputs {
    /// - `is_rendered`: whether strings are rendered with another generator's parameters.
    fn add(&mut self, raw: &Value, level: NestingLevel, path: &str, is_rendered: bool) -> Result<(), Error> {
        for (name, settings) in GeneratorEntry::open(raw, path)?.kinds {
            let path = child_path(path, name.as_ref());
            match name {
                GeneratorKind::List => {}
                GeneratorKind::Git => match GitSettings::read(settings, &path)?.url {
                    // Only rendered text can change. `{{` in a generator of the top level is part of the URL.
                    url if is_rendered && url.contains("{{") => self.is_incomplete = true,
                    url => self.repositories.push(url.to_owned()),
                },
                GeneratorKind::Clusters => {
                    let settings = ClusterSettings::read(settings, &path)?;
                    if is_rendered && settings.selector.is_some_and(is_templated) {
                        self.is_incomplete = true;
                        continue;
                    }
                    let selector = cluster_selector(&settings, &path)?;
                    self.clusters.push(ClusterSelection { path, selector });
                }
                GeneratorKind::Matrix | GeneratorKind::Merge => {
                    let Some(level) = level.child_level() else {
                        return Err(invalid(&path, "matrix and merge can be nested only once"));
                    };
                    let children = CombinationSettings::read(settings, &path)?.generators;
                    for (index, child) in children.iter().enumerate() {
                        let is_rendered = is_rendered || name == GeneratorKind::Matrix && index > 0;
                        self.add(child, level, &format!("{path}.generators[{index}]"), is_rendered)?;
                    }
                }
                GeneratorKind::ScmProvider
                | GeneratorKind::PullRequest
                | GeneratorKind::ClusterDecisionResource
                | GeneratorKind::Plugin => {
                    if !self.plugin_kinds.contains(&name) {
                        self.plugin_kinds.push(name);
                    }
                }
            }
        }
        Ok(())
    }
}
