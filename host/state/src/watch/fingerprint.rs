//! Computes one digest over everything below some paths; it changes when they do. The number of
//! files and the bytes read of each are bounded.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::directory::GITLAB;

/// Contents are compared for files up to this size; larger ones by metadata.
const MAX_CONTENT_BYTES: u64 = 4 * 1024 * 1024;

const MAX_FILES: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Names, sizes, times and inodes.
    Metadata,
    /// Also the bytes, for file systems with coarse times.
    Contents,
}

pub(super) type Fingerprint = [u8; 32];

struct FingerprintBuilder {
    digest: Sha256,
    depth: Depth,
    visited: BTreeSet<PathBuf>,
    files: usize,
}

/// Fingerprints everything below `paths` that is not hidden, and `.gitlab`. Blocking.
pub(super) fn take(paths: &[PathBuf], depth: Depth) -> Fingerprint {
    let mut builder = FingerprintBuilder {
        digest: Sha256::new(),
        depth,
        visited: BTreeSet::new(),
        files: 0,
    };
    for path in paths {
        builder.path(path);
    }
    builder.digest.finalize().into()
}

impl FingerprintBuilder {
    fn path(&mut self, path: &Path) {
        self.files = self.files.saturating_add(1);
        if self.files > MAX_FILES {
            return;
        }
        self.field(path.as_os_str().as_encoded_bytes());
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.folder(path),
            Ok(metadata) => self.file(path, &metadata),
            Err(error) => self.absent(&error),
        }
    }

    fn folder(&mut self, path: &Path) {
        match path.canonicalize() {
            Ok(real) if self.visited.insert(real.clone()) => self.field(real.as_os_str().as_encoded_bytes()),
            // A link that forms a loop.
            Ok(_) => return,
            Err(error) => return self.absent(&error),
        }
        match fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Ok(entries) => {
                let shown = |path: &PathBuf| {
                    let name = path.file_name();
                    name.is_none_or(|name| !name.as_encoded_bytes().starts_with(b".") || name == GITLAB)
                };
                let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(shown).collect();
                paths.sort();
                for path in paths {
                    self.path(&path);
                }
            }
            Err(error) => self.absent(&error),
        }
    }

    fn file(&mut self, path: &Path, metadata: &Metadata) {
        use std::os::unix::fs::MetadataExt;
        for number in [metadata.ino(), metadata.len()] {
            self.field(&number.to_le_bytes());
        }
        for time in [
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ] {
            self.field(&time.to_le_bytes());
        }
        if self.depth == Depth::Contents && metadata.is_file() && metadata.len() <= MAX_CONTENT_BYTES {
            match fs::read(path) {
                Ok(bytes) => self.field(&Sha256::digest(bytes)),
                Err(error) => self.absent(&error),
            }
        }
    }

    fn absent(&mut self, error: &io::Error) {
        self.field(format!("{:?}", error.kind()).as_bytes());
    }

    /// The length is part of the digest, so that adjacent fields stay distinct.
    fn field(&mut self, bytes: &[u8]) {
        self.digest.update(bytes.len().to_le_bytes());
        self.digest.update(bytes);
    }
}
