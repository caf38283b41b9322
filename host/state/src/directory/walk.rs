//! Finds the object files of a folder and reads them whole. Files above the size bound are refused;
//! hidden files are skipped, except the configurations of agents.

use std::collections::HashSet;
use std::fs::{self, DirEntry, File, Metadata};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use tollgate_core::diagnostic::{Diagnostic, Location};

const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
const MAX_TOTAL_BYTES: u64 = 512 * 1024 * 1024;
const MAX_FILES: usize = 20_000;
const MAX_DEPTH: usize = 16;
/// The one hidden folder that is searched.
pub(crate) const GITLAB: &str = ".gitlab";

#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) path: PathBuf,
    pub(super) metadata: Metadata,
}

struct Walk<'a> {
    files: Vec<FoundFile>,
    visited: HashSet<PathBuf, FxBuildHasher>,
    bytes: u64,
    findings: &'a mut Vec<Diagnostic>,
}

pub(super) fn files(folder: &Path, findings: &mut Vec<Diagnostic>) -> Vec<FoundFile> {
    let mut walk = Walk {
        files: Vec::new(),
        visited: HashSet::default(),
        bytes: 0,
        findings,
    };
    walk.folder(folder, 0);
    if walk.files.len() > MAX_FILES {
        let message = format!("{} files, at most {MAX_FILES} are read", walk.files.len());
        walk.refuse(folder, message);
    }
    if walk.bytes > MAX_TOTAL_BYTES {
        let message = format!("{} bytes in all files, at most {MAX_TOTAL_BYTES} are read", walk.bytes);
        walk.refuse(folder, message);
        // Not even read: the bytes are what the bound is about.
        return Vec::new();
    }
    walk.files
}

impl Walk<'_> {
    fn refuse(&mut self, path: &Path, message: String) {
        let location = Location::new(path.display().to_string(), 0);
        self.findings.push(Diagnostic::error(location, message));
    }

    fn folder(&mut self, folder: &Path, depth: usize) {
        if depth > MAX_DEPTH {
            return self.refuse(folder, format!("folders nest deeper than {MAX_DEPTH}"));
        }
        // Each real folder is read once, so links in a loop end here.
        let real = match folder.canonicalize() {
            Ok(real) if self.visited.contains(&real) => return,
            Ok(real) => real,
            Err(error) => return self.refuse(folder, format!("folder cannot be read: {error}")),
        };
        self.visited.insert(real.clone());
        for entry in self.entries(folder) {
            // Resolving the real path of each of thousands of files takes longer than everything
            // else.
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let real = (!is_link).then(|| real.join(entry.file_name()));
            self.entry(entry.path(), real, depth);
        }
    }

    /// The entries of a folder, in path order.
    fn entries(&mut self, folder: &Path) -> Vec<DirEntry> {
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries = entries.unwrap_or_else(|error| {
            self.refuse(folder, format!("folder cannot be read: {error}"));
            Vec::new()
        });
        entries.sort_by_cached_key(DirEntry::path);
        entries
    }

    /// `real` is the real path, unless the entry is a link.
    fn entry(&mut self, path: PathBuf, real: Option<PathBuf>, depth: usize) {
        // A name that is not UTF-8 cannot end in one of our extensions.
        let Some(name) = path.file_name().and_then(|name| name.to_str()).map(str::to_owned) else {
            return;
        };
        if name == GITLAB {
            return self.gitlab(&path.join("agents"));
        }
        // One file too many is enough to refuse the folder, so the walk ends here.
        if name.starts_with('.') || self.files.len() > MAX_FILES {
            return;
        }
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => self.folder(&path, depth.saturating_add(1)),
            Ok(metadata) if metadata.is_file() && is_object_file(&name) => self.file(path, real, metadata),
            Ok(_) => {}
            // The file was removed meanwhile. But a link whose target is missing may have led to a
            // folder of objects, which must not vanish silently.
            Err(error) if error.kind() == ErrorKind::NotFound && real.is_some() => {}
            Err(error) => self.refuse(&path, format!("cannot be read: {error}")),
        }
    }

    /// Finds the configurations of agents, `<name>/config.yaml`. Nothing else in a `.gitlab` folder
    /// concerns the gateway.
    fn gitlab(&mut self, agents: &Path) {
        if !agents.is_dir() {
            return;
        }
        for entry in self.entries(agents) {
            let name = entry.file_name();
            if name.to_str().is_none_or(|name| name.starts_with('.')) || self.files.len() > MAX_FILES {
                continue;
            }
            let path = entry.path().join("config.yaml");
            if let Ok(metadata) = fs::metadata(&path)
                && metadata.is_file()
            {
                self.file(path, None, metadata);
            }
        }
    }

    fn file(&mut self, path: PathBuf, real: Option<PathBuf>, metadata: Metadata) {
        let real = real.unwrap_or_else(|| path.canonicalize().unwrap_or_else(|_| path.clone()));
        if self.visited.insert(real) {
            self.bytes = self.bytes.saturating_add(metadata.len());
            self.files.push(FoundFile { path, metadata });
        }
    }
}

fn is_object_file(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let object = matches!(extension.to_ascii_lowercase().as_str(), "yaml" | "yml" | "json");
    // `#name#` is an unsaved Emacs buffer; kustomize's own file holds no object.
    let other = name.starts_with('#') || matches!(name, "kustomization.yaml" | "kustomization.yml");
    object && !other
}

/// Reads a file and its metadata from before; refuses it if it changes meanwhile.
pub(super) fn read(path: &Path, name: &Arc<str>) -> Result<(String, Metadata), Diagnostic> {
    let refused = |line, message: String| Diagnostic::error(Location::new(Arc::clone(name), line), message);
    let failed = |error: std::io::Error| refused(0, format!("cannot be read: {error}"));
    let file = File::open(path).map_err(failed)?;
    let before = file.metadata().map_err(failed)?;
    if before.len() > MAX_FILE_BYTES {
        let message = format!("file has {} bytes, at most {MAX_FILE_BYTES} are read", before.len());
        return Err(refused(0, message));
    }
    let mut bytes = Vec::new();
    // The file can grow while it is read.
    let mut bounded = file.take(MAX_FILE_BYTES.saturating_add(1));
    bounded.read_to_end(&mut bytes).map_err(failed)?;
    let after = fs::metadata(path).map_err(failed)?;
    let read = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if read != after.len() || before.modified().ok() != after.modified().ok() {
        let finding = refused(0, "file changed while it was read".to_owned());
        return Err(finding.with_hint("write a new file beside it and rename it"));
    }
    if bytes.is_empty() {
        let hint = "remove the file if that is meant; a file being written looks like this";
        return Err(refused(0, "file is empty".to_owned()).with_hint(hint));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        let breaks = good.filter(|byte| **byte == b'\n').count();
        let line = u32::try_from(breaks).unwrap_or(u32::MAX).saturating_add(1);
        refused(line, "text is not UTF-8".to_owned())
    })?;
    Ok((text, before))
}
