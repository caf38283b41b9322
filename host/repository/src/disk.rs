//! The private folder of fetched repositories, and the disk space it may use.
//!
//! Invariant: the folder never holds more bytes than the settings allow, including what is being
//! fetched or read. Folders that killed processes left behind are removed.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;
use crate::error::sanitized;

/// Prefix of the folders of all processes.
const PREFIX: &str = "tollgate-git-";

/// How often to retry when another process removes the new folder as left behind.
const TRIES: u32 = 5;

/// This process's folder, locked while the process lives.
#[derive(Debug)]
pub(crate) struct FetchDirectory {
    folder: tempfile::TempDir,
    /// The kernel releases it when the process dies.
    _lock: File,
}

impl FetchDirectory {
    /// Creates a folder below `parent`, and removes those that killed processes left there.
    pub(crate) fn make(parent: &Path) -> Result<Self, Error> {
        clear_left(parent);
        for _ in 0..TRIES {
            // SECURITY: content of private repositories must stay private here. By default the
            // umask would decide the folder's mode.
            let folder = tempfile::Builder::new()
                .prefix(PREFIX)
                .permissions(Permissions::from_mode(0o700))
                .tempdir_in(parent)
                .map_err(|error| disk_error(&error))?;
            let lock = File::open(folder.path()).and_then(|lock| {
                lock.try_lock()?;
                Ok(lock)
            });
            // Another process may have started at the same time and removed the folder.
            if let Ok(lock) = lock
                && folder.path().exists()
            {
                return Ok(Self { folder, _lock: lock });
            }
        }
        Err(Error::Disk {
            reason: "its folder is taken away again and again".to_owned(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn clear_left(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // A symbolic link is not a directory here.
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let is_left = File::open(entry.path()).is_ok_and(|lock| lock.try_lock().is_ok());
        if is_left && let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(%error, "what an earlier process fetched of repositories cannot be removed");
        }
    }
}

/// The disk space used in the folder, and its limit, in bytes.
#[derive(Debug)]
pub(crate) struct DiskQuota {
    used: AtomicU64,
    allowed: u64,
}

impl DiskQuota {
    pub(crate) fn new(allowed: u64) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicU64::new(0),
            allowed,
        })
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.allowed
    }
}

/// The folder of a fetch, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    quota: Arc<DiskQuota>,
    /// The disk space it uses.
    pub(crate) bytes: u64,
}

impl Folder {
    pub(crate) fn make(parent: &Path, quota: &Arc<DiskQuota>) -> Result<Self, Error> {
        let folder = tempfile::tempdir_in(parent).map_err(|error| disk_error(&error))?;
        Ok(Self {
            path: folder.keep(),
            quota: Arc::clone(quota),
            bytes: 0,
        })
    }

    pub(crate) fn set_bytes(&mut self, bytes: u64) {
        self.quota.used.fetch_add(bytes, Ordering::Relaxed);
        self.quota.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "what was fetched of a repository cannot be removed");
        }
        self.set_bytes(0);
    }
}

/// Total size of all files below a folder, in bytes.
pub(crate) fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.fold(0, u64::saturating_add)
}

pub(crate) fn disk_error(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull,
        kind => Error::Disk {
            reason: kind.to_string(),
        },
    }
}

/// Converts an error of the library while it writes to disk; its text contains the system's own.
///
/// Source: `std::io::Error`, which ends in `(os error 28)` for `ENOSPC` and in `(os error 122)`
/// for `EDQUOT`.
pub(crate) fn library_disk_error(text: &str) -> Error {
    if ["(os error 28)", "(os error 122)"].iter().any(|end| text.contains(end)) {
        return Error::DiskFull;
    }
    Error::Disk {
        reason: sanitized(text),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{DiskQuota, FetchDirectory, Folder, PREFIX, disk_error, library_disk_error};
    use crate::Error;

    #[test]
    fn only_directories_of_killed_processes_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(format!("{PREFIX}left"));
        let other = parent.path().join("other");
        for folder in [&left, &other] {
            fs::create_dir_all(folder.join("1")).unwrap();
        }
        let link = parent.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let first = FetchDirectory::make(parent.path()).unwrap();
        assert!(!left.exists());
        let second = FetchDirectory::make(parent.path()).unwrap();
        assert!(first.path().exists() && second.path().exists());
        assert!(other.join("1").exists() && link.exists(), "nothing else is touched");
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn the_quota_counts_folders_until_they_are_dropped() {
        let quota = DiskQuota::new(10);
        let parent = tempfile::tempdir().unwrap();
        let make = || Folder::make(parent.path(), &quota).unwrap();
        let (mut one, mut other) = (make(), make());
        one.set_bytes(6);
        other.set_bytes(4);
        assert!(!quota.is_exceeded());
        other.set_bytes(5);
        assert!(quota.is_exceeded());
        let path = one.path.clone();
        drop(one);
        assert!(!quota.is_exceeded() && !path.exists());
        assert_eq!(other.bytes, 5);
    }

    #[test]
    fn a_full_disk_is_distinguished_from_other_disk_errors() {
        let full = std::io::Error::from_raw_os_error(28);
        assert_eq!(disk_error(&full), Error::DiskFull);
        assert_eq!(library_disk_error(&format!("cannot write: {full}")), Error::DiskFull);
        let broken = std::io::Error::from_raw_os_error(5);
        assert!(matches!(disk_error(&broken), Error::Disk { .. }));
        assert!(matches!(library_disk_error(&broken.to_string()), Error::Disk { .. }));
    }
}
