//! Computes one digest over everything below some paths; it changes when they do. The number of
//! files and the bytes read of each are bounded.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::directory::GITLAB;

/// Contents are compared for files up to this size; larger ones by metadata.
const MAX_CONTENT_BYTES: u64 = 4 * 1024 * 1024;

const MAX_FILES: usize = 100_000;

/// A file may have changed within the granularity of its times, which is two seconds at most, without another
/// time. So its digest is kept only if its times were older when it was read.
const COARSE_TIMES: Duration = Duration::from_secs(4);

/// After this time every file is read again, because the clock of a file server may be wrong.
const MAX_DIGEST_AGE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Names, sizes, times and inodes.
    Metadata,
    /// Also the bytes, for file systems with coarse times.
    Contents,
}

pub(super) type Fingerprint = [u8; 32];

/// Inode, size, and times of modification and change.
type FileVersion = [i64; 6];

/// The digests of files, so that those that did not change are not read again.
pub(super) struct Digests {
    known: HashMap<PathBuf, (FileVersion, [u8; 32])>,
    since: Instant,
    /// [`COARSE_TIMES`], but in tests.
    pub(super) coarse_times: Duration,
    /// Files that were read.
    pub(super) read: usize,
}

impl Default for Digests {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            since: Instant::now(),
            coarse_times: COARSE_TIMES,
            read: 0,
        }
    }
}

struct FingerprintBuilder<'a> {
    digests: &'a mut Digests,
    before: HashMap<PathBuf, (FileVersion, [u8; 32])>,
    digest: Sha256,
    depth: Depth,
    visited: BTreeSet<PathBuf>,
    files: usize,
}

/// Fingerprints everything below `paths` that is not hidden, and `.gitlab`. Blocking.
pub(super) fn take(paths: &[PathBuf], depth: Depth, digests: &mut Digests) -> Fingerprint {
    // Files that are not met again are forgotten with it.
    let mut before = std::mem::take(&mut digests.known);
    if digests.since.elapsed() >= MAX_DIGEST_AGE {
        before.clear();
        digests.since = Instant::now();
    }
    let mut builder = FingerprintBuilder {
        digests,
        before,
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

impl FingerprintBuilder<'_> {
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
            // With the real path, a link that is switched to a folder with equal metadata is a change as well.
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
        let version: FileVersion = [
            metadata.ino().cast_signed(),
            metadata.len().cast_signed(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ];
        for number in version {
            self.field(&number.to_le_bytes());
        }
        // Regular files only: a read of a pipe would block.
        if self.depth == Depth::Contents && metadata.is_file() && metadata.len() <= MAX_CONTENT_BYTES {
            match self.digest(path, version) {
                Ok(digest) => self.field(&digest),
                Err(error) => self.absent(&error),
            }
        }
    }

    fn digest(&mut self, path: &Path, version: FileVersion) -> io::Result<[u8; 32]> {
        if let Some((known, digest)) = self.before.remove(path)
            && known == version
        {
            self.digests.known.insert(path.to_owned(), (version, digest));
            return Ok(digest);
        }
        let [_, _, modified, _, changed, _] = version;
        let latest = UNIX_EPOCH + Duration::from_secs(modified.max(changed).try_into().unwrap_or(0));
        // A time in the future makes the age zero, so such a digest is never kept.
        let age = SystemTime::now().duration_since(latest).unwrap_or_default();
        let digest = Sha256::digest(fs::read(path)?).into();
        self.digests.read = self.digests.read.saturating_add(1);
        if age >= self.digests.coarse_times {
            self.digests.known.insert(path.to_owned(), (version, digest));
        }
        Ok(digest)
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
