//! Loads Kubernetes YAML files from a folder, such as a Git checkout or a mounted ConfigMap.
//!
//! Invariant: a folder loads as a whole or not at all, so the last good state stays in force while
//! one file is bad.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_core::diagnostic::Loaded;
use tollgate_objects::Resources;
use tollgate_objects::decode::configured_agent;

mod cache;
mod walk;

pub(crate) use cache::FolderCache;
pub(crate) use walk::GITLAB;

/// Reads every `*.yaml`, `*.yml` and `*.json` file below `folder`.
///
/// - Subfolders are read up to 16 deep. Hidden files and folders (also `..data` of a mounted
///   ConfigMap), editor copies and `kustomization.yaml` are left out. In a `.gitlab` folder only
///   `agents/<name>/config.yaml` is read. Symbolic links are followed; each real file is read once.
/// - `agents/<name>/config.yaml` anywhere is not read as an object but as GitLab's configuration of
///   the Agent `<name>`.
/// - A file is at most 64 MiB, all files together 512 MiB, at most 20,000 files.
/// - `namespace` is the control plane's. Objects without a namespace belong to it. Objects of other
///   namespaces are left out, except Applications and ApplicationSets.
///
/// Blocking; call it outside the request path.
///
/// Errors are findings: unreadable or oversized files, text that is not UTF-8,
/// YAML mistakes, wrong types, missing names, duplicates, bad base64, files
/// that changed while they were read or are empty.
pub fn load(folder: &Path, namespace: &str) -> Loaded<Resources> {
    load_with(folder, namespace, &[])
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FileOverlay<'a> {
    /// Its path, starting with the folder's path as it was given.
    pub(crate) path: &'a Path,
    /// Its text; `None` if the file would be deleted.
    pub(crate) text: Option<&'a str>,
}

/// Reads the folder like [`load`], with `overlays` in place of some files.
pub(crate) fn load_with(folder: &Path, namespace: &str, overlays: &[FileOverlay<'_>]) -> Loaded<Resources> {
    let loaded = FolderCache::default().load(folder, namespace, overlays);
    loaded.map(Arc::unwrap_or_clone)
}

/// The files that [`load`] reads objects from, in path order.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let found = walk::files(folder, &mut Vec::new());
    let mut files: Vec<PathBuf> = found.into_iter().map(|found| found.path).collect();
    let is_object = |path: &PathBuf| {
        let inside = path.strip_prefix(folder).unwrap_or(path).display().to_string();
        configured_agent(&inside).is_none()
    };
    files.retain(is_object);
    files
}

#[cfg(test)]
mod tests;
