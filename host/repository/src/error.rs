//! Why a repository cannot be read, in one sentence for the caller.
//!
//! Security: a message contains no credential, no answer's body, and no path of this machine that
//! the caller did not write.

use std::time::Duration;

use tollgate_applicationset::InputError;

/// Each `url` is as requested, without a user. A `hint` says what to do, and begins with `; `
/// unless it is empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("repository `{url}` cannot be read: {reason}")]
    Url { url: String, reason: &'static str },
    #[error(
        "the gateway may not read repository `{url}`: declare it by a repository Secret, or list it under `applicationSets.repositories` of the settings"
    )]
    NotListed { url: String },
    /// A special address, which only an entry with that very host allows.
    #[error("the gateway does not read repository `{url}`: {what}{hint}")]
    Address {
        url: String,
        what: &'static str,
        hint: &'static str,
    },
    /// The Secret requires a kind of login that the gateway does not support.
    #[error("repository `{url}` cannot be read: {reason}")]
    Credential { url: String, reason: String },
    #[error("repository `{url}` refuses the gateway (status {status}): check the credentials in its Secret")]
    Refused { url: String, status: u16 },
    #[error("repository `{url}` answered with status {status}")]
    Status { url: String, status: u16 },
    #[error(
        "repository `{url}` redirects to another location, which the gateway does not follow: configure that location instead"
    )]
    Redirect { url: String },
    #[error("repository `{url}` cannot be reached: {reason}")]
    Unreachable { url: String, reason: String },
    /// The answer violates git's protocol, or is an error in that protocol.
    #[error("repository `{url}` cannot be fetched: {reason}")]
    Protocol { url: String, reason: String },
    #[error("there is no git repository at `{url}` that the gateway can open")]
    Absent { url: String },
    #[error("repository `{url}` has no branch, tag or commit `{revision}`{hint}")]
    Revision {
        url: String,
        revision: String,
        hint: &'static str,
    },
    #[error("reading repository `{url}` takes longer than {allowed:?}")]
    Time { url: String, allowed: Duration },
    #[error("no request waits for repository `{url}` any more")]
    Cancelled { url: String },
    #[error("repository `{url}` was not read in time: the gateway reads {running} other repositories at the moment")]
    Busy { url: String, running: usize },
    #[error("repository `{url}` is too large: {observed} {what} or more, at most {allowed} are allowed")]
    TooLarge {
        url: String,
        what: &'static str,
        observed: u64,
        allowed: u64,
    },
    /// A file or directory of the tree is invalid.
    #[error("`{path}` of repository `{url}` {what}")]
    Entry {
        url: String,
        path: String,
        what: &'static str,
    },
    /// There is no space left, even after removing everything that nobody reads.
    #[error(
        "the gateway has no room for what it fetches: raise `applicationSets.git.cacheBytes`, or the size of the disk that has its folder"
    )]
    DiskFull,
    /// The gateway's own folder cannot be used; `reason` has no path.
    #[error("the gateway cannot store what it fetches: {reason}")]
    Disk { reason: String },
}

impl Error {
    pub(crate) fn revision(url: &str, revision: &str, hint: &'static str) -> Self {
        Self::Revision {
            url: url.to_owned(),
            revision: revision.to_owned(),
            hint,
        }
    }

    /// [`Error::TooLarge`] if more is observed than allowed.
    pub(crate) fn check_bound(
        url: &str,
        what: &'static str,
        observed: impl TryInto<u64>,
        allowed: impl TryInto<u64>,
    ) -> Result<(), Self> {
        let observed = observed.try_into().unwrap_or(u64::MAX);
        let allowed = allowed.try_into().unwrap_or(u64::MAX);
        if observed <= allowed {
            return Ok(());
        }
        Err(Self::TooLarge {
            url: url.to_owned(),
            what,
            observed,
            allowed,
        })
    }
}

impl From<Error> for InputError {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

/// A text from another machine or a library, shortened and on one line.
pub(crate) fn sanitized(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(MAX_CHARS).collect()
}
