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
use crate::Resources;
use crate::decode::last_known_good::{self, DecodedInput};
use crate::decode::read::{reuse_equal, unreadable};
use crate::decode::{Collector, LoadMemo, collect_ignoring_errors};
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location};

/// A file written within this time before it was read may have been written again since, without a
/// trace in its times: FAT has a resolution of two seconds.
const RACY: Duration = Duration::from_secs(3);

/// The decoded files of one folder, and the result of its last load.
#[derive(Debug, Default)]
pub(super) struct FolderCache {
    files: HashMap<PathBuf, CachedFile, FxBuildHasher>,
    memo: LoadMemo,
    last: Option<LastLoad>,
    /// What each file last decoded to without mistakes.
    last_good: Vec<DecodedInput>,
}

/// The result of the last load.
#[derive(Debug)]
struct LastLoad {
    /// What each file decoded to, in the order of the files.
    decoded: Vec<DecodedInput>,
    resources: Option<Arc<Resources>>,
    /// The last known good resources, if the load was refused.
    last_known_good: Option<Arc<Resources>>,
    findings: Vec<Diagnostic>,
    /// How many of the findings are about the folder rather than a file.
    walk_findings: usize,
}

/// A decoded file.
#[derive(Clone, Debug)]
struct CachedFile {
    stamp: FileStamp,
    change_check: ChangeCheck,
    digest: [u8; 32],
    decoded: DecodedInput,
}

/// What proves that a file is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeCheck {
    /// An equal [`FileStamp`].
    Metadata,
    /// Only equal bytes.
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
    pub(super) fn load(
        &mut self,
        folder: &Path,
        namespace: &str,
        overlays: &[FileOverlay<'_>],
    ) -> Loaded<Arc<Resources>> {
        let mut findings = Vec::new();
        let found = walk::files(folder, &mut findings);
        let mut files = HashMap::with_capacity_and_hasher(found.len(), FxBuildHasher);
        let mut decoded = Vec::with_capacity(found.len());
        for found in found.into_iter().filter(|found| !is_overlaid(overlays, &found.path)) {
            // Folders above the state's folder say nothing about its content.
            let inside = found.path.strip_prefix(folder).unwrap_or(&found.path).to_owned();
            let old = self.files.remove(&found.path);
            match file(&found, &inside, (namespace, old)) {
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
                items: super::read(text, (name, &inside), namespace).into(),
            });
        }
        self.files = files;
        self.build_resources(decoded, findings, namespace)
    }

    /// See [`crate::source::Source::last_known_good`].
    pub(super) fn last_known_good(&self) -> Option<Arc<Resources>> {
        self.last.as_ref()?.last_known_good.clone()
    }

    fn build_resources(
        &mut self,
        decoded: Vec<DecodedInput>,
        mut findings: Vec<Diagnostic>,
        namespace: &str,
    ) -> Loaded<Arc<Resources>> {
        if let Some(last) = &self.last
            && last.findings.get(..last.walk_findings) == Some(findings.as_slice())
            && decoded.len() == last.decoded.len()
            && decoded
                .iter()
                .zip(&last.decoded)
                .all(|(now, then)| Arc::ptr_eq(&now.items, &then.items))
        {
            return Loaded {
                value: last.resources.clone(),
                diagnostics: last.findings.clone(),
            };
        }
        let walk_findings = findings.len();
        let mut collector = Collector::new(namespace);
        for decoded in &decoded {
            collector.add(&decoded.items);
        }
        let is_whole = !findings.iter().any(Diagnostic::is_error);
        let (resources, more) = collector.finish(&mut self.memo);
        findings.extend(more);
        let loaded = Loaded::new(Arc::new(resources), findings);
        let last_known_good = match &loaded.value {
            Some(_) => {
                self.last_good.clone_from(&decoded);
                None
            }
            None => {
                let completeness = if is_whole {
                    last_known_good::Completeness::Complete
                } else {
                    last_known_good::Completeness::Partial
                };
                self.last_good = last_known_good::last_known_good(&decoded, &self.last_good, completeness);
                Some(collect_ignoring_errors(&self.last_good, namespace, &self.memo))
            }
        };
        self.last = Some(LastLoad {
            decoded,
            last_known_good,
            resources: loaded.value.clone(),
            findings: loaded.diagnostics.clone(),
            walk_findings,
        });
        loaded
    }
}

fn is_overlaid(overlays: &[FileOverlay<'_>], path: &Path) -> bool {
    overlays.iter().any(|overlay| overlay.path == path)
}

/// Reads a file. A file that cannot be read is read again next time.
fn file(
    found: &FoundFile,
    inside: &Path,
    (namespace, old): (&str, Option<CachedFile>),
) -> Result<CachedFile, DecodedInput> {
    let stamp = FileStamp::of(&found.metadata);
    if let Some(old) = &old
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
    let (text, metadata) = walk::read(&found.path).map_err(|refused| {
        let finding = Diagnostic::error(Location::new(Arc::clone(&name), refused.line), refused.message);
        let finding = match refused.hint {
            Some(hint) => finding.with_hint(hint),
            None => finding,
        };
        DecodedInput {
            file: path(),
            items: Arc::from(unreadable(&inside, finding)),
        }
    })?;
    let stamp = FileStamp::of(&metadata);
    let (change_check, digest) = (stamp.change_check(now), Sha256::digest(text.as_bytes()).into());
    if let Some(old) = &old
        && old.digest == digest
    {
        return Ok(CachedFile {
            stamp,
            change_check,
            ..old.clone()
        });
    }
    let mut items = super::read(&text, (name, &inside), namespace);
    if let Some(old) = &old {
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
