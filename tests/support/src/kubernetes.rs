//! A real Kubernetes control plane for tests: etcd and kube-apiserver on
//! loopback, with RBAC and an audit log, a node whose pods are folders, and
//! kubectl to ask it.

pub mod audit;
pub mod cluster;
pub mod crds;
pub mod daemon;
pub mod gateway;
pub mod kubectl;
pub mod node;

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Longest wait for anything expected, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Pause between two looks at something that announces nothing.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks again and again until there is a value.
///
/// # Panics
/// There is none in time; the text has `what` was to come true.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = look().await {
            return value;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        sleep(PAUSE).await;
    }
}

/// Where the programs are to be.
pub fn kubernetes() -> crate::programs::Kubernetes {
    crate::programs::Kubernetes::find(crate::checkout()).unwrap()
}

/// Folder with all programs.
///
/// # Panics
/// One is missing; the text has the command that provides it.
pub fn programs() -> PathBuf {
    let kubernetes = kubernetes();
    let missing = kubernetes.missing();
    assert!(
        missing.is_empty(),
        "{} has no {}: {}",
        kubernetes.folder().display(),
        missing.join(", "),
        kubernetes.remedy()
    );
    kubernetes.folder().to_owned()
}

/// The program of [`node::Node`].
///
/// # Panics
/// It is not built; the text has the command that builds it.
pub fn kubelet() -> PathBuf {
    built(crate::programs::kubelet(crate::checkout()).unwrap())
}

/// The real helm; [`kubectl::Kubectl::beside`] runs it.
///
/// # Panics
/// It is not built; the text has the command that builds it.
pub fn helm() -> PathBuf {
    built(crate::programs::helm(crate::checkout()).unwrap().0)
}

/// A program or file of the cache.
fn built(path: PathBuf) -> PathBuf {
    assert!(path.is_file(), "no {}: run `cargo xtask kubernetes`", path.display());
    path
}
