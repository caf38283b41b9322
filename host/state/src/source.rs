//! Where the objects come from, behind one trait.
//!
//! In: the settings `state`. Out: a [`Source`] that is loaded again and again and
//! says when that is worth it. Never: half a state; a source that holds its caller
//! up for longer than [`super::kubernetes::START`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::Resources;
use super::directory::Directory;
use super::kubernetes::Kubernetes;
use super::watch::Watch;
use tollgate_config::{Config, StateSource};
use tollgate_core::diagnostic::{Diagnostic, Loaded};

/// A place the Kubernetes objects are read from.
pub trait Source: fmt::Debug + Send + Sync {
    /// Every object as it is now.
    ///
    /// What did not change since the last load of this source is neither read nor
    /// decoded again: its `Arc`s are the same pointers. Blocks, the first time for
    /// as long as the source needs to be complete; call it off the runtime.
    ///
    /// # Errors
    /// As findings: what cannot be read or decoded and refuses the load.
    fn load(&self) -> Loaded<Arc<Resources>>;

    /// Where the last load was refused: every object as it is now, but those with mistakes
    /// as they were when they had none. For judging what is withdrawn, and for nothing
    /// else.
    fn mended(&self) -> Option<Arc<Resources>>;

    /// What keeps the source from being up to date, as findings of severity error;
    /// none while it is. What it gave last stays true as far as anybody knows.
    fn health(&self) -> Vec<Diagnostic>;

    /// Begins to watch for changes: what changes after this returns is signaled, so
    /// load *after* it. Inside a Tokio runtime.
    fn watch(&self) -> BoxFuture<'_, Watch>;

    /// Where changes are written.
    ///
    /// # Errors
    /// [`Error::NotConnected`] before a cluster was reached for the first time.
    fn place(&self) -> Result<Place, Error>;
}

/// Where changes of objects are written.
#[derive(Clone)]
pub enum Place {
    /// A folder of YAML files.
    Folder(PathBuf),
    /// The API server of the control plane's cluster. The client works from any
    /// runtime while the source lives.
    Cluster(kube::Client),
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => f.debug_tuple("Folder").field(folder).finish(),
            Self::Cluster(_) => f.write_str("Cluster"),
        }
    }
}

/// Why a source cannot be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No connection was ever made.
    #[error("the API server of the control plane's cluster was not reached yet")]
    NotConnected,
}

/// The source the settings name. It begins to work at once, and ends with the last
/// `Arc` of it.
pub fn open(config: &Config) -> Arc<dyn Source> {
    let namespace = &config.control_plane_namespace;
    match &config.state {
        StateSource::Directory(folder) => Arc::new(Directory::new(folder, namespace)),
        StateSource::Kubernetes(settings) => Arc::new(Kubernetes::start(settings.clone(), namespace)),
    }
}

/// Every object the settings lead to, once: for commands that read and end. Blocks.
///
/// # Errors
/// As findings: what cannot be read or decoded.
pub fn load_once(config: &Config) -> Loaded<Arc<Resources>> {
    open(config).load()
}
