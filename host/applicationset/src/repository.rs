//! What is in git repositories, for generators.
//!
//! In: a URL and a revision somebody wrote into an ApplicationSet, repository
//! Secrets, patterns of the settings. Out: the tree of one commit ([`Reader`],
//! [`Tree`](crate::Tree)). Never: a program started (no `git`, no
//! `ssh`), a repository nobody listed, a credential at another host or in a text,
//! a fetch without a bound in time, bytes and number.
//!
//! A URL passes [`permitted`] first, which gives the place ([`Permitted`]) and what
//! the caller needs a right on. Remote repositories are fetched by HTTPS
//! (`wire.rs`), one commit deep, into a private folder; local ones are opened where
//! they are. [`Store`] is one for the process: it holds what was fetched, lets one
//! fetch serve all who ask for the same, and none wait for another repository.

mod address;
mod cache;
mod disk;
mod error;
mod exchange;
mod fetch;
mod flight;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod listing;
mod local;
mod location;
mod pack;
mod permission;
mod spelling;
mod store;
mod tree;
mod wire;

pub use error::Error;
pub use permission::{Permitted, permitted};
pub use store::{Reader, Store};

/// Fetches at once; more wait.
pub const MAX_FETCHES: usize = 16;
/// Fetches at once from one host.
pub const MAX_FETCHES_OF_HOST: usize = 6;
/// Fetches at once from one repository.
pub const MAX_FETCHES_OF_REPOSITORY: usize = 2;
/// Commits kept on disk.
pub const MAX_CACHED_COMMITS: usize = 256;
/// Bytes of a repository's list of branches and tags.
pub const MAX_LISTING_BYTES: u64 = 16 * 1024 * 1024;
/// Objects of one fetch.
pub const MAX_OBJECTS: u32 = 1_000_000;
/// Bytes of one object of a fetch, unpacked.
pub const MAX_UNPACKED_BYTES: u64 = 128 * 1024 * 1024;
/// Deltas of a fetch upon each other, as git itself makes them.
pub const MAX_DELTA_DEPTH: u32 = 4096;
/// Bytes of memory that all fetches together unpack in; one that needs more is refused.
pub const MAX_UNPACKING_BYTES: u64 = 3 * MAX_UNPACKED_BYTES;
/// Bytes of one object that is read.
pub const MAX_OBJECT_BYTES: u64 = 32 * 1024 * 1024;
/// Entries of directories that one question reads: files, directories and links, those in
/// a directory that stands in several places as often.
pub const MAX_ENTRIES: usize = 500_000;
/// Bytes of directories that one question reads.
pub const MAX_LISTED_BYTES: u64 = 64 * 1024 * 1024;
/// Directories within each other.
pub const MAX_DEPTH: usize = 64;
/// Bytes of one path.
pub const MAX_PATH_BYTES: usize = 4096;
/// Files one pattern may match.
pub const MAX_FILES: usize = 20_000;
/// Bytes of all files one pattern matches.
pub const MAX_FILE_BYTES: u64 = 10 * 1024 * 1024;
/// Symbolic links that are followed on the way to one file.
pub const MAX_LINKS: usize = 40;

#[cfg(test)]
mod tests;
