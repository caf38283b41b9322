//! The trait [`Source`]: loads the Kubernetes objects, as often as asked, and signals when they
//! change.
//!
//! Invariant: a source gives a complete state or none, and blocks its caller for at most
//! [`FIRST_LOAD_TIMEOUT`].

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::watch::Watch;
use crate::write::{self, Writer};
use tollgate_config::{Config, StateSource};
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_objects::{ApplicationSetStatuses, Resources, WatchAge};

mod directory;
mod kubernetes;

pub use directory::DirectorySource;
pub use kubernetes::{FIRST_LOAD_TIMEOUT, KubernetesSource};

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

    /// What the first load still waits for, as findings; empty if it would not wait. Does not block.
    fn missing(&self) -> Vec<Diagnostic>;

    /// The objects of the last load if it was refused, those with mistakes replaced by their last
    /// good version. Use it only to withdraw access.
    fn last_known_good(&self) -> Option<Arc<Resources>>;

    /// Why the source is not up to date, as findings; empty if it is. The last loaded state remains
    /// the best known one.
    fn health(&self) -> Vec<Diagnostic>;

    /// How old what is known of each kind of object is; empty if the source is not watched by kinds.
    fn watch_ages(&self) -> Vec<WatchAge> {
        Vec::new()
    }

    /// The last second of validity of the certificate that the source presents to its server, since the Unix
    /// epoch; `None` if it presents none.
    fn certificate_end(&self) -> Option<u64> {
        None
    }

    /// Starts watching for changes. Everything that changes after this returns is signaled, so load
    /// *after* it. Call it inside a Tokio runtime.
    fn watch(&self) -> BoxFuture<'_, Watch>;

    /// Receives the statuses of ApplicationSets as they are written. They are never older than a load,
    /// and change without one. `None` if a status is like any other part of an object: in a folder.
    fn application_set_statuses(&self) -> Option<watch::Receiver<Arc<ApplicationSetStatuses>>>;

    /// Writes changes to where the objects come from. It works from any runtime while the source
    /// lives.
    ///
    /// # Errors
    /// [`write::Error::NotConnected`] until the cluster was reached for the first time.
    fn writer(&self) -> Result<Writer, write::Error>;
}

/// Opens the source that the settings name. It starts at once and ends when the last `Arc` is
/// dropped.
pub fn open(config: &Config) -> Arc<dyn Source> {
    let namespace = &config.control_plane_namespace;
    match &config.state {
        StateSource::Directory(folder) => Arc::new(DirectorySource::new(folder, namespace)),
        StateSource::Kubernetes(settings) => {
            let source = KubernetesSource::start(settings.clone(), namespace, FIRST_LOAD_TIMEOUT);
            Arc::new(source)
        }
    }
}

/// Loads every object once, for commands that read and then end. Blocks.
///
/// # Errors
/// Findings: what cannot be read or decoded.
pub fn load_once(config: &Config) -> Loaded<Arc<Resources>> {
    open(config).load()
}
