//! Puts into the cache what the tests need for a real Kubernetes API server: etcd,
//! kube-apiserver, kubectl, kube-controller-manager, helm, a fake kubelet, the CustomResourceDefinitions
//! of Argo CD, the Gateway API and the Prometheus Operator, and a program with Prometheus' parser. The Go
//! modules `tests/kubernetes/{build,controllers,helm,kubelet,crds}`, `tests/metrics` and `tests/collector` pin the releases.
//! If `KUBEBUILDER_ASSETS` is set, the control plane in that folder is used instead of a build.
//!
//! Security: everything is downloaded as Go modules, which have checksums.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::go;
use xtask::cache::{
    COLLECTOR_MODULE, CONTROLLERS_MODULE, CRDS_MODULE, HELM_MODULE, KUBELET_MODULE, KUBERNETES_MODULE, METRICS_MODULE,
};
use xtask::cache::{CRDS, Kubernetes, OPTIONAL_CRDS};
use xtask::cache::{collector, controller_manager, crds, helm, kubelet, metrics};

/// Go module of Argo CD.
pub const ARGO_CD: &str = "github.com/argoproj/argo-cd/v3";

/// Builds what is missing, and returns the control plane.
///
/// # Errors
/// The folder in `KUBEBUILDER_ASSETS` lacks a program, Go is missing or too old, or a build fails.
pub fn build(root: &Path) -> Result<Kubernetes> {
    let kubernetes = build_control_plane(root)?;
    build_helm(root)?;
    let (controllers, version) = controller_manager(root)?;
    let controller_flags = linker_flags(&version);
    let programs = [
        (kubelet(root)?, KUBELET_MODULE, ".", "-s -w"),
        (metrics(root)?, METRICS_MODULE, ".", "-s -w"),
        (collector(root)?, COLLECTOR_MODULE, ".", "-s -w"),
        (
            controllers,
            CONTROLLERS_MODULE,
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            controller_flags.as_str(),
        ),
    ];
    for (program, module, package, flags) in programs {
        go::program(&root.join(module), &program, package, flags)?;
    }
    fetch_crds(root)?;
    Ok(kubernetes)
}

/// Builds helm, unless cached, and returns its path.
///
/// # Errors
/// Go is missing or too old, or the build fails.
pub fn build_helm(root: &Path) -> Result<PathBuf> {
    let (program, version) = helm(root)?;
    let flags = format!("-s -w -X helm.sh/helm/v4/internal/version.version={version}");
    go::program(&root.join(HELM_MODULE), &program, "helm.sh/helm/v4/cmd/helm", &flags)?;
    Ok(program)
}

/// Copies CustomResourceDefinitions out of the Go modules of their releases, which have checksums.
fn fetch_crds(root: &Path) -> Result<()> {
    let folder = crds(root)?;
    let argocd = CRDS.map(|name| (ARGO_CD, "manifests/crds", name));
    let wanted = argocd.into_iter().chain(OPTIONAL_CRDS);
    let missing: Vec<_> = wanted.filter(|(_, _, name)| !folder.join(name).is_file()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("fetching {}", folder.display());
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    for (module, path, name) in missing {
        let module = go::module(&root.join(CRDS_MODULE), module)?;
        let (from, to) = (module.join(path).join(name), folder.join(name));
        let text = std::fs::read(&from).with_context(|| format!("reading {}", from.display()))?;
        let partial = to.with_extension(format!("{}.partial", std::process::id()));
        std::fs::write(&partial, text)
            .and_then(|()| std::fs::rename(&partial, &to))
            .with_context(|| format!("writing {}", to.display()))?;
    }
    Ok(())
}

fn build_control_plane(root: &Path) -> Result<Kubernetes> {
    let kubernetes = Kubernetes::find(root)?;
    let missing = kubernetes.missing();
    let Kubernetes::Built { folder, version } = &kubernetes else {
        ensure!(
            missing.is_empty(),
            "{} has no {}: {}",
            kubernetes.folder().display(),
            missing.join(", "),
            kubernetes.remedy()
        );
        return Ok(kubernetes);
    };
    if missing.is_empty() {
        return Ok(kubernetes);
    }
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    eprintln!(
        "building Kubernetes {version} into {} (minutes, once)",
        folder.display()
    );
    for (index, program) in missing.iter().enumerate() {
        eprintln!("{} of {}", index + 1, missing.len());
        let package = match *program {
            "etcd" => "go.etcd.io/etcd/server/v3",
            "kube-apiserver" => "k8s.io/kubernetes/cmd/kube-apiserver",
            "kubectl" => "k8s.io/kubernetes/cmd/kubectl",
            other => bail!("the module has no program `{other}`"),
        };
        let flags = linker_flags(version);
        go::program(&root.join(KUBERNETES_MODULE), &folder.join(program), package, &flags)?;
    }
    Ok(kubernetes)
}

/// Flags that omit symbols and set the version as in a release. Without them the server reports
/// `v0.0.0`, and kubectl warns that it is too old.
fn linker_flags(version: &str) -> String {
    let mut flags = "-s -w".to_owned();
    let mut numbers = version.trim_start_matches('v').split('.');
    let values = [
        ("gitVersion", version),
        ("gitMajor", numbers.next().unwrap_or_default()),
        ("gitMinor", numbers.next().unwrap_or_default()),
        ("gitTreeState", "clean"),
    ];
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in values {
            flags.push_str(&format!(" -X {package}.{name}={value}"));
        }
    }
    flags
}
