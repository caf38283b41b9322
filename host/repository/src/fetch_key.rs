//! What a fetch is for. Requests with the same key share one fetch.

use crate::location::Location;
use crate::permission::AllowedRepository;

/// A revision of a repository, read with certain credentials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FetchKey {
    /// Fingerprint of repository and credentials.
    pub(crate) repository: [u8; 32],
    pub(crate) host: String,
    /// Branch, tag, `HEAD` or commit.
    pub(crate) revision: String,
}

impl FetchKey {
    pub(crate) fn new(permitted: &AllowedRepository, revision: &str) -> Self {
        Self {
            repository: permitted.fingerprint(),
            host: match &permitted.location {
                Location::Remote(url) => url.origin().ascii_serialization(),
                Location::Local(_) => String::new(),
            },
            revision: revision.to_owned(),
        }
    }
}
