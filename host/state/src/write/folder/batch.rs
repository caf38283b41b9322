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

/// The files of each object; more than one is a mistake.
type Index = HashMap<ObjectKey, Vec<PathBuf>>;

/// The planned changes, by file.
#[derive(Debug, Default)]
struct FileChanges(BTreeMap<PathBuf, FileChange>);

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
        let _lock = self.lock().map_err(about(first))?;
        let (mut found, index) = self.index(writes).map_err(about(first))?;
        let mut planned = FileChanges::default();
        for write in writes {
            self.plan_write(write, (&mut found, &index), &mut planned)
                .map_err(about(write))?;
        }
        let changes: Vec<FileChange> = planned.0.into_values().filter(FileChange::is_change).collect();
        self.persist_all(&changes)?;
        let (mut found, _) = self.index(writes).map_err(about(first))?;
        let now = |write: &Write| found.remove(write.key()).map(|found| found.stored);
        Ok(writes.iter().map(now).collect())
    }

    /// Every object of the kinds that are written, or of the one name that is.
    fn index(&self, writes: &[Write]) -> Result<(HashMap<ObjectKey, LocatedObject>, Index), Error> {
        let mut objects = HashMap::new();
        let mut index = Index::new();
        let kinds: BTreeSet<WritableKind> = writes.iter().map(|write| write.key().kind).collect();
        let name = match writes {
            [only] => Some(only.key().name.name.as_str()),
            _ => None,
        };
        for kind in kinds {
            for (key, found) in self.scan(kind, name)? {
                index.entry(key.clone()).or_default().push(found.path.clone());
                objects.insert(key, found);
            }
        }
        Ok((objects, index))
    }

    /// Applies one write to the planned texts.
    fn plan_write(
        &self,
        write: &Write,
        (found, index): (&mut HashMap<ObjectKey, LocatedObject>, &Index),
        planned: &mut FileChanges,
    ) -> Result<(), Error> {
        let key = write.key();
        if let Some([first, second, ..]) = index.get(key).map(Vec::as_slice) {
            return Err(defined_twice(key, first, second));
        }
        let (here, text) = match write {
            Write::Create { key, object } => return self.plan_create(key, object, (found, planned)),
            Write::Replace {
                key,
                after,
                expected_version,
                ..
            } => {
                let here = self.planned_object(key, expected_version, (found, planned))?;
                let wanted = unversioned(after, &here)?;
                let text = edit::replace(&here.text, here.position, &wanted);
                (here, text)
            }
            Write::Delete { key, before, .. } => {
                let here = self.planned_object(key, &object_version(before), (found, planned))?;
                let text = edit::remove(&here.text, here.position);
                (here, text)
            }
        };
        let text = text.map_err(|refused| Error::UnsupportedLayout {
            path: here.path.clone(),
            line: refused.line,
            why: refused.why,
        })?;
        // A file without its last object goes.
        let is_empty = matches!(write, Write::Delete { .. }) && text.trim().is_empty();
        planned.set(key, &here, (!is_empty).then_some(text));
        Ok(())
    }

    fn plan_create(
        &self,
        key: &ObjectKey,
        object: &Value,
        (found, planned): (&HashMap<ObjectKey, LocatedObject>, &mut FileChanges),
    ) -> Result<(), Error> {
        let path = self.new_file(key);
        if found.contains_key(key) || path.exists() || planned.0.contains_key(&path) {
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
        planned.0.insert(path, change);
        Ok(())
    }

    /// The object in its text as changed so far, if the original has that version.
    fn planned_object(
        &self,
        key: &ObjectKey,
        expected_version: &ResourceVersion,
        (found, planned): (&mut HashMap<ObjectKey, LocatedObject>, &FileChanges),
    ) -> Result<LocatedObject, Error> {
        let here = found.remove(key).ok_or_else(|| Error::NotFound(key.clone()))?;
        if here.stored.version != *expected_version {
            return Err(Error::Conflict {
                key: key.clone(),
                expected_version: expected_version.as_str().to_owned(),
                found: here.stored.version.as_str().to_owned(),
            });
        }
        let Some(change) = planned.0.get(&here.path) else {
            return Ok(here);
        };
        let text: Arc<str> = change.new.as_deref().unwrap_or_default().into();
        let mut all = Vec::new();
        self.objects(key.kind, (&here.path, &text), &mut all);
        let moved = all.into_iter().find(|(found, _)| found == key);
        moved.map(|(_, found)| found).ok_or(Error::Interrupted)
    }
}

impl FileChanges {
    fn set(&mut self, key: &ObjectKey, here: &LocatedObject, text: Option<String>) {
        let change = self.0.entry(here.path.clone()).or_insert_with(|| FileChange {
            key: key.clone(),
            path: here.path.clone(),
            old: Some(Arc::clone(&here.text)),
            new: None,
        });
        change.new = text;
    }
}
