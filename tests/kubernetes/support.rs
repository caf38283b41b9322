//! A real Kubernetes control plane for tests: etcd and kube-apiserver on
//! loopback, with RBAC and an audit log, a node whose pods are folders, and
//! kubectl to ask it.
//!
//! In: the binaries of `cargo xtask kubernetes`. Out: a cluster that ends with
//! its value, or with the process however that ends. Never: containers,
//! controllers, the user's own kubeconfig. Other test binaries include this
//! file by path, so the paths are written out.
#![expect(unreachable_pub, reason = "each binary is a crate of its own")]

#[path = "support/audit.rs"]
pub mod audit;
#[path = "support/authority.rs"]
pub mod authority;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../../xtask/src/cache.rs"]
pub mod cache;
#[path = "support/cluster.rs"]
pub mod cluster;
#[path = "support/crds.rs"]
pub mod crds;
#[path = "support/daemon.rs"]
pub mod daemon;
#[path = "support/kubectl.rs"]
pub mod kubectl;
#[path = "support/node.rs"]
pub mod node;

use std::path::{Path, PathBuf};
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
pub fn kubernetes() -> cache::Kubernetes {
    cache::Kubernetes::find(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap()
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
    built(cache::kubelet(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap())
}

/// The real helm; [`kubectl::Kubectl::beside`] runs it.
///
/// # Panics
/// It is not built; the text has the command that builds it.
pub fn helm() -> PathBuf {
    built(cache::helm(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap().0)
}

/// A program or file of the cache.
fn built(path: PathBuf) -> PathBuf {
    assert!(path.is_file(), "no {}: run `cargo xtask kubernetes`", path.display());
    path
}
