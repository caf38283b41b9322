//! Paths of what is built from third-party sources. They are outside `target/`, because to build
//! everything again after `cargo clean` takes up to an hour. A path contains a digest of the
//! files that determine the build. Nothing is built here.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// Go module of the Kubernetes binaries, as a path in the checkout.
pub const KUBERNETES_MODULE: &str = "tests/kubernetes/build";

/// Go module of kube-controller-manager, as a path in the checkout.
pub const CONTROLLERS_MODULE: &str = "tests/kubernetes/controllers";

/// Go module of the tests' kubelet, as a path in the checkout.
pub const KUBELET_MODULE: &str = "tests/kubernetes/kubelet";

/// Go module of the tests' helm, as a path in the checkout.
pub const HELM_MODULE: &str = "tests/kubernetes/helm";

/// Go module that pins the releases whose CustomResourceDefinitions the tests install, as a path in
/// the checkout.
pub const CRDS_MODULE: &str = "tests/kubernetes/crds";

/// Go module of the Argo CD CLI and the judge, as a path in the checkout.
pub const ARGOCD_MODULE: &str = "tests/argocd";

/// Go module of the program that reads alert rules and dashboards with Prometheus' parser, as a path
/// in the checkout.
pub const METRICS_MODULE: &str = "tests/metrics";

/// Go module of the tests' OpenTelemetry Collector, as a path in the checkout.
pub const COLLECTOR_MODULE: &str = "tests/collector";

/// Go module of the program that evaluates Rego with OPA and CEL with cel-go, as a path in the checkout.
pub const ENGINES_MODULE: &str = "tests/engines";

/// Go module of the tests' Dex, as a path in the checkout.
pub const DEX_MODULE: &str = "tests/dex";

/// File names of Argo CD's CustomResourceDefinitions in its release.
pub const CRDS: [&str; 3] = ["application-crd.yaml", "applicationset-crd.yaml", "appproject-crd.yaml"];

/// Go module of the Gateway API.
const GATEWAY_API: &str = "sigs.k8s.io/gateway-api";

/// Go module of the Prometheus Operator.
const PROMETHEUS_OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator";

/// Definitions of optional objects of the manifests and the examples: Go module, folder, file.
pub const OPTIONAL_CRDS: [(&str, &str, &str); 5] = [
    (
        GATEWAY_API,
        "config/crd/standard",
        "gateway.networking.k8s.io_backendtlspolicies.yaml",
    ),
    (
        GATEWAY_API,
        "config/crd/standard",
        "gateway.networking.k8s.io_gateways.yaml",
    ),
    (
        GATEWAY_API,
        "config/crd/standard",
        "gateway.networking.k8s.io_httproutes.yaml",
    ),
    (
        PROMETHEUS_OPERATOR,
        "example/prometheus-operator-crd",
        "monitoring.coreos.com_prometheusrules.yaml",
    ),
    (
        PROMETHEUS_OPERATOR,
        "example/prometheus-operator-crd",
        "monitoring.coreos.com_servicemonitors.yaml",
    ),
];

/// The cache folder, which is created if it does not exist.
///
/// # Errors
/// The user has no home, or the folder cannot be created.
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
    /// The folder that `KUBEBUILDER_ASSETS` names. Nothing is built there.
    Given(PathBuf),
    /// Our own build.
    Built {
        /// The folder. Its name changes with every change of the module.
        folder: PathBuf,
        /// Release, such as `v1.36.1`.
        version: String,
    },
}

impl Kubernetes {
    /// Programs that the folder must contain.
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

    /// Text that says what to do about missing programs.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Given(_) => {
                "KUBEBUILDER_ASSETS names that folder: put them there, or unset it and run `cargo xtask kubernetes`"
            }
            Self::Built { .. } => "run `cargo xtask kubernetes`",
        }
    }
}

/// Path of the tests' kubelet for the checkout at `root`, whether built yet or not.
///
/// `KUBEBUILDER_ASSETS` does not apply, because this kubelet is our own program. It has its own
/// module, so that a changed line does not rebuild the control plane.
///
/// # Errors
/// The module's files cannot be read, or there is no cache.
pub fn kubelet(root: &Path) -> Result<PathBuf> {
    let files = ["go.mod", "go.sum", "main.go", "pods.go"];
    Ok(folder()?.join(format!("kubelet-for-tests-{}", digest(root, KUBELET_MODULE, &files)?)))
}

/// Path of the tests' helm for the checkout at `root`, whether built yet or not, and its release,
/// such as `v4.3.1`.
///
/// `KUBEBUILDER_ASSETS` does not apply, because envtest has no helm.
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

/// Path of kube-controller-manager for the checkout at `root`, whether built yet or not, and its
/// release, such as `v1.36.1`.
///
/// `KUBEBUILDER_ASSETS` does not apply, because envtest has none.
///
/// # Errors
/// The module's files cannot be read or name no release, or there is no cache.
pub fn controller_manager(root: &Path) -> Result<(PathBuf, String)> {
    let path = root.join(CONTROLLERS_MODULE).join("go.mod");
    let requirements = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let version =
        release(&requirements, "k8s.io/kubernetes").context("go.mod requires no release of k8s.io/kubernetes")?;
    let digest = digest(root, CONTROLLERS_MODULE, &["go.mod", "go.sum"])?;
    let name = format!("kube-controller-manager-{version}-{digest}");
    Ok((folder()?.join(name), version.to_owned()))
}

/// The folder of [`CRDS`] and [`OPTIONAL_CRDS`] for the checkout at `root`, whether fetched yet or not.
///
/// # Errors
/// The module's files cannot be read, or there is no cache.
pub fn crds(root: &Path) -> Result<PathBuf> {
    let digest = digest(root, CRDS_MODULE, &["go.mod", "go.sum"])?;
    Ok(folder()?.join(format!("crds-{digest}")))
}

/// Path of the program that reads alert rules and dashboards, for the checkout at `root`, whether built
/// yet or not.
///
/// # Errors
/// The module's files cannot be read, or there is no cache.
pub fn metrics(root: &Path) -> Result<PathBuf> {
    let files = ["go.mod", "go.sum", "main.go"];
    Ok(folder()?.join(format!("metrics-for-tests-{}", digest(root, METRICS_MODULE, &files)?)))
}

/// Path of the OpenTelemetry Collector, for the checkout at `root`, whether built yet or not.
///
/// # Errors
/// The module's files cannot be read, or there is no cache.
pub fn collector(root: &Path) -> Result<PathBuf> {
    let files = ["go.mod", "go.sum", "main.go"];
    let digest = digest(root, COLLECTOR_MODULE, &files)?;
    Ok(folder()?.join(format!("collector-for-tests-{digest}")))
}

/// What the tests use of Argo CD.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Argocd {
    /// Its CLI.
    pub cli: PathBuf,
    /// The judge: answers questions (RBAC, globs, ApplicationSets, YAML) by running Argo CD's code.
    pub judge: PathBuf,
    /// Folder with files of the release under their paths there: the example ApplicationSets of its
    /// documentation, and the definitions of its API.
    pub files: PathBuf,
    /// Release, with the `v`.
    pub version: String,
}

impl Argocd {
    /// Paths for the checkout at `root`, whether built yet or not. The names contain digests of
    /// the sources.
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
            files: named("argocd-files", None)?,
            version: version.to_owned(),
        })
    }
}

/// Path of the tests' Dex for the checkout at `root`, whether built yet or not.
///
/// # Errors
/// The module's files cannot be read, or there is no cache.
pub fn dex(root: &Path) -> Result<PathBuf> {
    Ok(folder()?.join(format!("dex-{}", digest(root, DEX_MODULE, &["go.mod", "go.sum"])?)))
}

/// Path of the program that evaluates Rego with OPA and CEL with cel-go, for the checkout at `root`,
/// whether built yet or not.
///
/// # Errors
/// The module's files cannot be read, or there is no cache.
pub fn engines(root: &Path) -> Result<PathBuf> {
    let mut files = vec!["go.mod".to_owned(), "go.sum".to_owned()];
    files.extend(sources(&root.join(ENGINES_MODULE), ".")?);
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    Ok(folder()?.join(format!("engines-for-tests-{}", digest(root, ENGINES_MODULE, &files)?)))
}

/// The Go files in a folder of a module, sorted, as paths relative to the module.
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

/// Short digest over the contents of a module's files.
fn digest(root: &Path, module: &str, files: &[&str]) -> Result<String> {
    let module = root.join(module);
    let mut digest = Sha256::new();
    for name in files {
        let path = module.join(name);
        digest.update(std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
    }
    Ok(short(&digest.finalize()))
}

/// The first bytes of a digest in hex, enough to tell folders apart.
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
    use std::path::Path;

    use super::{ENGINES_MODULE, KUBERNETES_MODULE, release};

    #[test]
    fn each_engine_has_one_release() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |module: &str| std::fs::read_to_string(root.join(module).join("go.mod")).unwrap();
        for (engine, other) in [
            ("github.com/open-policy-agent/opa", "benches/peers/opa"),
            ("github.com/google/cel-go", KUBERNETES_MODULE),
        ] {
            let (ours, theirs) = (read(ENGINES_MODULE), read(other));
            let ours = release(&ours, engine).unwrap();
            assert_eq!(
                Some(ours),
                release(&theirs, engine),
                "{engine} in {ENGINES_MODULE} and {other}"
            );
        }
    }

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
