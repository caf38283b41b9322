//! Where things built from other people's sources are kept, outside `target/`,
//! so that `cargo clean` does not cost an hour.
//!
//! In: the environment, the files that say what is built. Out: folders. Never:
//! a build. The tests of a real Kubernetes are compiled with this file too, so
//! task and tests cannot disagree about the folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// Where the Go module of the Kubernetes binaries is, in the checkout.
pub const KUBERNETES_MODULE: &str = "tests/kubernetes/build";

/// Where the Go module of the tests' kubelet is, in the checkout.
pub const KUBELET_MODULE: &str = "tests/kubernetes/kubelet";

/// Folder of all that is kept; made when it is not there.
///
/// # Errors
/// The user has no home, or the folder cannot be made.
pub fn folder() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set")?;
    let folder = base.join("tollgate");
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

/// Binaries of a Kubernetes control plane.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Kubernetes {
    /// Somebody else's, named by `KUBEBUILDER_ASSETS`: nothing is built there.
    Given(PathBuf),
    /// Ours, of this release, e.g. `v1.36.1`.
    Built {
        /// The folder; its name changes with every change of the module.
        folder: PathBuf,
        /// Release, with the `v`.
        version: String,
    },
}

impl Kubernetes {
    /// Programs that must be there.
    pub const PROGRAMS: [&'static str; 3] = ["etcd", "kube-apiserver", "kubectl"];

    /// Finds the folder for the checkout at `root`.
    ///
    /// # Errors
    /// The module's files cannot be read or name no release, or there is no cache.
    pub fn find(root: &Path) -> Result<Self> {
        if let Some(given) = std::env::var_os("KUBEBUILDER_ASSETS").filter(|given| !given.is_empty()) {
            return Ok(Self::Given(PathBuf::from(given)));
        }
        let module = root.join(KUBERNETES_MODULE);
        let read = |name: &str| {
            let path = module.join(name);
            std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        let (requirements, sums) = (read("go.mod")?, read("go.sum")?);
        let version = release(&requirements).context("go.mod requires no release of k8s.io/kubernetes")?;
        let digest = Sha256::new().chain_update(&requirements).chain_update(&sums).finalize();
        Ok(Self::Built {
            folder: folder()?.join(format!("kubernetes-{version}-{}", short(&digest))),
            version: version.to_owned(),
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        match self {
            Self::Given(folder) | Self::Built { folder, .. } => folder,
        }
    }

    /// Programs that are not in the folder.
    pub fn missing(&self) -> Vec<&'static str> {
        Self::PROGRAMS
            .into_iter()
            .filter(|program| !self.folder().join(program).is_file())
            .collect()
    }

    /// What to do about missing programs.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Given(_) => {
                "KUBEBUILDER_ASSETS names that folder: put them there, or unset it and run `cargo xtask kubernetes`"
            }
            Self::Built { .. } => "run `cargo xtask kubernetes`",
        }
    }
}

/// Where the tests' kubelet for the checkout at `root` is, or is to be built.
///
/// It is ours, so `KUBEBUILDER_ASSETS` says nothing of it; a module of its own, so
/// that a changed line does not cost the hour of the others.
///
/// # Errors
/// The module's files cannot be read, or there is no cache.
pub fn kubelet(root: &Path) -> Result<PathBuf> {
    let module = root.join(KUBELET_MODULE);
    let mut digest = Sha256::new();
    for name in ["go.mod", "go.sum", "main.go", "pods.go"] {
        let path = module.join(name);
        digest.update(std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
    }
    Ok(folder()?.join(format!("kubelet-for-tests-{}", short(&digest.finalize()))))
}

/// As much of a digest as tells folders apart.
fn short(digest: &[u8]) -> String {
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// The release of Kubernetes a go.mod requires.
fn release(requirements: &str) -> Option<&str> {
    requirements.lines().find_map(|line| {
        let mut words = line.split_whitespace().filter(|word| *word != "require");
        (words.next() == Some("k8s.io/kubernetes")).then(|| words.next())?
    })
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn the_release_is_the_required_one() {
        let block = "module m\n\nrequire (\n\tk8s.io/kubernetes-x v2.0.0\n\tk8s.io/kubernetes v1.2.3 // indirect\n)\n";
        assert_eq!(release(block), Some("v1.2.3"));
        assert_eq!(release("require k8s.io/kubernetes v1.2.4\n"), Some("v1.2.4"));
        assert_eq!(
            release("require k8s.io/kubectl v0.2.3\ntool k8s.io/kubernetes/cmd/kubectl\n"),
            None
        );
    }
}
