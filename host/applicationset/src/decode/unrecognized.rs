//! Finds the names of unknown generators in an ApplicationSet, for error messages. An annotation
//! that cannot be parsed yields no names and is not an error.
//!
//! API servers drop unknown keys of stored objects, so the annotation with what kubectl applied is
//! the only place where the name may survive. Source: Argo CD, `addInvalidGeneratorNames`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use strum::VariantArray;

use crate::transient_annotations::LAST_APPLIED;
use crate::{ApplicationSet, Generator, GeneratorKind};

/// Indices of entries without any known generator. An entry with only a selector is not one of
/// them: Argo CD knows it, and it generates nothing.
pub(super) fn positions(set: &ApplicationSet) -> Vec<usize> {
    let is_unrecognized = |index: usize, generator: &Generator| {
        let keys = || written(&set.object, index).into_iter().flat_map(Map::keys);
        let has_selector = generator.raw.get("selector").is_some();
        generator.kinds().next().is_none() && (!has_selector || keys().any(|key| !is_known(key)))
    };
    let generators = set.spec.generators.iter().enumerate();
    let found = generators.filter(|(index, generator)| is_unrecognized(*index, generator));
    found.map(|(index, _)| index).collect()
}

/// The names, sorted, without duplicates.
pub(super) fn names(set: &ApplicationSet, entries: &[usize]) -> Vec<String> {
    let annotations = set.object.pointer("/metadata/annotations");
    let applied = annotations.and_then(|annotations| annotations.get(LAST_APPLIED)?.as_str());
    let applied: Option<Value> = applied.and_then(|text| serde_json::from_str(text).ok());
    let mut names = BTreeSet::new();
    for index in entries {
        let own = name(written(&set.object, *index));
        let applied = || name(written(applied.as_ref()?, *index));
        names.extend(own.or_else(applied));
    }
    names.into_iter().collect()
}

/// The entry as it is in the object.
fn written(object: &Value, index: usize) -> Option<&Map<String, Value>> {
    object.pointer(&format!("/spec/generators/{index}"))?.as_object()
}

/// One key of the entry, preferably an unknown one.
fn name(entry: Option<&Map<String, Value>>) -> Option<String> {
    let keys = || entry.into_iter().flat_map(Map::keys);
    let unknown = keys().find(|key| !is_known(key));
    unknown.or_else(|| keys().next()).cloned()
}

fn is_known(key: &str) -> bool {
    key == "selector" || GeneratorKind::VARIANTS.iter().any(|kind| kind.as_ref() == key)
}
