//! A real Kubernetes for the tests: etcd, kube-apiserver, kubectl, and a kubelet
//! that is none.
//!
//! In: `tests/kubernetes/build`, a Go module that pins both projects, and
//! `tests/kubernetes/kubelet`. Out: the binaries in the cache, built once. Never: a
//! download outside Go's checksums, nor a build of what `KUBEBUILDER_ASSETS` gives.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};

use crate::cache::{KUBELET_MODULE, KUBERNETES_MODULE, Kubernetes, kubelet};
use crate::{execute, setup};

/// Builds what is missing and gives the folder.
///
/// # Errors
/// A given folder lacks a program, Go is missing or too old, or a build fails.
pub fn build(root: &Path) -> Result<Kubernetes> {
    let kubernetes = build_control_plane(root)?;
    let kubelet = kubelet(root)?;
    if !kubelet.is_file() {
        go_is_there()?;
        eprintln!("building {}", kubelet.display());
        go_build(&root.join(KUBELET_MODULE), &kubelet, ".", "-s -w")?;
    }
    Ok(kubernetes)
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
    go_is_there()?;
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    eprintln!(
        "building Kubernetes {version} into {} (once, minutes)",
        folder.display()
    );
    for (index, program) in missing.iter().enumerate() {
        eprintln!("building {program} ({} of {})", index + 1, missing.len());
        let start = SystemTime::now();
        let package = match *program {
            "etcd" => "go.etcd.io/etcd/server/v3",
            "kube-apiserver" => "k8s.io/kubernetes/cmd/kube-apiserver",
            "kubectl" => "k8s.io/kubernetes/cmd/kubectl",
            other => bail!("`{other}` is no program of the module"),
        };
        let flags = linker_flags(version);
        go_build(&root.join(KUBERNETES_MODULE), &folder.join(program), package, &flags)?;
        let took = start.elapsed().unwrap_or_default().as_secs();
        eprintln!("built {program} in {took} s");
    }
    Ok(kubernetes)
}

fn go_is_there() -> Result<()> {
    setup::go().context("building Kubernetes for the tests; KUBEBUILDER_ASSETS may name a folder with binaries")
}

/// Builds one program; it appears under its name only when it is whole.
fn go_build(module: &Path, program: &Path, package: &str, linker_flags: &str) -> Result<()> {
    let partial = program.with_extension(format!("{}.partial", std::process::id()));
    let mut command = Command::new("go");
    command
        .args(["build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags"])
        .arg(linker_flags)
        .arg("-o")
        .arg(&partial)
        .arg(package)
        .current_dir(module);
    // A static binary, whatever C compiler is here; no other toolchain, no workspace.
    command
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off");
    execute(&mut command).with_context(|| format!("building {}", program.display()))?;
    std::fs::rename(&partial, program).with_context(|| format!("writing {}", program.display()))
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
