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

/// Where the Go module of the tests' helm is, in the checkout.
pub const HELM_MODULE: &str = "tests/kubernetes/helm";

/// Where the Go module is that pins the release of Argo CD whose
/// CustomResourceDefinitions the tests install, in the checkout.
pub const CRDS_MODULE: &str = "tests/kubernetes/crds";

/// Where the Go module of Argo CD's own command line and judge is, in the checkout.
pub const ARGOCD_MODULE: &str = "tests/argocd";

/// Argo CD's CustomResourceDefinitions, as its release names the files.
pub const CRDS: [&str; 3] = ["application-crd.yaml", "applicationset-crd.yaml", "appproject-crd.yaml"];

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
        let version =
            release(&requirements, "k8s.io/kubernetes").context("go.mod requires no release of k8s.io/kubernetes")?;
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
    let files = ["go.mod", "go.sum", "main.go", "pods.go"];
    Ok(folder()?.join(format!("kubelet-for-tests-{}", digest(root, KUBELET_MODULE, &files)?)))
}

/// Where the tests' helm for the checkout at `root` is, or is to be built, and its
/// release, e.g. `v4.3.1`.
///
/// Not among what `KUBEBUILDER_ASSETS` gives: envtest has none.
///
/// # Errors
/// The module's files cannot be read or name no release, or there is no cache.
pub fn helm(root: &Path) -> Result<(PathBuf, String)> {
    let path = root.join(HELM_MODULE).join("go.mod");
    let requirements = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let version = release(&requirements, "helm.sh/helm/v4").context("go.mod requires no release of helm")?;
    let digest = digest(root, HELM_MODULE, &["go.mod", "go.sum"])?;
    Ok((folder()?.join(format!("helm-{version}-{digest}")), version.to_owned()))
}

/// The folder that has, or is to have, [`CRDS`] for the checkout at `root`.
///
/// # Errors
/// The module's files cannot be read, or there is no cache.
pub fn crds(root: &Path) -> Result<PathBuf> {
    let digest = digest(root, CRDS_MODULE, &["go.mod", "go.sum"])?;
    Ok(folder()?.join(format!("argocd-crds-{digest}")))
}

/// What the tests have of Argo CD itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Argocd {
    /// Its command line.
    pub cli: PathBuf,
    /// What says what Argo CD's own code makes of an ApplicationSet.
    pub judge: PathBuf,
    /// Folder with the ApplicationSets of its documentation, under their paths there.
    pub examples: PathBuf,
    /// Release, with the `v`.
    pub version: String,
}

impl Argocd {
    /// Where it is, or is to be, for the checkout at `root`; names change with what
    /// they are made of.
    ///
    /// # Errors
    /// The module's files cannot be read or name no release, or there is no cache.
    pub fn find(root: &Path) -> Result<Self> {
        let module = root.join(ARGOCD_MODULE);
        let path = module.join("go.mod");
        let requirements = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let version = release(&requirements, "github.com/argoproj/argo-cd/v3")
            .context("go.mod requires no release of Argo CD")?;
        let cache = folder()?;
        let named = |what: &str, source: Option<&str>| -> Result<PathBuf> {
            let mut files = vec!["go.mod".to_owned(), "go.sum".to_owned()];
            files.extend(
                source
                    .map(|source| sources(&module, source))
                    .transpose()?
                    .unwrap_or_default(),
            );
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            Ok(cache.join(format!("{what}-{version}-{}", digest(root, ARGOCD_MODULE, &files)?)))
        };
        Ok(Self {
            cli: named("argocd", Some("argocd"))?,
            judge: named("argocd-judge", Some("judge"))?,
            examples: named("argocd-examples", None)?,
            version: version.to_owned(),
        })
    }
}

/// The Go files in a folder of a module, sorted, as paths from the module.
fn sources(module: &Path, folder: &str) -> Result<Vec<String>> {
    let path = module.join(folder);
    let reading = || format!("reading {}", path.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&path).with_context(reading)? {
        let name = entry.with_context(reading)?.file_name();
        let name = name.to_str().filter(|name| name.ends_with(".go"));
        files.extend(name.map(|name| format!("{folder}/{name}")));
    }
    files.sort();
    Ok(files)
}

/// What a module's files come to.
fn digest(root: &Path, module: &str, files: &[&str]) -> Result<String> {
    let module = root.join(module);
    let mut digest = Sha256::new();
    for name in files {
        let path = module.join(name);
        digest.update(std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
    }
    Ok(short(&digest.finalize()))
}

/// As much of a digest as tells folders apart.
fn short(digest: &[u8]) -> String {
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// The release of a module that a go.mod requires.
fn release<'a>(requirements: &'a str, module: &str) -> Option<&'a str> {
    requirements.lines().find_map(|line| {
        let mut words = line.split_whitespace().filter(|word| *word != "require");
        (words.next() == Some(module)).then(|| words.next())?
    })
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn the_release_is_the_required_one() {
        let block = "module m\n\nrequire (\n\tk8s.io/kubernetes-x v2.0.0\n\tk8s.io/kubernetes v1.2.3 // indirect\n)\n";
        let release = |text| release(text, "k8s.io/kubernetes");
        assert_eq!(release(block), Some("v1.2.3"));
        assert_eq!(release("require k8s.io/kubernetes v1.2.4\n"), Some("v1.2.4"));
        let other = "require k8s.io/kubectl v0.2.3\ntool k8s.io/kubernetes/cmd/kubectl\n";
        assert_eq!(release(other), None);
    }
}
