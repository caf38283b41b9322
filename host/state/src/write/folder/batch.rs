//! Changes several objects in a folder at once, each with its expected version. If one write cannot
//! be done, none is. Each file is written once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::persist::FileChange;
use super::{FolderWriter, LocatedObject, defined_twice, unversioned};
use crate::write::batch::{BatchError, Write, object_version};
use crate::write::{Error, ObjectKey, ResourceVersion, StoredObject, WritableKind, edit, strip_server_metadata};

/// The objects that exist, and the changes planned so far.
struct Plan {
    /// More than one object of a key is a mistake.
    found: HashMap<ObjectKey, Vec<LocatedObject>>,
    changes: BTreeMap<PathBuf, FileChange>,
}

impl FolderWriter {
    /// Does all writes or none, under one lock. Blocks.
    pub(in crate::write) fn batch(&self, writes: &[Write]) -> Result<Vec<Option<StoredObject>>, Box<BatchError>> {
        let Some(first) = writes.first() else {
            return Ok(Vec::new());
        };
        let about = |write: &Write| {
            let key = write.key().clone();
            move |error: Error| BatchError::nothing_written(key, error)
        };
        // Before the files are read: versions that are compared without the lock could be outdated.
        let _lock = self.lock().map_err(about(first))?;
        let mut plan = Plan {
            found: self.index(writes).map_err(about(first))?,
            changes: BTreeMap::new(),
        };
        for write in writes {
            self.plan_write(write, &mut plan).map_err(about(write))?;
        }
        let changes: Vec<FileChange> = plan.changes.into_values().filter(FileChange::is_change).collect();
        self.persist_all(&changes)?;
        let mut found = self.index(writes).map_err(about(first))?;
        let now = |write: &Write| Some(found.remove(write.key())?.pop()?.stored);
        Ok(writes.iter().map(now).collect())
    }

    /// Every object of the kinds that are written, or of the one name that is.
    fn index(&self, writes: &[Write]) -> Result<HashMap<ObjectKey, Vec<LocatedObject>>, Error> {
        let mut index: HashMap<ObjectKey, Vec<LocatedObject>> = HashMap::new();
        let kinds: BTreeSet<WritableKind> = writes.iter().map(|write| write.key().kind).collect();
        let name = match writes {
            [only] => Some(only.key().name.name.as_str()),
            _ => None,
        };
        for kind in kinds {
            for (key, found) in self.scan(kind, name)? {
                index.entry(key).or_default().push(found);
            }
        }
        Ok(index)
    }

    fn plan_write(&self, write: &Write, plan: &mut Plan) -> Result<(), Error> {
        let key = write.key();
        if let Some([first, second, ..]) = plan.found.get(key).map(Vec::as_slice) {
            return Err(defined_twice(key, &first.path, &second.path));
        }
        let (here, text) = match write {
            Write::Create { key, object } => return self.plan_create(key, object, plan),
            Write::Replace {
                key,
                after,
                expected_version,
                ..
            } => {
                let here = self.planned_object(key, expected_version, plan)?;
                let wanted = unversioned(after, &here)?;
                let text = edit::replace(&here.text, here.position, &wanted);
                (here, text)
            }
            Write::Delete { key, before, .. } => {
                let here = self.planned_object(key, &object_version(before), plan)?;
                let text = edit::remove(&here.text, here.position);
                (here, text)
            }
        };
        let LocatedObject { path, text: old, .. } = here;
        let text = text.map_err(|refused| Error::UnsupportedLayout {
            path: path.clone(),
            line: refused.line,
            why: refused.why,
        })?;
        // A file without its last object goes.
        let is_empty = matches!(write, Write::Delete { .. }) && text.trim().is_empty();
        let change = plan.changes.entry(path.clone()).or_insert_with(|| FileChange {
            key: key.clone(),
            path,
            old: Some(old),
            new: None,
        });
        change.new = (!is_empty).then_some(text);
        Ok(())
    }

    fn plan_create(&self, key: &ObjectKey, object: &Value, plan: &mut Plan) -> Result<(), Error> {
        let path = self.new_file(key);
        // The file of this name may hold something else, which a creation must not replace.
        if plan.found.contains_key(key) || path.exists() || plan.changes.contains_key(&path) {
            return Err(Error::AlreadyExists(key.clone()));
        }
        let mut object = object.clone();
        strip_server_metadata(&mut object);
        let change = FileChange {
            key: key.clone(),
            path: path.clone(),
            old: None,
            new: Some(crate::write::yaml(&object)),
        };
        plan.changes.insert(path, change);
        Ok(())
    }

    /// The object in its text as changed so far, if the original has that version.
    fn planned_object(
        &self,
        key: &ObjectKey,
        expected_version: &ResourceVersion,
        plan: &mut Plan,
    ) -> Result<LocatedObject, Error> {
        let here = plan.found.remove(key).and_then(|mut same| same.pop());
        let here = here.ok_or_else(|| Error::NotFound(key.clone()))?;
        if here.stored.version != *expected_version {
            let found = here.stored.version.as_str();
            return Err(Error::conflict(key, expected_version.as_str(), found));
        }
        let Some(change) = plan.changes.get(&here.path) else {
            return Ok(here);
        };
        // Earlier writes of the batch may have moved the object within its file.
        let text: Arc<str> = change.new.as_deref().unwrap_or_default().into();
        let mut all = Vec::new();
        self.objects(key.kind, &here.path, &text, &mut all);
        let moved = all.into_iter().find(|(found, _)| found == key);
        moved.map(|(_, found)| found).ok_or(Error::Interrupted)
    }
}
