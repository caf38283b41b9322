//! Keeps the decoded files of a folder from load to load. Files that did not change keep their
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
use super::walk::{self, Found};
use crate::Resources;
use crate::decode::mended::{self, DecodedInput};
use crate::decode::read::{keep_equal, unreadable};
use crate::decode::{Collector, LoadMemo, collected};
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location};

/// A file written within this time before it was read may have been written again since, without a
/// trace in its times: FAT has a resolution of two seconds.
const RACY: Duration = Duration::from_secs(3);

/// What is kept of one folder.
#[derive(Debug, Default)]
pub(super) struct FolderCache {
    files: HashMap<PathBuf, CachedFile, FxBuildHasher>,
    memo: LoadMemo,
    last: Option<LastLoad>,
    /// What each file last said without mistakes.
    good: Vec<DecodedInput>,
}

/// The result of the last load.
#[derive(Debug)]
struct LastLoad {
    /// What each file said, in the order of the files.
    said: Vec<DecodedInput>,
    resources: Option<Arc<Resources>>,
    /// The mended resources, if the load was refused.
    mended: Option<Arc<Resources>>,
    findings: Vec<Diagnostic>,
    /// How many of the findings are about the folder rather than a file.
    of_walk: usize,
}

/// What is kept of one file.
#[derive(Clone, Debug)]
struct CachedFile {
    mark: FileStamp,
    trust: ChangeCheck,
    digest: [u8; 32],
    said: DecodedInput,
}

/// Whether an equal [`FileStamp`] proves that a file is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeCheck {
    FileStamp,
    /// Only equal bytes prove it.
    Contents,
}

/// Metadata that changes when a file changes.
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

    /// Whether both times were well in the past at `now`. A time in the future never is.
    fn trust(&self, now: SystemTime) -> ChangeCheck {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let latest = self.modified.0.max(self.changed.0);
        let settled = now.saturating_sub(RACY).as_secs();
        match u64::try_from(latest) {
            Ok(latest) if latest < settled => ChangeCheck::FileStamp,
            Ok(_) | Err(_) => ChangeCheck::Contents,
        }
    }
}

impl FolderCache {
    /// Loads everything below `folder`, as it is now or as it would be with `drafts`.
    pub(super) fn load(
        &mut self,
        folder: &Path,
        namespace: &str,
        drafts: &[FileOverlay<'_>],
    ) -> Loaded<Arc<Resources>> {
        let mut findings = Vec::new();
        let found = walk::files(folder, &mut findings);
        let mut files = HashMap::with_capacity_and_hasher(found.len(), FxBuildHasher);
        let mut said = Vec::with_capacity(found.len());
        for found in found.into_iter().filter(|found| !is_drafted(drafts, &found.path)) {
            // Folders above the state's folder say nothing about its content.
            let inside = found.path.strip_prefix(folder).unwrap_or(&found.path).to_owned();
            let old = self.files.remove(&found.path);
            match file(&found, &inside, (namespace, old)) {
                Ok(file) => {
                    said.push(file.said.clone());
                    files.insert(found.path, file);
                }
                Err(broken) => said.push(broken),
            }
        }
        for FileOverlay { path, text } in drafts {
            let Some(text) = text else { continue };
            let inside = path.strip_prefix(folder).unwrap_or(path).display().to_string();
            let name = Arc::from(path.display().to_string());
            said.push(DecodedInput {
                file: Some(Arc::from(*path)),
                pieces: super::read(text, (name, &inside), namespace).into(),
            });
        }
        self.files = files;
        self.put_together(said, findings, namespace)
    }

    /// See [`crate::source::Source::mended`].
    pub(super) fn mended(&self) -> Option<Arc<Resources>> {
        self.last.as_ref()?.mended.clone()
    }

    fn put_together(
        &mut self,
        said: Vec<DecodedInput>,
        mut findings: Vec<Diagnostic>,
        namespace: &str,
    ) -> Loaded<Arc<Resources>> {
        if let Some(last) = &self.last
            && last.findings.get(..last.of_walk) == Some(findings.as_slice())
            && said.len() == last.said.len()
            && said
                .iter()
                .zip(&last.said)
                .all(|(now, then)| Arc::ptr_eq(&now.pieces, &then.pieces))
        {
            return Loaded {
                value: last.resources.clone(),
                diagnostics: last.findings.clone(),
            };
        }
        let of_walk = findings.len();
        let mut collector = Collector::new(namespace);
        for said in &said {
            collector.take(&said.pieces);
        }
        let is_whole = !findings.iter().any(Diagnostic::is_error);
        let (resources, more) = collector.finish(&mut self.memo);
        findings.extend(more);
        let loaded = Loaded::new(Arc::new(resources), findings);
        let mended = match &loaded.value {
            Some(_) => {
                self.good.clone_from(&said);
                None
            }
            None => {
                let found = if is_whole {
                    mended::Found::All
                } else {
                    mended::Found::Part
                };
                self.good = mended::mended(&said, &self.good, found);
                Some(collected(&self.good, namespace, &self.memo))
            }
        };
        self.last = Some(LastLoad {
            said,
            mended,
            resources: loaded.value.clone(),
            findings: loaded.diagnostics.clone(),
            of_walk,
        });
        loaded
    }
}

fn is_drafted(drafts: &[FileOverlay<'_>], path: &Path) -> bool {
    drafts.iter().any(|draft| draft.path == path)
}

/// Reads a file. A file that cannot be read is read again next time.
fn file(
    found: &Found,
    inside: &Path,
    (namespace, old): (&str, Option<CachedFile>),
) -> Result<CachedFile, DecodedInput> {
    let mark = FileStamp::of(&found.metadata);
    if let Some(old) = &old
        && old.trust == ChangeCheck::FileStamp
        && old.mark == mark
    {
        return Ok(old.clone());
    }
    // The time is taken before the file is read, so anything written later is newer.
    let now = SystemTime::now();
    let name: Arc<str> = Arc::from(found.path.display().to_string());
    let inside = inside.display().to_string();
    let path = || Some(Arc::from(found.path.as_path()));
    let (text, metadata) = walk::read(&found.path).map_err(|refused| {
        let finding = Diagnostic::error(Location::new(Arc::clone(&name), refused.line), refused.message);
        let finding = match refused.hint {
            Some(hint) => finding.with_hint(hint),
            None => finding,
        };
        DecodedInput {
            file: path(),
            pieces: Arc::from(unreadable(&inside, finding)),
        }
    })?;
    let mark = FileStamp::of(&metadata);
    let (trust, digest) = (mark.trust(now), Sha256::digest(text.as_bytes()).into());
    if let Some(old) = &old
        && old.digest == digest
    {
        return Ok(CachedFile {
            mark,
            trust,
            ..old.clone()
        });
    }
    let mut pieces = super::read(&text, (name, &inside), namespace);
    if let Some(old) = &old {
        keep_equal(&mut pieces, &old.said.pieces);
    }
    Ok(CachedFile {
        mark,
        trust,
        digest,
        said: DecodedInput {
            file: path(),
            pieces: pieces.into(),
        },
    })
}

#[cfg(test)]
mod tests;
