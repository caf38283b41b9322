//! The source that loads a folder of files again when they change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;

use super::Source;
use crate::directory::FolderCache;
use crate::watch::{FileEvents, Timing, Watch, watch};
use crate::write::{Error, FolderWriter, Writer, lock_for_load};
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_objects::{ApplicationSetStatuses, Resources};

/// The [`Source`] that loads a folder of YAML files.
#[derive(Debug)]
pub struct DirectorySource {
    folder: PathBuf,
    namespace: String,
    cache: Mutex<FolderCache>,
}

impl DirectorySource {
    /// A source that reads `folder` as [`directory::load`](crate::directory::load) does; `namespace` is the control plane's.
    pub fn new(folder: &Path, namespace: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            namespace: namespace.to_owned(),
            cache: Mutex::default(),
        }
    }
}

impl Source for DirectorySource {
    /// Like [`directory::load`](crate::directory::load), but unchanged files are not parsed again, and not even read again if their
    /// times can be trusted.
    fn load(&self) -> Loaded<Arc<Resources>> {
        // While this lock is held, no writer changes several files.
        let _shared = match lock_for_load(&self.folder) {
            Ok(shared) => shared,
            Err(finding) => return Loaded::refused(vec![finding]),
        };
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.load(&self.folder, &self.namespace, &[])
    }

    fn missing(&self) -> Vec<Diagnostic> {
        Vec::new()
    }

    fn last_known_good(&self) -> Option<Arc<Resources>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.history.last_known_good()
    }

    fn health(&self) -> Vec<Diagnostic> {
        Vec::new()
    }

    fn watch(&self) -> BoxFuture<'_, Watch> {
        let paths = vec![self.folder.clone()];
        Box::pin(watch(paths, Timing::default(), FileEvents::IfAvailable))
    }

    fn application_set_statuses(&self) -> Option<tokio::sync::watch::Receiver<Arc<ApplicationSetStatuses>>> {
        None
    }

    fn writer(&self) -> Result<Writer, Error> {
        Ok(Writer::Folder(FolderWriter::new(&self.folder, &self.namespace)))
    }
}

#[cfg(test)]
mod tests;
