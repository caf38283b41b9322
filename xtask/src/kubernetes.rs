//! A real Kubernetes for the tests: etcd, kube-apiserver, kubectl.
//!
//! In: `tests/kubernetes/build`, a Go module that pins both projects. Out: the
//! binaries in the cache, built once. Never: a download outside Go's checksums,
//! nor a build where `KUBEBUILDER_ASSETS` names a folder.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};

use crate::cache::{KUBERNETES_MODULE, Kubernetes};
use crate::{execute, setup};

/// Builds what is missing and gives the folder.
///
/// # Errors
/// A given folder lacks a program, Go is missing or too old, or a build fails.
pub fn build(root: &Path) -> Result<Kubernetes> {
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
    setup::go().context("building Kubernetes for the tests; KUBEBUILDER_ASSETS may name a folder with binaries")?;
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    eprintln!(
        "building Kubernetes {version} into {} (once, minutes)",
        folder.display()
    );
    for (index, program) in missing.iter().enumerate() {
        eprintln!("building {program} ({} of {})", index + 1, missing.len());
        let start = SystemTime::now();
        go_build(&root.join(KUBERNETES_MODULE), folder, program, version)?;
        let took = start.elapsed().unwrap_or_default().as_secs();
        eprintln!("built {program} in {took} s");
    }
    Ok(kubernetes)
}

/// Builds one program; it appears under its name only when it is whole.
fn go_build(module: &Path, folder: &Path, program: &str, version: &str) -> Result<()> {
    let package = match program {
        "etcd" => "go.etcd.io/etcd/server/v3",
        "kube-apiserver" => "k8s.io/kubernetes/cmd/kube-apiserver",
        "kubectl" => "k8s.io/kubernetes/cmd/kubectl",
        other => bail!("`{other}` is no program of the module"),
    };
    let partial = folder.join(format!("{program}.{}.partial", std::process::id()));
    let mut command = Command::new("go");
    command
        .args(["build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags"])
        .arg(linker_flags(version))
        .arg("-o")
        .arg(&partial)
        .arg(package)
        .current_dir(module);
    // A static binary, whatever C compiler is here; no other toolchain, no workspace.
    command
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off");
    execute(&mut command).with_context(|| format!("building {program}"))?;
    let whole = folder.join(program);
    std::fs::rename(&partial, &whole).with_context(|| format!("writing {}", whole.display()))
}

/// No symbols, and the version as a release has it: without, a server says
/// `v0.0.0` and kubectl warns of its age.
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
