//! Reads the files of one bundle from a folder as texts of bounded size. Nothing is parsed here.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::front::Front;
use crate::scan;
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location};
use tollgate_policy::impersonate::IMPERSONATION_FILE;

const MAX_FILES: usize = 64;
/// Most entries of a folder, those that are not used included.
const MAX_ENTRIES: usize = 4 * MAX_FILES;
const MAX_POLICY_BYTES: usize = 1024 * 1024;
const MAX_DATA_BYTES: usize = 8 * 1024 * 1024;
const MAX_CASES_BYTES: usize = 4 * 1024 * 1024;
const MAX_CONDITION_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileKind {
    /// `*.rego`.
    Policy,
    /// `*.cel.yaml`.
    Condition,
    /// [`IMPERSONATION_FILE`], for the fronts that have one.
    Mapping,
    /// `data/*.yaml`, `data/*.json`. Policies see them as `data.<file name>`.
    Data,
    /// `cases.yaml`.
    Cases,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct File {
    pub(crate) kind: FileKind,
    /// Path as the operator would type it.
    pub(crate) path: String,
    pub(crate) stem: String,
    pub(crate) text: String,
}

impl File {
    /// Its name below the bundle's folder.
    fn name(&self) -> &str {
        let separator = match self.kind {
            FileKind::Data => "/data/",
            FileKind::Policy | FileKind::Condition | FileKind::Mapping | FileKind::Cases => "/",
        };
        let start = self.path.rfind(separator).map_or(0, |at| at.saturating_add(1));
        self.path.get(start..).unwrap_or(&self.path)
    }
}

/// All files of one bundle, in name order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BundleSource {
    pub(crate) front: Front,
    pub(crate) files: Vec<File>,
    /// For tests alone: path of the rule that is evaluated instead of the front's.
    #[cfg(any(test, feature = "unchecked"))]
    #[serde(skip)]
    entry_point: Option<String>,
}

impl BundleSource {
    pub(crate) fn new(front: Front, files: Vec<File>) -> Self {
        Self {
            front,
            files,
            #[cfg(any(test, feature = "unchecked"))]
            entry_point: None,
        }
    }

    /// Modules and data, by name as in a bundle, with another rule to evaluate and any input.
    ///
    /// - `entry_point`: path of the rule, such as `data.example.allow`.
    ///
    /// Refuses what [`BundleSource::read`] refuses, except that there are no cases.
    #[cfg(any(test, feature = "unchecked"))]
    pub fn of_rule(entry_point: &str, mut files: BTreeMap<String, String>) -> Loaded<Self> {
        let mut source = Self::new(Front::Extensions, Vec::new());
        source.entry_point = Some(entry_point.to_owned());
        files.insert("cases.yaml".to_owned(), String::new());
        source.with_files(Path::new(""), files)
    }

    /// Path of the rule that decides.
    pub(crate) fn entry_point(&self) -> String {
        #[cfg(any(test, feature = "unchecked"))]
        if let Some(entry_point) = &self.entry_point {
            return entry_point.clone();
        }
        self.front.entry_point()
    }

    pub(crate) fn input_schema(&self) -> &'static serde_json::Value {
        #[cfg(any(test, feature = "unchecked"))]
        if self.entry_point.is_some() {
            return &serde_json::Value::Bool(true);
        }
        self.front.input_schema()
    }

    /// Reads the bundle of `front` in `directory`.
    ///
    /// Refuses a folder without `policy.rego`, `cases.yaml` or, for fronts that have one,
    /// [`IMPERSONATION_FILE`]; files beyond the bounds on size, lines, columns and bracket depth;
    /// and files that are not UTF-8. A file of unknown purpose is a warning if it is in `data/` or
    /// has `policy` in its name.
    pub fn read(directory: &Path, front: Front) -> Loaded<Self> {
        let mut found = Vec::new();
        let mut files = Vec::new();
        if let Err(error) = read_folder(directory, false, &mut files, &mut found) {
            let finding = refusal(directory, format!("the folder cannot be read: {error}"));
            let hint = "each open front needs a bundle; `tollgate init` writes the shipped ones";
            return Loaded::new(Self::new(front, files), vec![finding.with_hint(hint)]);
        }
        match front {
            Front::Kubernetes | Front::Applications => take_mapping(directory, &mut files, &mut found),
            Front::Extensions | Front::ApplicationSets | Front::Argocd | Front::ControlPlane => {}
        }
        let data = directory.join("data");
        if data.is_dir()
            && let Err(error) = read_folder(&data, true, &mut files, &mut found)
        {
            found.push(refusal(&data, format!("the folder cannot be read: {error}")));
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        for file in files.iter().filter(|file| file.kind == FileKind::Policy) {
            found.extend(scan::check(&file.path, &file.text));
        }
        check_totals(directory, &files, &mut found);
        Loaded::new(Self::new(front, files), found)
    }

    /// Name and text of each file, below the bundle's folder, in order.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|file| (file.name(), file.text.as_str()))
    }

    /// The bundle with other texts for some of its files, or with more files.
    ///
    /// - `directory`: where it was read.
    /// - `texts`: by name, such as `policy.rego` or `data/teams.yaml`.
    ///
    /// Refuses what [`BundleSource::read`] refuses, and names of files that no bundle has.
    pub fn with_files(mut self, directory: &Path, texts: BTreeMap<String, String>) -> Loaded<Self> {
        let mut found = Vec::new();
        for (name, text) in texts {
            let path = directory.join(&name).display().to_string();
            let (in_data, plain) = match name.strip_prefix("data/") {
                Some(rest) => (true, rest),
                None => (false, name.as_str()),
            };
            let kind = kind_of(plain, in_data).filter(|_| !plain.contains(['/', '\\']) && !plain.starts_with('.'));
            let Some((kind, allowed)) = kind else {
                found.push(refusal(
                    directory,
                    format!("`{name}` is not the name of a file of a bundle"),
                ));
                continue;
            };
            if text.len() > allowed {
                let message = format!("the file has {} bytes, {allowed} are allowed", text.len());
                found.push(Diagnostic::error(Location::new(path, 0), message));
                continue;
            }
            match self.files.iter_mut().find(|file| file.path == path) {
                Some(file) => file.text = text,
                None => self.files.push(File {
                    kind,
                    stem: plain.split('.').next().unwrap_or_default().to_owned(),
                    path,
                    text,
                }),
            }
        }
        self.files.sort_by(|one, other| one.path.cmp(&other.path));
        for file in self.files.iter().filter(|file| file.kind == FileKind::Policy) {
            found.extend(scan::check(&file.path, &file.text));
        }
        check_totals(directory, &self.files, &mut found);
        Loaded::new(self, found)
    }

    /// One line of a file. `number` counts from 1.
    pub fn line(&self, path: &str, number: u32) -> Option<&str> {
        let file = self.files.iter().find(|file| file.path == path)?;
        let before = usize::try_from(number).ok()?.checked_sub(1)?;
        file.text.lines().nth(before)
    }

    /// Path and text of [`IMPERSONATION_FILE`]. Bundles for extensions and ApplicationSets have
    /// none.
    pub fn impersonation(&self) -> Option<(&str, &str)> {
        let file = self.files_of(FileKind::Mapping).next()?;
        Some((&file.path, &file.text))
    }

    pub(crate) fn files_of(&self, kind: FileKind) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |file| file.kind == kind)
    }

    /// Hex SHA-256 over the names of all files below the bundle's folder and their texts.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for file in &self.files {
            for part in [file.name().as_bytes(), file.text.as_bytes()] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Marks the impersonation file, which by its name looks like a file of conditions.
fn take_mapping(directory: &Path, files: &mut [File], found: &mut Vec<Diagnostic>) {
    let own = directory.join(IMPERSONATION_FILE).display().to_string();
    match files.iter_mut().find(|file| file.path == own) {
        Some(file) => file.kind = FileKind::Mapping,
        None => found.push(refusal(directory, format!("there is no `{IMPERSONATION_FILE}`"))),
    }
}

fn refusal(path: &Path, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(Location::new(path.display().to_string(), 0), message)
}

fn check_totals(directory: &Path, files: &[File], found: &mut Vec<Diagnostic>) {
    if files.len() > MAX_FILES {
        let message = format!("the bundle has {} files, {MAX_FILES} are allowed", files.len());
        found.push(refusal(directory, message));
    }
    for (kind, what, allowed) in [
        (FileKind::Policy, "policy", MAX_POLICY_BYTES),
        (FileKind::Data, "data", MAX_DATA_BYTES),
    ] {
        let of_kind = files.iter().filter(|file| file.kind == kind);
        let observed: usize = of_kind.map(|file| file.text.len()).sum();
        if observed > allowed {
            let message = format!("the {what} files have {observed} bytes together, {allowed} are allowed");
            found.push(refusal(directory, message));
        }
    }
    let is_main = |file: &File| file.kind == FileKind::Policy && file.stem == "policy";
    if !files.iter().any(is_main) {
        found.push(refusal(directory, "there is no `policy.rego`"));
    }
    if !files.iter().any(|file| file.kind == FileKind::Cases) {
        let hint = "write at least one case that is allowed and one that is denied";
        found.push(refusal(directory, "there is no `cases.yaml`").with_hint(hint));
    }
}

fn read_folder(
    directory: &Path,
    data: bool,
    files: &mut Vec<File>,
    found: &mut Vec<Diagnostic>,
) -> std::io::Result<()> {
    for (count, entry) in std::fs::read_dir(directory)?.enumerate() {
        // SECURITY: an entry that is left out may be a file that only denies, so what is not read is refused.
        if count >= MAX_ENTRIES {
            let message = format!("the folder has more than {MAX_ENTRIES} entries");
            found.push(refusal(directory, message).with_hint("keep only the bundle's files in it"));
            break;
        }
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        // Kubernetes mounts a ConfigMap with entries such as `..data`.
        if name.starts_with('.') || path.is_dir() {
            continue;
        }
        let Some((kind, allowed)) = kind_of(&name, data) else {
            if name.contains("policy") || data {
                let location = Location::new(path.display().to_string(), 0);
                let hint = "known are `*.rego`, `*.cel.yaml`, `cases.yaml`, `data/*.yaml` and `data/*.json`";
                found.push(Diagnostic::warning(location, "the file is not used").with_hint(hint));
            }
            continue;
        };
        match read_file(&path, allowed) {
            Ok(text) => files.push(File {
                kind,
                path: path.display().to_string(),
                stem: name.split('.').next().unwrap_or_default().to_owned(),
                text,
            }),
            Err(message) => found.push(refusal(&path, message)),
        }
    }
    Ok(())
}

fn kind_of(name: &str, data: bool) -> Option<(FileKind, usize)> {
    let ends = |end: &str| name.len() > end.len() && name.ends_with(end);
    match data {
        true if ends(".yaml") || ends(".yml") || ends(".json") => Some((FileKind::Data, MAX_DATA_BYTES)),
        true => None,
        false if ends(".rego") => Some((FileKind::Policy, scan::MAX_FILE_BYTES)),
        false if ends(".cel.yaml") => Some((FileKind::Condition, MAX_CONDITION_BYTES)),
        false if name == "cases.yaml" => Some((FileKind::Cases, MAX_CASES_BYTES)),
        false => None,
    }
}

fn read_file(path: &Path, allowed: usize) -> Result<String, String> {
    use std::io::Read;
    let file = std::fs::File::open(path).map_err(|error| format!("the file cannot be read: {error}"))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err("this is not a regular file".to_owned());
    }
    let mut text = String::new();
    let limit = u64::try_from(allowed).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit)
        .read_to_string(&mut text)
        .map_err(|error| format!("the file cannot be read: {error}"))?;
    if text.len() > allowed {
        return Err(format!(
            "the file has more than {allowed} bytes, which is all that is allowed"
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{BundleSource, Front, MAX_ENTRIES};

    #[test]
    fn a_folder_with_more_entries_than_are_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refuses = || {
            let found = BundleSource::read(folder.path(), Front::Extensions).diagnostics;
            found.iter().any(|finding| finding.message.contains("entries"))
        };
        for number in 0..MAX_ENTRIES {
            std::fs::write(folder.path().join(format!("{number}.txt")), "").unwrap();
        }
        assert!(!refuses());
        std::fs::write(folder.path().join("deny.cel.yaml"), "").unwrap();
        assert!(refuses());
    }

    #[test]
    fn digest_differs_once_a_file_moves() {
        let digest_with = |name: &str| {
            let files = [("policy.rego", "package a"), (name, "conditions: []")];
            let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
            BundleSource::of_rule("data.a.allow", files.into())
                .value
                .unwrap()
                .digest()
        };
        assert_ne!(digest_with("deny.cel.yaml"), digest_with("data/deny.cel.yaml"));
        assert_eq!(digest_with("deny.cel.yaml"), digest_with("deny.cel.yaml"));
    }
}
