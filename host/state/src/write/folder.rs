//! Reads and writes objects in the files of a folder. Symbolic links are refused, and so is a
//! change after which the folder would not load.
//!
//! Invariant: a file is replaced as a whole. The new one is complete and on disk before it takes
//! the old one's name. Files that change together all change or none does.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::batch::Write;
use super::edit::{self, ObjectPosition};
use super::{
    Error, ObjectKey, ResourceVersion, StoredObject, WritableKind, documents, set_version, strip_server_metadata,
};
use crate::directory::{self, FileOverlay};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_objects::decode::version_of;
use tollgate_objects::{InvalidObject, ObjectName};

mod batch;
mod journal;
mod persist;

pub(crate) use journal::lock_for_load;
use persist::FileChange;

/// How often to wait for another writer, and how long each time: 10 s in all.
const LOCK_ATTEMPTS: u32 = 200;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Reads and writes the objects of a folder.
#[derive(Clone, Debug)]
pub struct FolderWriter {
    root: Arc<Path>,
    /// The namespace of objects that name none.
    namespace: Arc<str>,
}

#[derive(Debug)]
struct LocatedObject {
    path: PathBuf,
    text: Arc<str>,
    position: ObjectPosition,
    stored: StoredObject,
}

type NamedObject = (ObjectKey, LocatedObject);

impl FolderWriter {
    /// The folder at `root`; `namespace` is the control plane's.
    pub fn new(root: &Path, namespace: &str) -> Self {
        Self {
            root: root.into(),
            namespace: namespace.into(),
        }
    }

    /// Every object of a kind in a namespace, by name. Blocks.
    pub(super) fn list(&self, kind: WritableKind, namespace: &str) -> Result<Vec<StoredObject>, Error> {
        let mut all = self.scan(kind, None)?;
        all.retain(|(key, _)| key.name.namespace == namespace);
        all.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        Ok(all.into_iter().map(|(_, found)| found.stored).collect())
    }

    /// Blocks.
    pub(super) fn replace(
        &self,
        key: &ObjectKey,
        wanted: &Value,
        expected_version: &ResourceVersion,
    ) -> Result<StoredObject, Error> {
        let stored = self.write(Write::Replace {
            key: key.clone(),
            before: Value::Null,
            after: wanted.clone(),
            expected_version: expected_version.clone(),
        })?;
        stored.ok_or_else(|| Error::NotFound(key.clone()))
    }

    fn write(&self, write: Write) -> Result<Option<StoredObject>, Error> {
        let done = self.batch(&[write]).map_err(|failed| failed.error)?;
        Ok(done.into_iter().next().flatten())
    }

    fn new_file(&self, key: &ObjectKey) -> PathBuf {
        let kind = key.kind.as_str().to_lowercase();
        self.root
            .join(format!("{kind}-{}-{}.yaml", key.name.namespace, key.name.name))
    }

    /// The object as its file has it. Blocks.
    pub(super) fn read(&self, key: &ObjectKey) -> Result<StoredObject, Error> {
        let all = self.scan(key.kind, Some(&key.name.name))?.into_iter();
        let mut same = all.filter(|(found, _)| found == key);
        let Some((_, found)) = same.next() else {
            return Err(Error::NotFound(key.clone()));
        };
        match same.next() {
            None => Ok(found.stored),
            Some((_, second)) => Err(defined_twice(key, &found.path, &second.path)),
        }
    }

    /// Finds objects of a kind, all or those with a name.
    fn scan(&self, kind: WritableKind, name: Option<&str>) -> Result<Vec<NamedObject>, Error> {
        let mut all = Vec::new();
        for path in directory::files(&self.root) {
            // The load reports files that cannot be read.
            let Ok(bytes) = fs::read(&path) else { continue };
            let Ok(text) = String::from_utf8(bytes) else { continue };
            let has = |part: &str| memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some();
            // A name always appears literally unless the text has an escape.
            if has("\\") || (has(kind.as_str()) && name.is_none_or(has)) {
                self.objects(kind, &path, &Arc::from(text), &mut all);
            }
        }
        Ok(all)
    }

    fn objects(&self, kind: WritableKind, path: &Path, text: &Arc<str>, all: &mut Vec<NamedObject>) {
        // The load reports texts that cannot be parsed.
        let Ok(documents) = documents(text) else { return };
        let version = version(text.as_bytes());
        for (document, root) in documents.iter().enumerate() {
            for (position, object) in find_objects(document, root, kind) {
                let text_of = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
                let Some(name) = text_of("/metadata/name") else {
                    continue;
                };
                let namespace = text_of("/metadata/namespace").filter(|namespace| !namespace.is_empty());
                let name = ObjectName {
                    namespace: namespace.unwrap_or(&self.namespace).to_owned(),
                    name: name.to_owned(),
                };
                // Argo CD reads projects only in its own namespace.
                if name.namespace != *self.namespace && kind == WritableKind::AppProject {
                    continue;
                }
                let key = ObjectKey { kind, name };
                let found = LocatedObject {
                    path: path.to_owned(),
                    text: Arc::clone(text),
                    position,
                    stored: stored(object, &key, &version),
                };
                all.push((key, found));
            }
        }
    }

    /// Refuses texts that would add mistakes to the folder.
    fn validate(&self, changes: &[FileChange]) -> Result<(), Error> {
        let overlays: Vec<FileOverlay<'_>> = changes.iter().map(FileChange::overlay).collect();
        let after = directory::load_with(&self.root, &self.namespace, &overlays);
        if let Some(after) = after.value {
            return self.refuse_new_invalid_objects(after.invalid_objects);
        }
        // Lines move, so old mistakes are recognized by their messages.
        let before = directory::load(&self.root, &self.namespace).diagnostics.into_iter();
        let before = before.filter(Diagnostic::is_error);
        let mut before: Vec<String> = before.map(|finding| finding.message).collect();
        let mut new = after.diagnostics;
        new.retain(|finding| {
            // Each old mistake excuses one finding: the same mistake in a second place is new.
            let known = before.iter().position(|message| *message == finding.message);
            finding.is_error() && known.map(|at| before.swap_remove(at)).is_none()
        });
        match new.is_empty() {
            true => Ok(()),
            false => Err(Error::InvalidState(new)),
        }
    }

    /// Refuses changes that would make a valid object invalid.
    fn refuse_new_invalid_objects(&self, mut after: Vec<InvalidObject>) -> Result<(), Error> {
        if after.is_empty() {
            return Ok(());
        }
        let before = directory::load(&self.root, &self.namespace).value;
        let before = before.map(|before| before.invalid_objects).unwrap_or_default();
        after.retain(|object| {
            let is_same = |known: &InvalidObject| {
                (known.kind, &known.name, &known.mistake) == (object.kind, &object.name, &object.mistake)
            };
            !before.iter().any(is_same)
        });
        if after.is_empty() {
            return Ok(());
        }
        let findings = after.into_iter();
        let findings = findings.map(|object| Diagnostic::error(object.location, object.mistake));
        Err(Error::InvalidState(findings.collect()))
    }

    /// Makes this process the only writer of the folder. A batch whose writer died is completed
    /// first.
    fn lock(&self) -> Result<File, Error> {
        let io = |source| Error::Io {
            path: self.root.to_path_buf(),
            source,
        };
        let folder = File::open(&self.root).map_err(io)?;
        for _ in 0..LOCK_ATTEMPTS {
            match folder.try_lock() {
                Ok(()) => {
                    // A journal that is still there is one of a writer that died, because the lock was free.
                    journal::recover(&self.root).map_err(io)?;
                    return Ok(folder);
                }
                Err(fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY_INTERVAL),
                Err(fs::TryLockError::Error(error)) => return Err(io(error)),
            }
        }
        Err(Error::Busy)
    }
}

fn defined_twice(key: &ObjectKey, first: &Path, second: &Path) -> Error {
    Error::DefinedTwice {
        key: key.clone(),
        first: first.display().to_string(),
        second: second.display().to_string(),
    }
}

/// Objects of a kind in a document: the document itself, or items of a list.
fn find_objects(document: usize, root: &Value, kind: WritableKind) -> Vec<(ObjectPosition, &Value)> {
    fn text<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
        object.get(key).and_then(Value::as_str)
    }
    let is_it = |found: Option<&str>, version: Option<&str>| {
        found == Some(kind.as_str()) && version == Some(kind.api_version())
    };
    let list_version = text(root, "apiVersion");
    let Some(items) = root.get("items").and_then(Value::as_array) else {
        let position = ObjectPosition { document, item: None };
        let found = is_it(text(root, "kind"), list_version);
        return found.then_some((position, root)).into_iter().collect();
    };
    let Some(inner) = text(root, "kind").and_then(|listed| listed.strip_suffix("List")) else {
        return Vec::new();
    };
    let found = items.iter().enumerate().filter_map(|(item, object)| {
        let version = text(object, "apiVersion").or(list_version);
        let item = Some(item);
        is_it(text(object, "kind").or(Some(inner)), version).then_some((ObjectPosition { document, item }, object))
    });
    found.collect()
}

/// The object with its version, with the kind and API version that its list gives it, and with the
/// namespace that it belongs to.
fn stored(object: &Value, key: &ObjectKey, version: &ResourceVersion) -> StoredObject {
    let mut object = object.clone();
    if let Some(members) = object.as_object_mut() {
        members.entry("kind").or_insert_with(|| key.kind.as_str().into());
        members
            .entry("apiVersion")
            .or_insert_with(|| key.kind.api_version().into());
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), key.name.namespace.as_str().into());
    }
    strip_server_metadata(&mut object);
    set_version(&mut object, version);
    StoredObject {
        object,
        version: version.clone(),
    }
}

/// `wanted` as the file would have it, without what [`stored`] added.
fn unversioned(wanted: &Value, found: &LocatedObject) -> Result<Value, Error> {
    let documents = documents(&found.text).map_err(|_| Error::Interrupted)?;
    let old = edit::at(&documents, found.position).ok_or(Error::Interrupted)?;
    let mut wanted = wanted.clone();
    let members = wanted.as_object_mut().ok_or(Error::Interrupted)?;
    for key in ["kind", "apiVersion"] {
        if old.get(key).is_none() {
            members.remove(key);
        }
    }
    if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["namespace", "resourceVersion", "managedFields"] {
            metadata.remove(key);
            if let Some(own) = old.get("metadata").and_then(|metadata| metadata.get(key)) {
                metadata.insert(key.to_owned(), own.clone());
            }
        }
    }
    Ok(wanted)
}

/// The version of a file's text: a digest of its bytes.
pub(crate) fn version(bytes: &[u8]) -> ResourceVersion {
    ResourceVersion::new(&version_of(bytes))
}

/// SECURITY: a link leads out of the folder, or to a file that is replaced together with its whole
/// folder. The write would be lost, or would hit another file.
fn refuse_links(root: &Path, path: &Path) -> Result<(), Error> {
    let inside = path.strip_prefix(root).unwrap_or(path);
    let mut reached = root.to_path_buf();
    let steps = std::iter::once(None).chain(inside.components().map(Some));
    for step in steps {
        if let Some(step) = step {
            reached.push(step);
        }
        let is_link = fs::symlink_metadata(&reached).is_ok_and(|metadata| metadata.is_symlink());
        if is_link {
            return Err(Error::SymbolicLink(reached));
        }
    }
    // git-sync: a link somewhere above leads into its folder of checkouts, each of which has the
    // name of its commit.
    let real = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
    let is_commit = |name: &str| matches!(name.len(), 40 | 64) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_checkout = |path: &Path| {
        let is_inside = path.parent().is_some_and(|folder| folder.ends_with(".worktrees"));
        is_inside && path.file_name().and_then(|name| name.to_str()).is_some_and(is_commit)
    };
    if real.ancestors().any(is_checkout) {
        let path = root.to_path_buf();
        return Err(Error::SymbolicLink(path));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
