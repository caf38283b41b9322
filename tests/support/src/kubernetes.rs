//! A real Kubernetes control plane on loopback: etcd and kube-apiserver with RBAC and an audit log,
//! kubectl, and a simulated node whose pods are folders of this machine.

pub mod agent;
pub mod argocd;
pub mod audit;
pub mod cluster;
pub mod crds;
pub mod daemon;
pub mod gateway;
pub mod kubectl;
pub mod network;
pub mod node;
pub mod pod;
pub mod webhook;

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long to wait for something expected, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between two polls.
const PAUSE: Duration = Duration::from_millis(20);

/// Polls `look` until it returns a value.
///
/// # Panics
/// If there is none in time. The text has `what` was expected.
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

/// Where the programs of Kubernetes are expected.
pub fn kubernetes() -> crate::programs::Kubernetes {
    crate::programs::Kubernetes::find(crate::checkout()).unwrap()
}

/// The folder with all programs of Kubernetes.
///
/// # Panics
/// If one is missing. The text has the command that provides it.
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
/// If it is not built. The text has the command that builds it.
pub fn kubelet() -> PathBuf {
    built(crate::programs::kubelet(crate::checkout()).unwrap())
}

/// The real helm; [`kubectl::Kubectl::beside`] runs it.
///
/// # Panics
/// If it is not built. The text has the command that builds it.
pub fn helm() -> PathBuf {
    built(crate::programs::helm(crate::checkout()).unwrap().0)
}

/// kube-controller-manager.
///
/// # Panics
/// If it is not built. The text has the command that builds it.
pub fn controller_manager() -> PathBuf {
    built(crate::programs::controller_manager(crate::checkout()).unwrap().0)
}

/// A program or file of the cache.
fn built(path: PathBuf) -> PathBuf {
    assert!(path.is_file(), "no {}: run `cargo xtask kubernetes`", path.display());
    path
}
