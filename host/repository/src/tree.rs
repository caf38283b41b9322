//! The directories and files of one commit.
//!
//! A small repository can have a large tree: the same directory may occur in many places, and each
//! link may be a long way. Entries are therefore counted each time they are read.
//!
//! Links are followed only for the content of a single file, as in Argo CD: it lists with `git
//! ls-files`, walks directories without following links, and fails where a listed file cannot be
//! read.
//!
//! Security: a link never leads out of the tree or into a listing, and no path contains `..`.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use gix::ObjectId;
use gix::bstr::ByteSlice;
use gix::objs::TreeRefIter;
use gix::objs::tree::EntryKind;

use crate::cache::Checkout;
use crate::{
    Error, MAX_DEPTH, MAX_ENTRIES, MAX_FILE_BYTES, MAX_FILES, MAX_LISTED_BYTES, MAX_OBJECT_BYTES, MAX_PATH_BYTES, count,
};
use tollgate_applicationset::{GenerationBudget, GitTree, InputError, RepositoryFile};

mod links;
#[cfg(test)]
mod tests;

/// Memory that a path takes in addition to its characters, in bytes.
const PATH_BYTES: u64 = 48;

/// Options for opening repositories: only the repository's own configuration is used, and nothing
/// of the environment.
pub(crate) fn open_options() -> gix::open::Options {
    gix::open::Options::isolated().config_overrides([format!("gitoxide.objects.allocLimit={MAX_OBJECT_BYTES}")])
}

#[derive(Debug)]
pub(crate) struct CommitTree {
    // Dropped before what holds its folder.
    repository: gix::Repository,
    root: ObjectId,
    url: String,
    _checkout: Option<Arc<Checkout>>,
}

struct TreeEntry {
    name: String,
    kind: EntryKind,
    id: ObjectId,
}

impl CommitTree {
    pub(crate) fn new(repository: gix::Repository, commit: ObjectId, url: &str) -> Result<Self, Error> {
        let unreadable = || Error::Entry {
            url: url.to_owned(),
            path: commit.to_hex().to_string(),
            what: "is no commit that can be read",
        };
        let found = repository.find_commit(commit).map_err(|_| unreadable())?;
        let root = found.tree_id().map_err(|_| unreadable())?.detach();
        drop(found);
        Ok(Self {
            repository,
            root,
            url: url.to_owned(),
            _checkout: None,
        })
    }

    /// The tree of a checkout, whose folder stays while the tree is in use.
    pub(crate) fn of(checkout: Arc<Checkout>, url: &str) -> Result<Self, Error> {
        let tree = Self::new(checkout.repository.to_thread_local(), checkout.commit, url)?;
        Ok(Self {
            _checkout: Some(checkout),
            ..tree
        })
    }

    fn wrong(&self, path: &str, what: &'static str) -> Error {
        Error::Entry {
            url: self.url.clone(),
            path: path.to_owned(),
            what,
        }
    }

    /// The entries of a directory, sorted by name.
    fn entries(&self, id: ObjectId, path: &str, counter: &mut ReadCounter<'_>) -> Result<Vec<TreeEntry>, Error> {
        let data = self.object(id, path, MAX_OBJECT_BYTES)?;
        counter.bytes = counter.bytes.saturating_add(count(data.len()));
        Error::check_bound(&self.url, "bytes of directories", counter.bytes, MAX_LISTED_BYTES)?;
        let mut entries = Vec::new();
        for entry in TreeRefIter::from_bytes(&data, self.repository.object_hash()) {
            let entry = entry.map_err(|_| self.wrong(path, "is a directory that cannot be read"))?;
            let name = entry.filename.to_str_lossy();
            if matches!(&*name, "" | "." | "..") || name.contains(['/', '\0']) || name.eq_ignore_ascii_case(".git") {
                return Err(self.wrong(path, "has an entry with a name no file can have"));
            }
            entries.push(TreeEntry {
                name: name.into_owned(),
                kind: entry.mode.kind(),
                id: entry.oid.to_owned(),
            });
            counter.entries = counter.entries.saturating_add(1);
            Error::check_bound(&self.url, "entries", counter.entries, MAX_ENTRIES)?;
        }
        // Git sorts `a-b` before what is in `a`; a walk visits `a` first.
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// An object of at most `allowed` bytes.
    fn object(&self, id: ObjectId, path: &str, allowed: u64) -> Result<Vec<u8>, Error> {
        let header = self.repository.try_find_header(id);
        let header = header.map_err(|_| self.wrong(path, "cannot be read"))?;
        let header = header.ok_or_else(|| self.wrong(path, "is larger than what is fetched, or missing"))?;
        Error::check_bound(&self.url, "bytes", header.size(), allowed)?;
        let object = self.repository.find_object(id);
        let object = object.map_err(|_| self.wrong(path, "cannot be read"))?;
        Ok(object.detach().data)
    }

    /// Visits every entry, each directory before its content.
    fn walk(
        &self,
        counter: &mut ReadCounter<'_>,
        hidden: HiddenDirectories,
        visit: &mut dyn FnMut(&str, &TreeEntry) -> Result<(), InputError>,
    ) -> Result<(), InputError> {
        let mut open = vec![(String::new(), self.entries(self.root, "", counter)?.into_iter())];
        while let Some((parent, entries)) = open.last_mut() {
            let Some(entry) = entries.next() else {
                open.pop();
                continue;
            };
            counter.budget.check_deadline()?;
            let path = joined(parent, &entry.name);
            Error::check_bound(&self.url, "bytes of a path", path.len(), MAX_PATH_BYTES)?;
            let is_directory = matches!(entry.kind, EntryKind::Tree | EntryKind::Commit);
            if hidden == HiddenDirectories::Skipped && is_directory && entry.name.starts_with('.') {
                continue;
            }
            visit(&path, &entry)?;
            if entry.kind == EntryKind::Tree {
                let depth = open.len().saturating_add(1);
                Error::check_bound(&self.url, "directories within each other", depth, MAX_DEPTH)?;
                let inner = self.entries(entry.id, &path, counter)?;
                open.push((path, inner.into_iter()));
            }
        }
        Ok(())
    }

    /// The paths of directories that are not hidden and of these kinds.
    fn directories_of(&self, kinds: &[EntryKind], mut counter: ReadCounter<'_>) -> Result<Vec<String>, InputError> {
        let mut found = Vec::new();
        let budget = counter.budget;
        self.walk(&mut counter, HiddenDirectories::Skipped, &mut |path, entry| {
            if kinds.contains(&entry.kind) {
                charge_path(budget, path)?;
                found.push(path.to_owned());
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// What happens to directories whose name begins with `.`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HiddenDirectories {
    Visited,
    Skipped,
}

/// What one query has read so far.
struct ReadCounter<'b> {
    budget: &'b GenerationBudget,
    /// Directory entries; those read twice count twice.
    entries: usize,
    /// Size of the directories, in bytes.
    bytes: u64,
    /// Directories that links lead through.
    link_directories: HashMap<ObjectId, Rc<[TreeEntry]>>,
}

impl<'b> ReadCounter<'b> {
    fn new(budget: &'b GenerationBudget) -> Self {
        Self {
            budget,
            entries: 0,
            bytes: 0,
            link_directories: HashMap::new(),
        }
    }
}

impl GitTree for CommitTree {
    fn directories(&self, budget: &GenerationBudget) -> Result<Vec<String>, InputError> {
        self.directories_of(&[EntryKind::Tree, EntryKind::Commit], ReadCounter::new(budget))
    }

    fn submodules(&self, budget: &GenerationBudget) -> Result<Vec<String>, InputError> {
        let mut counter = ReadCounter::new(budget);
        // Source: Argo CD, `nativeGitClient.Checkout`: without the file there are no submodules,
        // and the directory stays empty.
        let root = self.entries(self.root, "", &mut counter)?;
        if !root.iter().any(|entry| entry.name == ".gitmodules") {
            return Ok(Vec::new());
        }
        self.directories_of(&[EntryKind::Commit], counter)
    }

    fn files(
        &self,
        matches: &dyn Fn(&str) -> bool,
        budget: &GenerationBudget,
    ) -> Result<Vec<RepositoryFile>, InputError> {
        // Links are followed after everything is listed; until then they have no content.
        let mut found: Vec<(String, Option<ObjectId>)> = Vec::new();
        let mut counter = ReadCounter::new(budget);
        self.walk(&mut counter, HiddenDirectories::Visited, &mut |path, entry| {
            let id = match entry.kind {
                EntryKind::Tree => return Ok(()),
                _ if !matches(path) => return Ok(()),
                // Argo CD lists it but cannot read it.
                EntryKind::Commit => return Err(self.wrong(path, "is a submodule, and no file").into()),
                EntryKind::Blob | EntryKind::BlobExecutable => Some(entry.id),
                EntryKind::Link => None,
            };
            Error::check_bound(&self.url, "matching files", found.len().saturating_add(1), MAX_FILES)?;
            charge_path(budget, path)?;
            found.push((path.to_owned(), id));
            Ok(())
        })?;
        found.sort_unstable();
        let mut files = Vec::with_capacity(found.len());
        let mut bytes = 0_u64;
        for (path, id) in found {
            counter.budget.check_deadline()?;
            let id = match id {
                Some(id) => id,
                None => self.resolve(&path, &mut counter)?,
            };
            let content = self.object(id, &path, MAX_FILE_BYTES)?;
            bytes = bytes.saturating_add(count(content.len()));
            Error::check_bound(&self.url, "bytes of matching files", bytes, MAX_FILE_BYTES)?;
            files.push(RepositoryFile {
                path,
                content: Bytes::from(content),
            });
        }
        Ok(files)
    }
}

fn charge_path(budget: &GenerationBudget, path: &str) -> Result<(), InputError> {
    Ok(budget.charge_bytes(count(path.len()).saturating_add(PATH_BYTES))?)
}

fn joined(parent: &str, name: &str) -> String {
    match parent {
        "" => name.to_owned(),
        _ => format!("{parent}/{name}"),
    }
}
