//! The journal of a batch of files that is being put in place. If its writer dies, the next reader
//! or writer completes the batch.
//!
//! The journal is written after all new texts are on disk and before the first file is replaced; it
//! is removed when all are. While it exists, only the holder of the folder's exclusive lock may
//! read the files it names.
//!
//! Invariant: no load and no other writer sees part of a batch, and an edit made since is not
//! overwritten.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::persist::{FileChange, hidden_file};
use super::{LOCK_ATTEMPTS, LOCK_RETRY_INTERVAL, version};
use tollgate_core::diagnostic::Diagnostic;

/// Hidden, so that no load reads it.
const NAME: &str = ".tollgate-journal";

/// A file of a batch. Paths are relative to the folder.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    path: PathBuf,
    /// Where its new text is; `None` if the file is deleted.
    new: Option<PathBuf>,
    /// Version of its old text; `None` if there was no file.
    old: Option<String>,
}

/// Writes the journal of a batch. The caller holds the lock.
pub(super) fn write(root: &Path, changes: &[FileChange], prepared: &[Option<NamedTempFile>]) -> io::Result<()> {
    let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_owned();
    let entries = changes.iter().zip(prepared).map(|(change, prepared)| {
        let (path, old) = (relative(&change.path), change.old.as_deref());
        // It is in the folder of the file that it replaces.
        let beside = |file: &NamedTempFile| Some(path.with_file_name(file.path().file_name()?));
        Entry {
            new: prepared.as_ref().and_then(beside),
            old: old.map(|text| version(text.as_bytes()).as_str().to_owned()),
            path,
        }
    });
    let entries: Vec<Entry> = entries.collect();
    let mut file = hidden_file(root)?;
    file.write_all(&serde_json::to_vec(&entries)?)?;
    file.as_file().sync_all()?;
    file.persist(root.join(NAME)).map_err(|error| error.error)?;
    sync(root)
}

/// Removes the journal of a batch that is in place. The caller holds the lock.
pub(super) fn finish(root: &Path) -> io::Result<()> {
    fs::remove_file(root.join(NAME))?;
    sync(root)
}

/// Completes a batch whose writer died. The caller holds the exclusive lock.
pub(super) fn recover(root: &Path) -> io::Result<()> {
    let text = match fs::read(root.join(NAME)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let entries: Vec<Entry> = serde_json::from_slice(&text)?;
    for entry in &entries {
        let path = inside(root, &entry.path)?;
        let now = fs::read(&path).ok();
        let is_old = now.map(|bytes| version(&bytes).as_str().to_owned()) == entry.old;
        let new = entry.new.as_deref().map(|new| inside(root, new)).transpose()?;
        match new {
            // This file is already in place.
            Some(new) if !new.exists() => {}
            Some(new) if is_old => fs::rename(new, &path)?,
            None if is_old && entry.old.is_some() => fs::remove_file(&path)?,
            None if !path.exists() => {}
            // Somebody edited the file since, and the edit stays.
            Some(_) | None => {
                tracing::warn!(path = %path.display(), "a file was edited after its writer died, and stays as it is");
            }
        }
        sync(path.parent().unwrap_or(root))?;
    }
    tracing::warn!(
        files = entries.len(),
        "a batch of files whose writer died is in place now"
    );
    finish(root)
}

/// Keeps writers away while a folder is loaded, and first completes a batch whose writer died.
/// `None` if the file system has no locks or a writer takes too long; each file is still whole.
///
/// # Errors
/// Only some files of a batch are in place, and the batch cannot be completed.
pub(crate) fn lock_for_load(root: &Path) -> Result<Option<File>, Diagnostic> {
    let incomplete = |why: &str| {
        let (folder, then) = (root.display(), "the gateway completes it once it may write there");
        let message = format!("a batch of files in `{folder}` is not all in place: {why}; {then}");
        Diagnostic::error(None, message)
    };
    // The load reports a folder that cannot be opened.
    let Ok(folder) = File::open(root) else { return Ok(None) };
    let is_incomplete = || root.join(NAME).exists();
    for _ in 0..LOCK_ATTEMPTS {
        match folder.try_lock_shared() {
            Ok(()) if !is_incomplete() => return Ok(Some(folder)),
            Ok(()) => {
                let alone = folder.unlock().is_ok() && folder.try_lock().is_ok();
                if alone {
                    recover(root).map_err(|error| incomplete(&error.to_string()))?;
                }
                // An exclusive lock cannot be turned into a shared one in one step.
                let _ = folder.unlock();
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY_INTERVAL),
            Err(TryLockError::Error(_)) => break,
        }
    }
    if is_incomplete() {
        return Err(incomplete("another writer is at work"));
    }
    Ok(None)
}

/// Resolves a path of the journal, which must be within the folder.
fn inside(root: &Path, path: &Path) -> io::Result<PathBuf> {
    if path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(root.join(path));
    }
    Err(io::Error::other("it names a file outside of the folder"))
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;
