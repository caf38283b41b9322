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

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use gix::ObjectId;
use gix::bstr::ByteSlice;
use gix::objs::TreeRefIter;
use gix::objs::tree::EntryKind;

use super::cache::Checkout;
use super::{
    Error, MAX_DEPTH, MAX_ENTRIES, MAX_FILE_BYTES, MAX_FILES, MAX_LISTED_BYTES, MAX_OBJECT_BYTES, MAX_PATH_BYTES,
};
use crate::inputs::InputError;
use crate::{GenerationBudget, GitTree, RepositoryFile};

mod links;
mod read_counter;
#[cfg(test)]
mod tests;

use read_counter::ReadCounter;

/// Memory that a path takes in addition to its characters, in bytes.
const PATH_BYTES: u64 = 48;

/// Options for opening repositories: only the repository's own configuration is used, and nothing
/// of the environment.
pub(super) fn open_options() -> gix::open::Options {
    gix::open::Options::isolated().config_overrides([format!("gitoxide.objects.allocLimit={MAX_OBJECT_BYTES}")])
}

/// The tree of one commit.
pub(super) struct CommitTree {
    // Dropped before what holds its folder.
    repository: gix::Repository,
    root: ObjectId,
    url: String,
    checkout: Option<Arc<Checkout>>,
}

impl fmt::Debug for CommitTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CommitTree");
        shown.field("url", &self.url).field("root", &self.root);
        shown.field("fetched", &self.checkout.is_some()).finish()
    }
}

/// An entry of a directory.
struct TreeEntry {
    name: String,
    kind: EntryKind,
    id: ObjectId,
}

impl CommitTree {
    pub(super) fn new(repository: gix::Repository, commit: ObjectId, url: &str) -> Result<Self, Error> {
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
            checkout: None,
        })
    }

    /// Holds the checkout's folder while the tree is in use.
    pub(super) fn keeping(self, checkout: Arc<Checkout>) -> Self {
        Self {
            checkout: Some(checkout),
            ..self
        }
    }

    fn wrong(&self, path: &str, what: &'static str) -> Error {
        Error::Entry {
            url: self.url.clone(),
            path: path.to_owned(),
            what,
        }
    }

    fn too_large(&self, what: &'static str, (observed, allowed): (u64, u64)) -> Error {
        Error::TooLarge {
            url: self.url.clone(),
            what,
            observed,
            allowed,
        }
    }

    /// The entries of a directory, sorted by name.
    fn entries(&self, id: ObjectId, path: &str, counter: &mut ReadCounter<'_>) -> Result<Vec<TreeEntry>, Error> {
        let data = self.object(id, (path, MAX_OBJECT_BYTES))?;
        counter.bytes = counter.bytes.saturating_add(count(data.len()));
        if counter.bytes > MAX_LISTED_BYTES {
            return Err(self.too_large("bytes of directories", (counter.bytes, MAX_LISTED_BYTES)));
        }
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
            if counter.entries > MAX_ENTRIES {
                return Err(self.too_large("entries", (count(counter.entries), count(MAX_ENTRIES))));
            }
        }
        // Git sorts `a-b` before what is in `a`; a walk visits `a` first.
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// An object of at most `allowed` bytes.
    fn object(&self, id: ObjectId, (path, allowed): (&str, u64)) -> Result<Vec<u8>, Error> {
        let header = self.repository.try_find_header(id);
        let header = header.map_err(|_| self.wrong(path, "cannot be read"))?;
        let Some(header) = header else {
            return Err(self.wrong(path, "is larger than what is fetched, or missing"));
        };
        if header.size() > allowed {
            return Err(self.too_large("bytes", (header.size(), allowed)));
        }
        let object = self.repository.find_object(id);
        let object = object.map_err(|_| self.wrong(path, "cannot be read"))?;
        Ok(object.detach().data)
    }

    /// Visits every entry, each directory before its content. `visit` says whether to enter a
    /// directory.
    fn walk(
        &self,
        counter: &mut ReadCounter<'_>,
        visit: &mut dyn FnMut(&str, &TreeEntry) -> Result<Descend, InputError>,
    ) -> Result<(), InputError> {
        let mut open = vec![(String::new(), self.entries(self.root, "", counter)?.into_iter())];
        while let Some((parent, entries)) = open.last_mut() {
            let Some(entry) = entries.next() else {
                open.pop();
                continue;
            };
            counter.step()?;
            let path = joined(parent, &entry.name);
            if path.len() > MAX_PATH_BYTES {
                return Err(self
                    .too_large("bytes of a path", (count(path.len()), count(MAX_PATH_BYTES)))
                    .into());
            }
            let into = visit(&path, &entry)?;
            if into == Descend::Yes && entry.kind == EntryKind::Tree {
                if open.len() >= MAX_DEPTH {
                    let observed = count(open.len()).saturating_add(1);
                    return Err(self
                        .too_large("directories within each other", (observed, count(MAX_DEPTH)))
                        .into());
                }
                counter.check_deadline()?;
                let inner = self.entries(entry.id, &path, counter)?;
                open.push((path, inner.into_iter()));
            }
        }
        Ok(())
    }
}

/// Whether to visit the content of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Descend {
    Yes,
    No,
}

impl GitTree for CommitTree {
    fn directories(&self, budget: &GenerationBudget) -> Result<Vec<String>, InputError> {
        let mut found = Vec::new();
        self.walk(&mut ReadCounter::new(budget), &mut |path, entry| {
            match entry.kind {
                EntryKind::Tree | EntryKind::Commit if entry.name.starts_with('.') => return Ok(Descend::No),
                EntryKind::Tree | EntryKind::Commit => {
                    charge_path(budget, path)?;
                    found.push(path.to_owned());
                }
                EntryKind::Blob | EntryKind::BlobExecutable | EntryKind::Link => {}
            }
            Ok(Descend::Yes)
        })?;
        Ok(found)
    }

    fn submodules(&self, budget: &GenerationBudget) -> Result<Vec<String>, InputError> {
        let mut counter = ReadCounter::new(budget);
        // Source: Argo CD, `nativeGitClient.Checkout`: without the file there are no submodules,
        // and the directory stays empty.
        let root = self.entries(self.root, "", &mut counter)?;
        if !root.iter().any(|entry| entry.name == ".gitmodules") {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        self.walk(&mut counter, &mut |path, entry| {
            match entry.kind {
                EntryKind::Tree | EntryKind::Commit if entry.name.starts_with('.') => return Ok(Descend::No),
                EntryKind::Commit => {
                    charge_path(budget, path)?;
                    found.push(path.to_owned());
                }
                EntryKind::Tree | EntryKind::Blob | EntryKind::BlobExecutable | EntryKind::Link => {}
            }
            Ok(Descend::Yes)
        })?;
        Ok(found)
    }

    fn files(
        &self,
        matches: &dyn Fn(&str) -> bool,
        budget: &GenerationBudget,
    ) -> Result<Vec<RepositoryFile>, InputError> {
        // Links are followed after everything is listed; until then they have no content.
        let mut found: Vec<(String, Option<ObjectId>)> = Vec::new();
        let mut counter = ReadCounter::new(budget);
        self.walk(&mut counter, &mut |path, entry| {
            let id = match entry.kind {
                EntryKind::Tree => return Ok(Descend::Yes),
                // Argo CD lists it but cannot read it.
                EntryKind::Commit if matches(path) => {
                    return Err(self.wrong(path, "is a submodule, and no file").into());
                }
                EntryKind::Commit => return Ok(Descend::Yes),
                _ if !matches(path) => return Ok(Descend::Yes),
                EntryKind::Blob | EntryKind::BlobExecutable => Some(entry.id),
                EntryKind::Link => None,
            };
            if found.len() >= MAX_FILES {
                let bounds = (count(MAX_FILES).saturating_add(1), count(MAX_FILES));
                return Err(self.too_large("matching files", bounds).into());
            }
            charge_path(budget, path)?;
            found.push((path.to_owned(), id));
            Ok(Descend::Yes)
        })?;
        found.sort_unstable();
        let mut files = Vec::with_capacity(found.len());
        let mut bytes = 0_u64;
        for (path, id) in found {
            counter.check_deadline()?;
            let id = match id {
                Some(id) => id,
                None => self.resolve(&path, &mut counter)?,
            };
            let content = self.object(id, (&path, MAX_FILE_BYTES))?;
            bytes = bytes.saturating_add(count(content.len()));
            if bytes > MAX_FILE_BYTES {
                return Err(self
                    .too_large("bytes of matching files", (bytes, MAX_FILE_BYTES))
                    .into());
            }
            files.push(RepositoryFile {
                path,
                content: Bytes::from(content),
            });
        }
        Ok(files)
    }
}

/// Charges a kept path to the budget.
fn charge_path(budget: &GenerationBudget, path: &str) -> Result<(), InputError> {
    let bytes = count(path.len()).saturating_add(PATH_BYTES);
    budget
        .charge_bytes(bytes)
        .map_err(|exceeded| InputError(exceeded.to_string()))
}

fn joined(parent: &str, name: &str) -> String {
    match parent {
        "" => name.to_owned(),
        _ => format!("{parent}/{name}"),
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
