//! The folder of what was fetched, and the room in it.
//!
//! In: a parent folder, bytes that are written. Out: a folder of this process alone,
//! whether there is room. Never: more bytes than the settings allow, those included that
//! are being fetched or read; what a killed process left.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Error;
use super::error::quoted;

/// How the folders of processes begin.
const PREFIX: &str = "tollgate-git-";

/// How often a folder is made that another process took for one that was left.
const TRIES: u32 = 5;

/// A folder of this process, locked while it lives.
#[derive(Debug)]
pub(super) struct Home {
    folder: tempfile::TempDir,
    /// The kernel lets go of it when the process dies.
    _lock: File,
}

impl Home {
    /// A new folder below `parent`; those that killed processes left there go.
    pub(super) fn make(parent: &Path) -> Result<Self, Error> {
        clear_left(parent);
        for _ in 0..TRIES {
            // SECURITY: what is private in a repository is private here; by itself the
            // folder gets what the umask leaves.
            let folder = tempfile::Builder::new()
                .prefix(PREFIX)
                .permissions(Permissions::from_mode(0o700))
                .tempdir_in(parent)
                .map_err(|error| failed(&error))?;
            let lock = File::open(folder.path()).and_then(|lock| {
                lock.try_lock()?;
                Ok(lock)
            });
            // Another process may have begun just then, and have cleared it away.
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

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders whose process is gone.
fn clear_left(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // A link is none.
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let is_left = File::open(entry.path()).is_ok_and(|lock| lock.try_lock().is_ok());
        if is_left && let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(%error, "what an earlier process fetched of repositories cannot be removed");
        }
    }
}

/// Bytes in the folder, and how many there may be.
#[derive(Debug)]
pub(super) struct Room {
    used: AtomicU64,
    allowed: u64,
}

impl Room {
    pub(super) fn new(allowed: u64) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicU64::new(0),
            allowed,
        })
    }

    /// Whether there are more bytes than there may be.
    pub(super) fn is_exceeded(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.allowed
    }
}

/// A part of the room, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Part {
    room: Arc<Room>,
    bytes: u64,
}

impl Part {
    pub(super) fn none(room: &Arc<Room>) -> Self {
        Self {
            room: Arc::clone(room),
            bytes: 0,
        }
    }

    /// Counts `bytes` instead of what was counted.
    pub(super) fn set(&mut self, bytes: u64) {
        self.room.used.fetch_add(bytes, Ordering::Relaxed);
        self.room.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A folder of a fetch, gone unless it is kept.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn make(parent: &Path) -> Result<Self, Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let path = parent.join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
        fs::create_dir(&path).map_err(|error| failed(&error))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Bytes of all files below a folder.
pub(super) fn bytes_below(folder: &Path) -> u64 {
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

/// An error of the file system, without its path.
pub(super) fn failed(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full,
        kind => Error::Disk {
            reason: kind.to_string(),
        },
    }
}

/// An error of the library on its way to the disk; its text has the system's own.
///
/// Source: `std::io::Error`, which ends in `(os error 28)` for `ENOSPC` and in
/// `(os error 122)` for `EDQUOT`.
pub(super) fn failed_in_library(text: &str) -> Error {
    if ["(os error 28)", "(os error 122)"].iter().any(|end| text.contains(end)) {
        return Error::Full;
    }
    Error::Disk { reason: quoted(text) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Home, PREFIX, Part, Room, failed, failed_in_library};
    use crate::repository::Error;

    #[test]
    fn what_a_killed_process_left_goes_and_what_a_living_one_has_stays() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(format!("{PREFIX}left"));
        let other = parent.path().join("other");
        for folder in [&left, &other] {
            fs::create_dir_all(folder.join("1")).unwrap();
        }
        let link = parent.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let first = Home::make(parent.path()).unwrap();
        assert!(!left.exists());
        let second = Home::make(parent.path()).unwrap();
        assert!(first.path().exists() && second.path().exists());
        assert!(other.join("1").exists() && link.exists(), "nothing else is touched");
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn parts_are_counted_and_given_back() {
        let room = Room::new(10);
        let (mut one, mut other) = (Part::none(&room), Part::none(&room));
        one.set(6);
        other.set(4);
        assert!(!room.is_exceeded());
        other.set(5);
        assert!(room.is_exceeded());
        drop(one);
        assert!(!room.is_exceeded());
        assert_eq!(other.bytes(), 5);
    }

    #[test]
    fn a_full_disk_is_told_from_a_broken_one() {
        let full = std::io::Error::from_raw_os_error(28);
        assert_eq!(failed(&full), Error::Full);
        assert_eq!(failed_in_library(&format!("cannot write: {full}")), Error::Full);
        let broken = std::io::Error::from_raw_os_error(5);
        assert!(matches!(failed(&broken), Error::Disk { .. }));
        assert!(matches!(failed_in_library(&broken.to_string()), Error::Disk { .. }));
    }
}
