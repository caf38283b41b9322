//! Builds the peers in benches/peers into the tool cache. Their own sources come from the Go
//! module proxy and crates.io.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{execute, setup};

/// The measured programs that are built from source.
#[derive(Debug)]
pub(super) struct Binaries {
    /// Argo CD's enforcer and extension proxy.
    pub(super) argocd: PathBuf,
    /// The program around OPA's SDK.
    pub(super) opa: PathBuf,
    /// The program around casbin-rs.
    pub(super) casbin: PathBuf,
}

/// Builds the three peers. The first build takes minutes, because Argo CD is large.
pub(super) fn build(root: &Path) -> Result<Binaries> {
    let folder = setup::cache()?.join("peers");
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let source = root.join("benches/peers");
    println!("building the peers into {} (minutes the first time)", folder.display());
    Ok(Binaries {
        argocd: go(&source.join("argocd"), folder.join("argocd"))?,
        opa: go(&source.join("opa"), folder.join("opa"))?,
        casbin: casbin(&source.join("casbin"), &folder)?,
    })
}

/// Builds a Go peer. With Go's build cache this takes seconds if nothing changed.
fn go(source: &Path, binary: PathBuf) -> Result<PathBuf> {
    let mut build = Command::new("go");
    build
        .args(["build", "-trimpath", "-mod=readonly", "-o"])
        .arg(&binary)
        .arg(".")
        .current_dir(source);
    execute(build.env("GOTOOLCHAIN", "local").env("GOWORK", "off"))?;
    Ok(binary)
}

fn casbin(source: &Path, folder: &Path) -> Result<PathBuf> {
    let target = folder.join("casbin");
    let mut build = Command::new("cargo");
    build
        .args(["build", "--release", "--locked"])
        .current_dir(source)
        .env("CARGO_TARGET_DIR", &target);
    execute(&mut build)?;
    Ok(target.join("release/casbin-peer"))
}
