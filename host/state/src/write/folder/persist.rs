//! Puts the new texts of several files in place together.
//!
//! Invariant: all files change and are on disk, or none changes. If the disk also refuses to undo,
//! the error names the files that stay changed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::NamedTempFile;

use super::{FolderWriter, journal, refuse_links, version};
use crate::directory::FileOverlay;
use crate::write::batch::{BatchError, UndoFailure};
use crate::write::{Error, ObjectKey, ResourceVersion};

/// Prefix of new files until they are complete: hidden, so that no load reads them.
pub(super) const PREFIX: &str = ".tollgate-";
pub(super) const SUFFIX: &str = ".tmp";

#[derive(Clone, Debug)]
pub(super) struct FileChange {
    /// The object for which it changes; the first if there are several.
    pub(super) key: ObjectKey,
    pub(super) path: PathBuf,
    /// Its old text; `None` if there is no such file.
    pub(super) old: Option<Arc<str>>,
    /// Its new text; `None` if it is deleted.
    pub(super) new: Option<String>,
}

impl FileChange {
    pub(super) fn is_change(&self) -> bool {
        self.old.as_deref() != self.new.as_deref()
    }

    pub(super) fn overlay(&self) -> FileOverlay<'_> {
        FileOverlay {
            path: &self.path,
            text: self.new.as_deref(),
        }
    }

    /// Checks that the file still has its old text, because editors ignore the lock.
    fn check(&self) -> Result<(), Error> {
        let now = fs::read(&self.path).ok();
        if now.as_deref() == self.old.as_deref().map(str::as_bytes) {
            return Ok(());
        }
        let shown = |bytes: Option<&[u8]>| bytes.map_or_else(|| ResourceVersion::new(""), version);
        let (expected, found) = (shown(self.old.as_deref().map(str::as_bytes)), shown(now.as_deref()));
        Err(Error::conflict(&self.key, expected.as_str(), found.as_str()))
    }

    fn persist(&self, prepared: Option<NamedTempFile>) -> Result<(), Error> {
        self.check()?;
        put(&self.path, prepared)
    }

    fn undo(&self, folder: &Path) -> Result<(), Error> {
        let old = self.old.as_deref();
        let prepared = old.map(|text| prepare(folder, &self.path, text)).transpose();
        put(&self.path, prepared.map_err(io(&self.path))?)
    }
}

fn put(path: &Path, prepared: Option<NamedTempFile>) -> Result<(), Error> {
    match prepared {
        Some(prepared) => {
            let placed = prepared.persist(path).map(drop);
            placed.map_err(|error| error.error).map_err(io(path))
        }
        None => fs::remove_file(path).map_err(io(path)),
    }
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Io { path, source }
}

impl FolderWriter {
    /// Puts all files in place, or none. The caller holds the lock.
    pub(super) fn persist_all(&self, changes: &[FileChange]) -> Result<(), Box<BatchError>> {
        let about = |change: &FileChange| {
            let key = change.key.clone();
            move |error: Error| BatchError::nothing_written(key, error)
        };
        let Some(first) = changes.first() else { return Ok(()) };
        for change in changes {
            refuse_links(&self.root, &change.path).map_err(about(change))?;
        }
        self.validate(changes).map_err(about(first))?;
        let mut folders = BTreeSet::new();
        for change in changes {
            let folder = change.path.parent().unwrap_or(&self.root);
            if folders.insert(folder) {
                clear(folder);
            }
        }
        let mut prepared = Vec::with_capacity(changes.len());
        for change in changes {
            let folder = change.path.parent().unwrap_or(&self.root);
            let text = change.new.as_deref();
            let file = text.map(|text| prepare(folder, &change.path, text)).transpose();
            prepared.push(file.map_err(io(&change.path)).map_err(about(change))?);
            // All are checked before the first is replaced, when there is nothing to undo yet.
            change.check().map_err(about(change))?;
        }
        // A single file is replaced atomically without a journal.
        let is_batch = changes.len() > 1;
        let failed = |error| about(first)(io(&self.root)(error));
        if is_batch {
            journal::write(&self.root, changes, &prepared).map_err(failed)?;
        }
        let put = self.put_all(changes, prepared);
        if put.is_err() && is_batch {
            // The files that were replaced are put back, and a recovery would complete the batch all the same.
            journal::finish(&self.root).map_err(failed)?;
        }
        put?;
        // A rename is durable once its folder is synced, and until then the journal has to stay.
        for folder in folders {
            let synced = File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(io(folder)).map_err(about(first))?;
        }
        if is_batch {
            journal::finish(&self.root).map_err(failed)?;
        }
        Ok(())
    }

    fn put_all(&self, changes: &[FileChange], prepared: Vec<Option<NamedTempFile>>) -> Result<(), Box<BatchError>> {
        for (number, (change, file)) in changes.iter().zip(prepared).enumerate() {
            let Err(error) = change.persist(file) else { continue };
            let mut failed = BatchError::nothing_written(change.key.clone(), error);
            let done = changes.get(..number).unwrap_or_default();
            for done in done.iter().rev() {
                let folder = done.path.parent().unwrap_or(&self.root);
                match done.undo(folder) {
                    Ok(()) => failed.undone.push(done.key.clone()),
                    Err(error) => failed.not_undone.push(UndoFailure {
                        key: done.key.clone(),
                        why: error.to_string(),
                    }),
                }
            }
            return Err(failed);
        }
        Ok(())
    }
}

/// A new file under a name that no load reads.
pub(super) fn hidden_file(folder: &Path) -> std::io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new();
    file.prefix(PREFIX).suffix(SUFFIX).tempfile_in(folder)
}

/// Writes the new text to disk, under a name that no load reads.
pub(super) fn prepare(folder: &Path, path: &Path, text: &str) -> std::io::Result<NamedTempFile> {
    let mut file = hidden_file(folder)?;
    if let Ok(metadata) = fs::metadata(path) {
        // A temporary file has mode 0600, with which other users who read the folder would lose the object.
        file.as_file().set_permissions(metadata.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Removes what a killed writer left. Under the lock there is no other writer.
fn clear(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_ours = |name: &str| name.starts_with(PREFIX) && name.ends_with(SUFFIX);
        if entry.file_name().to_str().is_some_and(is_ours)
            && let Err(error) = fs::remove_file(entry.path())
        {
            tracing::warn!(path = %entry.path().display(), %error, "a file that a writer left cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests;
