//! Changes several objects in a folder at once, each based on a version. If one write cannot be
//! done, none is. Each file is written once.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::land::Landing;
use super::{Folder, Found, unversioned};
use crate::write::batch::{Failed, Write};
use crate::write::{Error, Key, Kind, Stored, Version, edit, forget_version};

/// The files of each object; more than one is a mistake.
type Index = HashMap<Key, Vec<PathBuf>>;

/// The old and new texts of files.
#[derive(Debug, Default)]
struct Drafts(BTreeMap<PathBuf, Landing>);

impl Folder {
    /// Does all writes or none, under one lock. Blocks.
    pub(in crate::write) fn batch(&self, writes: &[Write]) -> Result<Vec<Option<Stored>>, Box<Failed>> {
        let Some(first) = writes.first() else {
            return Ok(Vec::new());
        };
        let about = |write: &Write| {
            let key = write.key().clone();
            move |error: Error| Failed::clean(key, error)
        };
        let _lock = self.lock().map_err(about(first))?;
        let (mut found, index) = self.index(writes).map_err(about(first))?;
        let mut drafts = Drafts::default();
        for write in writes {
            self.draft(write, (&mut found, &index), &mut drafts)
                .map_err(about(write))?;
        }
        let landings: Vec<Landing> = drafts.0.into_values().filter(is_change).collect();
        self.land_all(&landings)?;
        let (mut found, _) = self.index(writes).map_err(about(first))?;
        let now = |write: &Write| found.remove(write.key()).map(|found| found.stored);
        Ok(writes.iter().map(now).collect())
    }

    /// Every object of the kinds that are written.
    fn index(&self, writes: &[Write]) -> Result<(HashMap<Key, Found>, Index), Error> {
        let mut objects = HashMap::new();
        let mut index = Index::new();
        for kind in [Kind::ApplicationSet, Kind::AppProject, Kind::Application] {
            if !writes.iter().any(|write| write.key().kind == kind) {
                continue;
            }
            for ((namespace, name), found) in self.scan(kind, None)? {
                let name = crate::ObjectName { namespace, name };
                let key = Key { kind, name };
                index.entry(key.clone()).or_default().push(found.path.clone());
                objects.insert(key, found);
            }
        }
        Ok((objects, index))
    }

    /// Applies one write to the texts.
    fn draft(
        &self,
        write: &Write,
        (found, index): (&mut HashMap<Key, Found>, &Index),
        drafts: &mut Drafts,
    ) -> Result<(), Error> {
        let key = write.key();
        if let Some([first, second, ..]) = index.get(key).map(Vec::as_slice) {
            return Err(Error::Twice {
                key: key.clone(),
                first: first.display().to_string(),
                second: second.display().to_string(),
            });
        }
        match write {
            Write::Create { key, object } => self.draft_new(key, object, (found, drafts)),
            Write::Replace {
                key, after, based_on, ..
            } => {
                let here = self.drafted(key, based_on, (found, drafts))?;
                let wanted = unversioned(after, &here)?;
                let text = edit::replace(&here.text, here.place, &wanted).map_err(|refused| layout(&here, &refused))?;
                drafts.set(key, &here, Some(text));
                Ok(())
            }
            Write::Delete { key, before, .. } => {
                let based_on = crate::write::batch::version_of(before);
                let here = self.drafted(key, &based_on, (found, drafts))?;
                let text = edit::remove(&here.text, here.place).map_err(|refused| layout(&here, &refused))?;
                drafts.set(key, &here, (!text.trim().is_empty()).then_some(text));
                Ok(())
            }
        }
    }

    fn draft_new(
        &self,
        key: &Key,
        object: &Value,
        (found, drafts): (&HashMap<Key, Found>, &mut Drafts),
    ) -> Result<(), Error> {
        let path = self.new_file(key);
        if found.contains_key(key) || path.exists() || drafts.0.contains_key(&path) {
            return Err(Error::Exists(key.clone()));
        }
        let mut object = object.clone();
        forget_version(&mut object);
        let landing = Landing {
            key: key.clone(),
            path: path.clone(),
            old: None,
            new: Some(crate::write::yaml(&object)),
        };
        drafts.0.insert(path, landing);
        Ok(())
    }

    /// The object in its text as changed so far, if the original has that version.
    fn drafted(
        &self,
        key: &Key,
        based_on: &Version,
        (found, drafts): (&mut HashMap<Key, Found>, &Drafts),
    ) -> Result<Found, Error> {
        let here = found.remove(key).ok_or_else(|| Error::NotFound(key.clone()))?;
        if here.stored.version != *based_on {
            return Err(Error::Conflict {
                key: key.clone(),
                based_on: based_on.as_str().to_owned(),
                found: here.stored.version.as_str().to_owned(),
            });
        }
        let Some(landing) = drafts.0.get(&here.path) else {
            return Ok(here);
        };
        let text: Arc<str> = landing.new.as_deref().unwrap_or_default().into();
        let mut all = Vec::new();
        self.objects(key.kind, (&here.path, &text), &mut all);
        let is_it = |name: &(String, String)| name.0 == key.name.namespace && name.1 == key.name.name;
        let moved = all.into_iter().find(|(name, _)| is_it(name));
        moved.map(|(_, found)| found).ok_or(Error::Broken)
    }
}

impl Drafts {
    fn set(&mut self, key: &Key, here: &Found, text: Option<String>) {
        let landing = self.0.entry(here.path.clone()).or_insert_with(|| Landing {
            key: key.clone(),
            path: here.path.clone(),
            old: Some(Arc::clone(&here.text)),
            new: None,
        });
        landing.new = text;
    }
}

fn is_change(landing: &Landing) -> bool {
    landing.old.as_deref() != landing.new.as_deref()
}

fn layout(here: &Found, refused: &edit::Refused) -> Error {
    Error::Layout {
        path: here.path.clone(),
        line: refused.line,
        why: refused.why,
    }
}
