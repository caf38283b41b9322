//! Read access to git repositories, for generators.
//!
//! [`allowed_repository`] checks a URL first. It returns an [`AllowedRepository`]: the location, and
//! the RBAC object that the caller needs a right on. Remote repositories are fetched over HTTPS
//! (`wire.rs`), one commit deep, into a private folder; local ones are opened in place. There is one
//! [`RepositoryStore`] for the process. It holds what was fetched and shares one fetch among all
//! requests for the same revision. A [`RepositoryReader`] gives one request the files of a commit as
//! a [`GitTree`](tollgate_applicationset::GitTree).
//!
//! Invariant: every fetch is bounded in time, bytes and number.
//!
//! Security: the gateway starts no program (no `git`, no `ssh`), reads no repository that is not
//! listed, and never sends a credential to another host or includes one in a message.

mod address;
mod cache;
mod disk;
mod error;
mod fetch;
mod fetch_context;
mod fetch_key;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod in_flight;
mod listing;
mod local;
mod location;
mod pack;
mod permission;
mod spelling;
mod store;
mod store_inner;
mod tree;
mod wire;

use error::Error;
pub use permission::{AllowedRepository, allowed_repository};
pub use store::{RepositoryReader, RepositoryStore};

const MAX_FETCHES: usize = 16;
const MAX_FETCHES_OF_HOST: usize = 6;
const MAX_FETCHES_OF_REPOSITORY: usize = 2;
/// Maximum number of commits kept on disk.
const MAX_CACHED_COMMITS: usize = 256;
/// Maximum size of a repository's list of branches and tags, in bytes.
const MAX_LISTING_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum number of objects in one fetch.
const MAX_OBJECTS: u32 = 1_000_000;
/// Maximum size of one fetched object, unpacked, in bytes.
const MAX_UNPACKED_BYTES: u64 = 128 * 1024 * 1024;
/// Maximum length of a chain of deltas in a fetch; git itself makes chains up to this length.
const MAX_DELTA_DEPTH: u32 = 4096;
/// Memory that all fetches together may use for unpacking, in bytes. A fetch that alone needs more
/// is refused.
const MAX_UNPACKING_BYTES: u64 = 3 * MAX_UNPACKED_BYTES;
/// Maximum size of one object that is read, in bytes.
const MAX_OBJECT_BYTES: u64 = 32 * 1024 * 1024;
/// Maximum number of directory entries that one query reads: files, directories and links. A
/// directory that occurs in several places counts once for each.
const MAX_ENTRIES: usize = 500_000;
/// Maximum size of the directories that one query reads, in bytes.
const MAX_LISTED_BYTES: u64 = 64 * 1024 * 1024;
const MAX_DEPTH: usize = 64;
const MAX_PATH_BYTES: usize = 4096;
/// Maximum number of files that one pattern may match.
const MAX_FILES: usize = 20_000;
/// Maximum total size of the files that one pattern matches, in bytes.
const MAX_FILE_BYTES: u64 = 10 * 1024 * 1024;
/// Maximum number of symbolic links followed on the way to one file.
const MAX_LINKS: usize = 40;

/// A length as the limits are given.
fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
