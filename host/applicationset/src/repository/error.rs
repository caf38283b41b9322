//! Why a repository cannot be read, in one sentence for the caller.
//!
//! Security: a message contains no credential, no answer's body, and no path of this machine that
//! the caller did not write.

use std::time::Duration;

use crate::inputs::InputError;

/// Why a repository cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The gateway cannot read such a URL.
    #[error("repository `{url}` cannot be read: {reason}")]
    Url {
        /// The requested URL, without a user.
        url: String,
        /// The reason, and what to do.
        reason: &'static str,
    },
    /// No Secret or setting lists the repository.
    #[error(
        "the gateway may not read repository `{url}`: declare it by a repository Secret, or list it under `applicationSets.repositories` of the settings"
    )]
    NotListed {
        /// The requested URL.
        url: String,
    },
    /// A special address, which only an entry with that very host allows.
    #[error("the gateway does not read repository `{url}`: {what}{hint}")]
    Address {
        /// The requested URL.
        url: String,
        /// The kind of address.
        what: &'static str,
        /// What to do; begins with `; ` unless empty.
        hint: &'static str,
    },
    /// The Secret requires a kind of login that the gateway does not support.
    #[error("repository `{url}` cannot be read: {reason}")]
    Credential {
        /// The requested URL.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The server denied access.
    #[error("repository `{url}` does not let the gateway in (status {status}): look at the credentials of its Secret")]
    Refused {
        /// The requested URL.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// The answer is not that of a git server.
    #[error("repository `{url}` answered with status {status}")]
    Status {
        /// The requested URL.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// The server redirects elsewhere.
    #[error("repository `{url}` redirects elsewhere, which is not followed: name the repository where it is")]
    Redirect {
        /// The requested URL.
        url: String,
    },
    /// The connection failed or broke.
    #[error("repository `{url}` cannot be reached: {reason}")]
    Unreachable {
        /// The requested URL.
        url: String,
        /// The library's message, without URL.
        reason: String,
    },
    /// The answer violates git's protocol, or is an error in that protocol.
    #[error("repository `{url}` cannot be fetched: {reason}")]
    Protocol {
        /// The requested URL.
        url: String,
        /// The library's message.
        reason: String,
    },
    /// There is no repository at that path.
    #[error("there is no git repository at `{url}` that the gateway can open")]
    Absent {
        /// The requested URL.
        url: String,
    },
    /// There is no branch, tag or commit of that name.
    #[error("repository `{url}` has no branch, tag or commit `{revision}`{hint}")]
    Revision {
        /// The requested URL.
        url: String,
        /// The requested revision.
        revision: String,
        /// What to do; begins with `; ` unless empty.
        hint: &'static str,
    },
    /// The time ran out.
    #[error("reading repository `{url}` takes longer than {allowed:?}")]
    Time {
        /// The requested URL.
        url: String,
        /// Allowed wall time.
        allowed: Duration,
    },
    /// Nobody waits for the result any more.
    #[error("nobody waits for repository `{url}` any more")]
    Cancelled {
        /// The requested URL.
        url: String,
    },
    /// The gateway is busy with other fetches.
    #[error("repository `{url}` was not read in time: the gateway reads {running} other repositories at the moment")]
    Busy {
        /// The requested URL.
        url: String,
        /// Number of fetches in progress.
        running: usize,
    },
    /// Something is too large, or there are too many of them.
    #[error("repository `{url}` is too large: {observed} {what} or more, at most {allowed} are allowed")]
    TooLarge {
        /// The requested URL.
        url: String,
        /// What was counted.
        what: &'static str,
        /// The number observed.
        observed: u64,
        /// Allowed.
        allowed: u64,
    },
    /// A file or directory of the tree is invalid.
    #[error("`{path}` of repository `{url}` {what}")]
    Entry {
        /// The requested URL.
        url: String,
        /// Path within the tree.
        path: String,
        /// What is wrong.
        what: &'static str,
    },
    /// There is no space left, even after removing everything that nobody reads.
    #[error(
        "the gateway has no room for what it fetches: raise `applicationSets.git.cacheBytes`, or the size of the disk that has its folder"
    )]
    DiskFull,
    /// The gateway's own folder cannot be used.
    #[error("the gateway cannot keep what it fetches: {reason}")]
    Disk {
        /// The system's message, without path.
        reason: String,
    },
}

impl From<Error> for InputError {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

/// A text from another machine or a library, shortened and on one line.
pub(super) fn sanitized(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(MAX_CHARS).collect()
}
