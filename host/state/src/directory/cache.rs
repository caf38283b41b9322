//! Caches the decoded files of a folder between loads. Files that did not change keep their
//! pointers.
//!
//! Invariant: a file counts as unchanged by its times only where these can be trusted.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustc_hash::FxBuildHasher;
use sha2::{Digest as _, Sha256};

use super::FileOverlay;
use super::walk::{self, FoundFile};
use tollgate_core::diagnostic::Loaded;
use tollgate_objects::Resources;
use tollgate_objects::decode::last_known_good::DecodedInput;
use tollgate_objects::decode::load::LoadHistory;
use tollgate_objects::decode::read::{reuse_equal, unreadable};
use tollgate_objects::decode::read_file;

/// A file written within this time before it was read may have been written again since, without a
/// trace in its times: FAT has a resolution of two seconds.
const RACY: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(crate) struct FolderCache {
    files: HashMap<PathBuf, CachedFile, FxBuildHasher>,
    pub(crate) history: LoadHistory,
}

#[derive(Clone, Debug)]
struct CachedFile {
    stamp: FileStamp,
    change_check: ChangeCheck,
    digest: [u8; 32],
    decoded: DecodedInput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeCheck {
    /// An equal [`FileStamp`].
    Metadata,
    /// Only equal bytes.
    Contents,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// [`ChangeCheck::Metadata`] if both times were well in the past at `now`. A time in the future
    /// never is.
    fn change_check(&self, now: SystemTime) -> ChangeCheck {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let latest = self.modified.0.max(self.changed.0);
        let settled = now.saturating_sub(RACY).as_secs();
        match u64::try_from(latest) {
            Ok(latest) if latest < settled => ChangeCheck::Metadata,
            Ok(_) | Err(_) => ChangeCheck::Contents,
        }
    }
}

impl FolderCache {
    /// Loads everything below `folder`, as it is now or as it would be with `overlays`.
    pub(crate) fn load(
        &mut self,
        folder: &Path,
        namespace: &str,
        overlays: &[FileOverlay<'_>],
    ) -> Loaded<Arc<Resources>> {
        let mut findings = Vec::new();
        let found = walk::files(folder, &mut findings);
        let mut files = HashMap::with_capacity_and_hasher(found.len(), FxBuildHasher);
        let mut decoded = Vec::with_capacity(found.len());
        let is_overlaid = |found: &FoundFile| overlays.iter().any(|overlay| overlay.path == found.path);
        for found in found.into_iter().filter(|found| !is_overlaid(found)) {
            // Folders above the state's folder say nothing about its content.
            let inside = found.path.strip_prefix(folder).unwrap_or(&found.path).to_owned();
            let old = self.files.remove(&found.path);
            match file(&found, &inside, namespace, old.as_ref()) {
                Ok(file) => {
                    decoded.push(file.decoded.clone());
                    files.insert(found.path, file);
                }
                Err(broken) => decoded.push(broken),
            }
        }
        for FileOverlay { path, text } in overlays {
            let Some(text) = text else { continue };
            let inside = path.strip_prefix(folder).unwrap_or(path).display().to_string();
            let name = Arc::from(path.display().to_string());
            decoded.push(DecodedInput {
                file: Some(Arc::from(*path)),
                items: read_file(text, name, &inside, namespace).into(),
            });
        }
        self.files = files;
        self.history.load(decoded, findings, namespace)
    }
}

/// Reads a file. A file that cannot be read is read again next time.
fn file(
    found: &FoundFile,
    inside: &Path,
    namespace: &str,
    old: Option<&CachedFile>,
) -> Result<CachedFile, DecodedInput> {
    let stamp = FileStamp::of(&found.metadata);
    if let Some(old) = old
        && old.change_check == ChangeCheck::Metadata
        && old.stamp == stamp
    {
        return Ok(old.clone());
    }
    // The time is taken before the file is read, so anything written later is newer.
    let now = SystemTime::now();
    let name: Arc<str> = Arc::from(found.path.display().to_string());
    let inside = inside.display().to_string();
    let path = || Some(Arc::from(found.path.as_path()));
    let (text, metadata) = walk::read(&found.path, &name).map_err(|finding| DecodedInput {
        file: path(),
        items: unreadable(&inside, finding).into(),
    })?;
    let stamp = FileStamp::of(&metadata);
    let (change_check, digest) = (stamp.change_check(now), Sha256::digest(text.as_bytes()).into());
    if let Some(old) = old
        && old.digest == digest
    {
        return Ok(CachedFile {
            stamp,
            change_check,
            ..old.clone()
        });
    }
    let mut items = read_file(&text, name, &inside, namespace);
    if let Some(old) = old {
        reuse_equal(&mut items, &old.decoded.items);
    }
    Ok(CachedFile {
        stamp,
        change_check,
        digest,
        decoded: DecodedInput {
            file: path(),
            items: items.into(),
        },
    })
}

#[cfg(test)]
mod tests;
