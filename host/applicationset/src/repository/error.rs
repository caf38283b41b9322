//! Why a repository cannot be read, in a sentence for the caller.
//!
//! In: steps of this folder. Out: texts. Never: a credential, a path of this
//! machine that the caller did not write, an answer's body.

use std::time::Duration;

use crate::inputs::InputError;

/// Why a repository cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The URL is not one the gateway can read by.
    #[error("repository `{url}` cannot be read: {reason}")]
    Url {
        /// As it was asked for, without a user.
        url: String,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// Nobody lists the repository.
    #[error(
        "the gateway may not read repository `{url}`: declare it by a repository Secret, or list it under `applicationSets.repositories` of the settings"
    )]
    NotListed {
        /// As it was asked for.
        url: String,
    },
    /// An address that only an entry with that very host opens.
    #[error("the gateway does not read repository `{url}`: {what}{hint}")]
    Address {
        /// As it was asked for.
        url: String,
        /// What kind of address it is.
        what: &'static str,
        /// What to do; begins with `; ` unless empty.
        hint: &'static str,
    },
    /// The Secret asks for a way the gateway does not have.
    #[error("repository `{url}` cannot be read: {reason}")]
    Credential {
        /// As it was asked for.
        url: String,
        /// Why.
        reason: String,
    },
    /// The server answered that it does not let the gateway in.
    #[error("repository `{url}` does not let the gateway in (status {status}): look at the credentials of its Secret")]
    Refused {
        /// As it was asked for.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// The server answered something else than git's.
    #[error("repository `{url}` answered with status {status}")]
    Status {
        /// As it was asked for.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// The server sends elsewhere.
    #[error("repository `{url}` redirects elsewhere, which is not followed: name the repository where it is")]
    Redirect {
        /// As it was asked for.
        url: String,
    },
    /// No connection, or it broke.
    #[error("repository `{url}` cannot be reached: {reason}")]
    Unreachable {
        /// As it was asked for.
        url: String,
        /// In the words of the library, without URL.
        reason: String,
    },
    /// What came is not git's, or the server said no in git's words.
    #[error("repository `{url}` cannot be fetched: {reason}")]
    Protocol {
        /// As it was asked for.
        url: String,
        /// In the words of the library.
        reason: String,
    },
    /// There is no repository at that path.
    #[error("there is no git repository at `{url}` that the gateway can open")]
    Absent {
        /// As it was asked for.
        url: String,
    },
    /// No branch, tag or commit of that name.
    #[error("repository `{url}` has no branch, tag or commit `{revision}`{hint}")]
    Revision {
        /// As it was asked for.
        url: String,
        /// As it was asked for.
        revision: String,
        /// What to do; begins with `; ` unless empty.
        hint: &'static str,
    },
    /// Wall time ran out.
    #[error("reading repository `{url}` takes longer than {allowed:?}")]
    Time {
        /// As it was asked for.
        url: String,
        /// Allowed.
        allowed: Duration,
    },
    /// Nobody waits for it any more.
    #[error("nobody waits for repository `{url}` any more")]
    GivenUp {
        /// As it was asked for.
        url: String,
    },
    /// The gateway is busy with other repositories.
    #[error("repository `{url}` was not read in time: the gateway reads {running} other repositories at the moment")]
    Busy {
        /// As it was asked for.
        url: String,
        /// So many.
        running: usize,
    },
    /// Something is too large or too many.
    #[error("repository `{url}` is too large: {observed} {what} or more, at most {allowed} are allowed")]
    TooLarge {
        /// As it was asked for.
        url: String,
        /// What was counted.
        what: &'static str,
        /// So many.
        observed: u64,
        /// Allowed.
        allowed: u64,
    },
    /// A file or directory of the tree is not as it should be.
    #[error("`{path}` of repository `{url}` {what}")]
    Entry {
        /// As it was asked for.
        url: String,
        /// Path within the tree.
        path: String,
        /// What is wrong.
        what: &'static str,
    },
    /// There is no room left, whatever is taken away that nobody reads.
    #[error(
        "the gateway has no room for what it fetches: raise `applicationSets.git.cacheBytes`, or the size of the disk that has its folder"
    )]
    Full,
    /// The gateway's own folder.
    #[error("the gateway cannot keep what it fetches: {reason}")]
    Disk {
        /// In the words of the system, without path.
        reason: String,
    },
}

impl From<Error> for InputError {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

/// A text of another machine or a library, short and on one line.
pub(super) fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(MAX_CHARS).collect()
}
