//! Follows symbolic links within a tree to the content of a file.
//!
//! A link that leads out of the tree, into a submodule, to a directory or through more than
//! [`MAX_LINKS`] links is refused.
//!
//! Invariant: one query reads each directory at most once.

use std::rc::Rc;

use gix::ObjectId;
use gix::objs::tree::EntryKind;

use super::{CommitTree, ReadCounter, TreeEntry};
use crate::{MAX_LINKS, MAX_PATH_BYTES, count};
use tollgate_applicationset::InputError;

const OUTSIDE: &str = "is a symbolic link that leads out of the repository";
const NOTHING: &str = "is a symbolic link to nothing";

impl CommitTree {
    /// A directory on the path of a link, read once.
    fn link_directory(
        &self,
        id: ObjectId,
        path: &str,
        counter: &mut ReadCounter<'_>,
    ) -> Result<Rc<[TreeEntry]>, InputError> {
        if let Some(known) = counter.link_directories.get(&id) {
            return Ok(Rc::clone(known));
        }
        counter.budget.check_deadline()?;
        let entries: Rc<[TreeEntry]> = self.entries(id, path, counter)?.into();
        counter.link_directories.insert(id, Rc::clone(&entries));
        Ok(entries)
    }

    /// The file that a path leads to, with links followed within the tree.
    pub(super) fn resolve(&self, path: &str, counter: &mut ReadCounter<'_>) -> Result<ObjectId, InputError> {
        let mut links = 0;
        let mut rest: Vec<String> = path.rsplit('/').map(str::to_owned).collect();
        let mut directories: Vec<ObjectId> = Vec::new();
        while let Some(part) = rest.pop() {
            counter.budget.check_deadline()?;
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    directories.pop().ok_or_else(|| self.wrong(path, OUTSIDE))?;
                    continue;
                }
                _ => {}
            }
            let directory = directories.last().copied().unwrap_or(self.root);
            let entries = self.link_directory(directory, path, counter)?;
            let found = entries.binary_search_by(|entry| entry.name.as_str().cmp(&part));
            let Some(entry) = found.ok().and_then(|at| entries.get(at)) else {
                return Err(self.wrong(path, NOTHING).into());
            };
            match entry.kind {
                EntryKind::Tree => directories.push(entry.id),
                EntryKind::Blob | EntryKind::BlobExecutable if rest.iter().all(|part| part.is_empty()) => {
                    return Ok(entry.id);
                }
                EntryKind::Blob | EntryKind::BlobExecutable => return Err(self.wrong(path, NOTHING).into()),
                EntryKind::Commit => {
                    let what = "leads into a submodule, which is not fetched";
                    return Err(self.wrong(path, what).into());
                }
                EntryKind::Link => {
                    links += 1;
                    let target = self.target(entry.id, path, counter)?;
                    rest.extend(target.rsplit('/').map(str::to_owned));
                    if links > MAX_LINKS || rest.len() > MAX_PATH_BYTES {
                        return Err(self.wrong(path, "leads through too many symbolic links").into());
                    }
                }
            }
        }
        Err(self.wrong(path, "is a symbolic link to a directory").into())
    }

    fn target(&self, link: ObjectId, path: &str, counter: &ReadCounter<'_>) -> Result<String, InputError> {
        counter.budget.check_deadline()?;
        let target = self.object(link, path, count(MAX_PATH_BYTES))?;
        let target = String::from_utf8_lossy(&target).into_owned();
        match target.starts_with('/') {
            true => Err(self.wrong(path, OUTSIDE).into()),
            false => Ok(target),
        }
    }
}
