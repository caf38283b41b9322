//! Replaces items that have mistakes by their last good version.
//!
//! The result is never put in force; it only narrows what is permitted. So a deleted object stays
//! deleted. If a mistake hides whether an object was deleted, it stays as it was.
//!
//! Security: a person whom the new load blocks is blocked, even by an object with mistakes.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use super::read::{DecodedItem, DecodedObject, ObjectContent, ObjectKind, objects};
use crate::ObjectName;
use tollgate_core::diagnostic::Diagnostic;

/// The decoded items of one file, or of one object of an API server.
#[derive(Clone, Debug)]
pub struct DecodedInput {
    /// The file; `None` for objects of an API server.
    pub file: Option<Arc<Path>>,
    /// What it decodes to.
    pub items: Arc<[DecodedItem]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    /// All were found: a missing file was deleted.
    Complete,
    /// Some folders could not be searched: a missing file may still exist.
    Partial,
}

type Objects<'a> = HashMap<(ObjectKind, &'a ObjectName), &'a DecodedObject, FxBuildHasher>;

/// The inputs of `now`, with items that have mistakes replaced by their version in `good`.
pub(crate) fn last_known_good(
    now: &[DecodedInput],
    good: &[DecodedInput],
    completeness: Completeness,
) -> Vec<DecodedInput> {
    let known: Objects<'_> = good.iter().flat_map(|input| objects(&input.items)).collect();
    let present = now.iter().flat_map(|input| objects(&input.items));
    let present: HashSet<_, FxBuildHasher> = present.map(|(key, _)| key).collect();
    // An object that another file has was moved, and must not be there twice.
    let is_gone = |item: &&DecodedItem| match item {
        DecodedItem::Object(decoded) => !present.contains(&(decoded.kind, &decoded.name)),
        DecodedItem::AgentConfiguration(_) => true,
        DecodedItem::Finding(_) => false,
    };
    let mut restored = Vec::with_capacity(now.len());
    for input in now {
        let items = input.items.iter();
        let items = match input.items.iter().any(has_mistake) {
            false => Arc::clone(&input.items),
            true => items.filter_map(|item| last_good_item(item, &known)).collect(),
        };
        restored.push(DecodedInput {
            file: input.file.clone(),
            items,
        });
    }
    let broken = now.iter().filter(|input| input.items.iter().any(is_mistake_of_file));
    let broken: HashSet<&Path, FxBuildHasher> = broken.filter_map(|input| input.file.as_deref()).collect();
    let files: HashSet<&Path, FxBuildHasher> = now.iter().filter_map(|input| input.file.as_deref()).collect();
    for input in good {
        let Some(file) = input.file.as_deref() else { continue };
        // Which objects of such a file were deleted is unknown.
        if broken.contains(file) || (completeness == Completeness::Partial && !files.contains(file)) {
            restored.push(DecodedInput {
                file: input.file.clone(),
                items: input.items.iter().filter(is_gone).cloned().collect(),
            });
        }
    }
    restored
}

fn has_mistake(item: &DecodedItem) -> bool {
    match item {
        DecodedItem::Finding(finding) => finding.is_error(),
        DecodedItem::Object(decoded) => decoded.findings.iter().any(Diagnostic::is_error),
        DecodedItem::AgentConfiguration(_) => false,
    }
}

fn is_mistake_of_file(item: &DecodedItem) -> bool {
    matches!(item, DecodedItem::Finding(finding) if finding.is_error())
}

/// The item itself if it has no mistake, else its last good version, if there is one.
fn last_good_item(item: &DecodedItem, known: &Objects<'_>) -> Option<DecodedItem> {
    match item {
        _ if !has_mistake(item) => Some(item.clone()),
        DecodedItem::Object(decoded) => {
            let good = known.get(&(decoded.kind, &decoded.name))?;
            Some(DecodedItem::Object(restore(decoded, good)))
        }
        DecodedItem::Finding(_) | DecodedItem::AgentConfiguration(_) => None,
    }
}

/// The last good object, with everybody blocked whom the new one blocks.
fn restore(now: &DecodedObject, good: &DecodedObject) -> DecodedObject {
    let mut before = good.clone();
    if let (ObjectContent::People(good), ObjectContent::People(now)) = (&good.content, &now.content) {
        before.content = ObjectContent::People(Arc::new(good.with_blocks_of(now)));
    }
    before
}

#[cfg(test)]
mod tests;
