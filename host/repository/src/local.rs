//! Opens repositories on this machine in place and resolves a revision in them.
//!
//! Security: no program of the repository runs (hooks, filters, monitors), and no link leads out
//! of the paths that the settings list.

use std::path::{Path, PathBuf};

use gix::ObjectId;
use gix::hash::Prefix;

use crate::Error;
use crate::listing::{TAGS, is_short_commit, names};
use crate::permission::{AllowedRepository, local_permitted};
use crate::tree::{CommitTree, open_options};
use tollgate_applicationset::template::{highest, is_range};

pub(crate) const NO_COMMIT: &str = "; what is there is no commit";

pub(crate) fn open(
    permitted: &AllowedRepository,
    path: &Path,
    patterns: &[String],
    revision: &str,
) -> Result<CommitTree, Error> {
    let url = &permitted.url;
    let absent = || Error::Absent { url: url.clone() };
    let real = real(path).ok_or_else(absent)?;
    // A link below a listed path can lead elsewhere.
    let listed = real == path || local_permitted(patterns, &real.to_string_lossy());
    if !listed {
        return Err(Error::NotListed { url: url.clone() });
    }
    let repository = open_options().open(real).map_err(|_| absent())?.to_thread_local();
    let commit = commit(&repository, revision).map_err(|hint| Error::revision(url, revision, hint))?;
    CommitTree::new(repository, commit, url)
}

fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| {
        let mut with_suffix = path.as_os_str().to_owned();
        with_suffix.push(".git");
        PathBuf::from(with_suffix).canonicalize().ok()
    })
}

fn commit(repository: &gix::Repository, revision: &str) -> Result<ObjectId, &'static str> {
    if let Ok(id) = revision.to_lowercase().parse::<ObjectId>() {
        return peeled(repository, id);
    }
    let tag = is_range(revision).then(|| tag_within(repository, revision)).flatten();
    let revision = tag.as_deref().unwrap_or(revision);
    for name in names(revision) {
        let found = repository.try_find_reference(name.as_str());
        // A name that git does not allow does not exist.
        if let Ok(Some(mut reference)) = found
            && reference.name().as_bstr() == name.as_str()
        {
            let id = reference.peel_to_id().map_err(|_| "; it leads nowhere")?;
            return peeled(repository, id.detach());
        }
    }
    if !is_short_commit(revision) {
        return Err("");
    }
    let prefix = Prefix::from_hex(&revision.to_lowercase()).map_err(|_| "")?;
    match repository.objects.lookup_prefix(prefix, None) {
        Ok(Some(Ok(id))) => peeled(repository, id),
        Ok(Some(Err(()))) => Err("; several begin so, give all 40 characters"),
        Ok(None) | Err(_) => Err(""),
    }
}

fn tag_within(repository: &gix::Repository, range: &str) -> Option<String> {
    let references = repository.references().ok()?;
    let tags = references.prefixed(TAGS).ok()?;
    let names = tags.filter_map(|tag| {
        let name = tag.ok()?.name().as_bstr().to_string();
        name.strip_prefix(TAGS).map(str::to_owned)
    });
    let mut names: Vec<String> = names.collect();
    // In the order in which a server lists them: of equal versions the first counts.
    names.sort_unstable();
    highest(range, names.iter().map(String::as_str)).map(str::to_owned)
}

/// Follows a tag to its commit.
pub(crate) fn peeled(repository: &gix::Repository, id: ObjectId) -> Result<ObjectId, &'static str> {
    let object = repository.find_object(id).map_err(|_| "")?;
    let commit = object.peel_to_kind(gix::objs::Kind::Commit).map_err(|_| NO_COMMIT)?;
    Ok(commit.id)
}
