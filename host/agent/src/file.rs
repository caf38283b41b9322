//! Reads files that the settings name.

use std::io;
use std::path::{Path, PathBuf};

/// A file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("`{path}` cannot be read: {source}", path = .path.display())]
pub struct ReadError {
    path: PathBuf,
    source: io::Error,
}

impl ReadError {
    /// Says which file an error is about.
    pub(crate) fn of(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { path, source }
    }
}
