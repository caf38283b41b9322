//! The trait [`Source`]: loads the Kubernetes objects, as often as asked, and signals when they
//! change.
//!
//! Invariant: a source gives a complete state or none, and blocks its caller for at most
//! [`super::kubernetes::FIRST_LOAD_TIMEOUT`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::Resources;
use super::directory::DirectorySource;
use super::kubernetes::KubernetesSource;
use super::watch::Watch;
use tollgate_config::{Config, StateSource};
use tollgate_core::diagnostic::{Diagnostic, Loaded};

/// A source of the Kubernetes objects.
pub trait Source: fmt::Debug + Send + Sync {
    /// Every object as it is now.
    ///
    /// Objects that did not change since this source's last load are neither read nor decoded
    /// again: their `Arc`s are the same pointers. Blocks; the first load takes as long as the
    /// source needs to be complete. Call it off the runtime.
    ///
    /// # Errors
    /// Findings: what cannot be read or decoded and therefore refuses the load.
    fn load(&self) -> Loaded<Arc<Resources>>;

    /// The objects of the last load if it was refused, those with mistakes replaced by their last
    /// good version. Use it only to withdraw access.
    fn last_known_good(&self) -> Option<Arc<Resources>>;

    /// Why the source is not up to date, as findings; empty if it is. The last loaded state remains
    /// the best known one.
    fn health(&self) -> Vec<Diagnostic>;

    /// Starts watching for changes. Everything that changes after this returns is signaled, so load
    /// *after* it. Call it inside a Tokio runtime.
    fn watch(&self) -> BoxFuture<'_, Watch>;

    /// Where changes are written.
    ///
    /// # Errors
    /// [`Error::NotConnected`] until the cluster was reached for the first time.
    fn write_target(&self) -> Result<WriteTarget, Error>;
}

/// Where changes of objects are written.
#[derive(Clone)]
pub enum WriteTarget {
    /// A folder of YAML files.
    Folder(PathBuf),
    /// The API server of the control plane's cluster. The client works from any
    /// runtime while the source lives.
    Cluster(kube::Client),
}

impl fmt::Debug for WriteTarget {
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

/// Opens the source that the settings name. It starts at once and ends when the last `Arc` is
/// dropped.
pub fn open(config: &Config) -> Arc<dyn Source> {
    let namespace = &config.control_plane_namespace;
    match &config.state {
        StateSource::Directory(folder) => Arc::new(DirectorySource::new(folder, namespace)),
        StateSource::Kubernetes(settings) => Arc::new(KubernetesSource::start(settings.clone(), namespace)),
    }
}

/// Loads every object once, for commands that read and then end. Blocks.
///
/// # Errors
/// Findings: what cannot be read or decoded.
pub fn load_once(config: &Config) -> Loaded<Arc<Resources>> {
    open(config).load()
}
