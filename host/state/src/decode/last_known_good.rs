//! Replaces what has mistakes in a load by what the same file or object said when it was last good.
//!
//! The result is never put in force; it only narrows what is permitted. So an object that is gone
//! stays gone, and where that cannot be told, it stays as it was.
//!
//! Security: a person whom the new load blocks is blocked.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use super::read::{Content, DecodedItem, DecodedObject, Kind};
use crate::ObjectName;
use tollgate_core::diagnostic::Diagnostic;

/// What one file, or one object of an API server, says.
#[derive(Clone, Debug)]
pub(crate) struct DecodedInput {
    /// The file; `None` for objects of an API server.
    pub(crate) file: Option<Arc<Path>>,
    /// What it says.
    pub(crate) items: Arc<[DecodedItem]>,
}

/// Whether the load found all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// All were found: a missing file is gone.
    All,
    /// Some folders could not be searched.
    Part,
}

type Objects<'a> = HashMap<(Kind, &'a ObjectName), &'a DecodedObject, FxBuildHasher>;

/// What `now` says; parts with mistakes are replaced by what `good` says.
pub(crate) fn last_known_good(now: &[DecodedInput], good: &[DecodedInput], found: Found) -> Vec<DecodedInput> {
    let known: Objects<'_> = good.iter().flat_map(|said| objects(&said.items)).collect();
    let present: HashSet<_, FxBuildHasher> = now
        .iter()
        .flat_map(|said| objects(&said.items))
        .map(|(key, _)| key)
        .collect();
    let is_gone = |piece: &&DecodedItem| match piece {
        DecodedItem::Object(decoded) => !present.contains(&(decoded.kind, &decoded.name)),
        DecodedItem::Configuration(_) => true,
        DecodedItem::Finding(_) => false,
    };
    let mut last_known_good = Vec::with_capacity(now.len());
    for said in now {
        let items = match said.items.iter().any(has_mistake) {
            false => Arc::clone(&said.items),
            true => said
                .items
                .iter()
                .filter_map(|piece| last_good_item(piece, &known))
                .collect(),
        };
        last_known_good.push(DecodedInput {
            file: said.file.clone(),
            items,
        });
    }
    let broken: HashSet<&Path, FxBuildHasher> = now
        .iter()
        .filter(|said| said.items.iter().any(is_mistake_of_file))
        .filter_map(|said| said.file.as_deref())
        .collect();
    let files: HashSet<&Path, FxBuildHasher> = now.iter().filter_map(|said| said.file.as_deref()).collect();
    for said in good {
        let Some(file) = said.file.as_deref() else { continue };
        // For such a file nobody can tell which objects are gone.
        if broken.contains(file) || (found == Found::Part && !files.contains(file)) {
            last_known_good.push(DecodedInput {
                file: said.file.clone(),
                items: said.items.iter().filter(is_gone).cloned().collect(),
            });
        }
    }
    last_known_good
}

fn objects(items: &[DecodedItem]) -> impl Iterator<Item = ((Kind, &ObjectName), &DecodedObject)> {
    items.iter().filter_map(|piece| match piece {
        DecodedItem::Object(decoded) => Some(((decoded.kind, &decoded.name), decoded)),
        DecodedItem::Finding(_) | DecodedItem::Configuration(_) => None,
    })
}

fn has_mistake(piece: &DecodedItem) -> bool {
    match piece {
        DecodedItem::Finding(finding) => finding.is_error(),
        DecodedItem::Object(decoded) => decoded.findings.iter().any(Diagnostic::is_error),
        DecodedItem::Configuration(_) => false,
    }
}

fn is_mistake_of_file(piece: &DecodedItem) -> bool {
    matches!(piece, DecodedItem::Finding(finding) if finding.is_error())
}

/// The piece itself if it has no mistake, else its last good version, if there is one.
fn last_good_item(piece: &DecodedItem, known: &Objects<'_>) -> Option<DecodedItem> {
    match piece {
        _ if !has_mistake(piece) => Some(piece.clone()),
        DecodedItem::Object(decoded) => {
            let good = known.get(&(decoded.kind, &decoded.name))?;
            Some(DecodedItem::Object(restore(decoded, good)))
        }
        DecodedItem::Finding(_) | DecodedItem::Configuration(_) => None,
    }
}

/// The object as it was, with everybody blocked whom it blocks now.
fn restore(now: &DecodedObject, good: &DecodedObject) -> DecodedObject {
    let mut before = good.clone();
    if let (Content::People(good), Content::People(now)) = (&good.content, &now.content) {
        before.content = Content::People(Arc::new(good.with_blocks_of(now)));
    }
    before
}

#[cfg(test)]
mod tests;
