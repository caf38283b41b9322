//! Finds the object files of a folder and reads them whole. Files above the size bound are refused;
//! hidden files are skipped, except the configurations of agents.

use std::collections::HashSet;
use std::fs::{self, DirEntry, File, Metadata};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use rustc_hash::FxBuildHasher;

use tollgate_core::diagnostic::{Diagnostic, Location};

const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
const MAX_TOTAL_BYTES: u64 = 512 * 1024 * 1024;
const MAX_FILES: usize = 20_000;
const MAX_DEPTH: usize = 16;
/// The one hidden folder that is searched.
pub(crate) const GITLAB: &str = ".gitlab";

/// Why a file cannot be read.
#[derive(Debug)]
pub(super) struct UnreadableFile {
    /// Line from 1, 0 for the whole file.
    pub(super) line: u32,
    /// What is wrong.
    pub(super) message: String,
    /// What to do.
    pub(super) hint: Option<&'static str>,
}

impl UnreadableFile {
    fn whole(message: String, hint: Option<&'static str>) -> Self {
        Self { line: 0, message, hint }
    }
}

/// A file to read.
#[derive(Debug)]
pub(super) struct FoundFile {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Its metadata when it was found.
    pub(super) metadata: Metadata,
}

/// A folder that is searched: its path as named, and its real path.
#[derive(Clone, Copy)]
struct Folder<'a> {
    named: &'a Path,
    real: &'a Path,
}

struct Walk<'a> {
    files: Vec<FoundFile>,
    visited: HashSet<PathBuf, FxBuildHasher>,
    bytes: u64,
    findings: &'a mut Vec<Diagnostic>,
}

/// The files below `folder` to read, in path order.
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
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries: Vec<(PathBuf, bool)> = match entries {
            Ok(entries) => {
                let is_link = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
                entries.iter().map(|entry| (entry.path(), is_link(entry))).collect()
            }
            Err(error) => return self.refuse(folder, format!("folder cannot be read: {error}")),
        };
        entries.sort();
        let folder = Folder {
            named: folder,
            real: &real,
        };
        for (path, is_link) in entries {
            // Resolving the real path of each of thousands of files takes longer than everything
            // else.
            let inside = (!is_link).then_some(folder);
            self.entry(path, inside, depth);
        }
    }

    /// `inside` is the folder, unless the entry is a link out of it.
    fn entry(&mut self, path: PathBuf, inside: Option<Folder<'_>>, depth: usize) {
        // A name that is not UTF-8 cannot end in one of our extensions.
        let Some(name) = path.file_name().and_then(|name| name.to_str()).map(str::to_owned) else {
            return;
        };
        if name == GITLAB {
            return self.gitlab(&path.join("agents"));
        }
        if name.starts_with('.') || self.files.len() > MAX_FILES {
            return;
        }
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => self.folder(&path, depth.saturating_add(1)),
            Ok(metadata) if metadata.is_file() && is_object_file(&name) => self.file(path, inside, metadata),
            Ok(_) => {}
            // The file was removed meanwhile. But a link whose target is missing may have led to a
            // folder of objects, which must not vanish silently.
            Err(error) if error.kind() == ErrorKind::NotFound && inside.is_some() => {}
            Err(error) => self.refuse(&path, format!("cannot be read: {error}")),
        }
    }

    /// Finds the configurations of agents, `<name>/config.yaml`. Nothing else in a `.gitlab` folder
    /// concerns the gateway.
    fn gitlab(&mut self, agents: &Path) {
        if !agents.is_dir() {
            return;
        }
        let entries = fs::read_dir(agents).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut paths: Vec<PathBuf> = match entries {
            Ok(entries) => entries.into_iter().map(|entry| entry.path()).collect(),
            Err(error) => return self.refuse(agents, format!("folder cannot be read: {error}")),
        };
        paths.sort();
        for path in paths {
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_none_or(|name| name.starts_with('.')) || self.files.len() > MAX_FILES {
                continue;
            }
            let path = path.join("config.yaml");
            if let Ok(metadata) = fs::metadata(&path)
                && metadata.is_file()
            {
                self.file(path, None, metadata);
            }
        }
    }

    fn file(&mut self, path: PathBuf, inside: Option<Folder<'_>>, metadata: Metadata) {
        let real = inside.and_then(|folder| Some(folder.real.join(path.strip_prefix(folder.named).ok()?)));
        let real = real.unwrap_or_else(|| path.canonicalize().unwrap_or_else(|_| path.clone()));
        if self.visited.insert(real) {
            self.bytes = self.bytes.saturating_add(metadata.len());
            self.files.push(FoundFile { path, metadata });
        }
    }
}

/// Whether a file is read, by its name.
fn is_object_file(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let object = matches!(extension.to_ascii_lowercase().as_str(), "yaml" | "yml" | "json");
    // `#name#` is an unsaved Emacs buffer; kustomize's own file holds no object.
    let other = name.starts_with('#') || matches!(name, "kustomization.yaml" | "kustomization.yml");
    object && !other
}

/// Reads a file and its metadata from before; refuses it if it changes meanwhile.
pub(super) fn read(path: &Path) -> Result<(String, Metadata), UnreadableFile> {
    let failed = |error: std::io::Error| UnreadableFile::whole(format!("cannot be read: {error}"), None);
    let mut file = File::open(path).map_err(failed)?;
    let before = file.metadata().map_err(failed)?;
    if before.len() > MAX_FILE_BYTES {
        let message = format!("file has {} bytes, at most {MAX_FILE_BYTES} are read", before.len());
        return Err(UnreadableFile::whole(message, None));
    }
    let mut bytes = Vec::new();
    Read::by_ref(&mut file)
        .take(MAX_FILE_BYTES.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let after = fs::metadata(path).map_err(failed)?;
    let read = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if read != after.len() || before.modified().ok() != after.modified().ok() {
        let hint = Some("write a new file beside it and rename it");
        return Err(UnreadableFile::whole("file changed while it was read".to_owned(), hint));
    }
    if bytes.is_empty() {
        let hint = Some("remove the file if that is meant; a file being written looks like this");
        return Err(UnreadableFile::whole("file is empty".to_owned(), hint));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let breaks = error
            .as_bytes()
            .iter()
            .take(good)
            .filter(|byte| **byte == b'\n')
            .count();
        let line = u32::try_from(breaks).unwrap_or(u32::MAX).saturating_add(1);
        UnreadableFile {
            line,
            message: "text is not UTF-8".to_owned(),
            hint: None,
        }
    })?;
    Ok((text, before))
}
