//! Puts into the cache what the tests use of Argo CD: its CLI, the judge (a program that runs
//! Argo CD's own code), and the examples from its documentation. `tests/argocd`, a Go module,
//! pins the release.
//!
//! Invariant: no text or code of Argo CD is in the checkout.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::go;
use crate::kubernetes::ARGO_CD;
use xtask::cache::{ARGOCD_MODULE, Argocd};

/// Folders of Argo CD's module with examples of ApplicationSets.
const EXAMPLES: [&str; 2] = ["docs/operator-manual/applicationset", "applicationset/examples"];

/// Builds or fetches what is missing, and returns the paths.
///
/// # Errors
/// Go is missing or too old, or a download or build fails.
pub fn build(root: &Path) -> Result<Argocd> {
    let argocd = Argocd::find(root)?;
    let module = root.join(ARGOCD_MODULE);
    let version = argocd.version.trim_start_matches('v');
    let flags = format!("-s -w -X {ARGO_CD}/common.version={version}");
    // They share most packages, so the second build takes seconds.
    go::program(&module, &argocd.cli, "./argocd", &flags)?;
    go::program(&module, &argocd.judge, "./judge", "-s -w")?;
    fetch_examples(&module, &argocd.examples)?;
    Ok(argocd)
}

/// Copies the examples out of the release's Go module, which has a checksum.
fn fetch_examples(module: &Path, folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    eprintln!("fetching {}", folder.display());
    let source = go::module(module, ARGO_CD)?;
    let partial = folder.with_extension(format!("{}.partial", std::process::id()));
    for part in EXAMPLES {
        copy(&source.join(part), &partial.join(part))?;
    }
    std::fs::rename(&partial, folder).with_context(|| format!("writing {}", folder.display()))
}

/// Copies a folder without its permissions: Go's module cache is read-only, the copy is not.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    let entries = std::fs::read_dir(from).with_context(|| format!("reading {}", from.display()))?;
    for entry in entries {
        let path: PathBuf = entry.with_context(|| format!("reading {}", from.display()))?.path();
        let target = to.join(path.file_name().unwrap_or(OsStr::new("")));
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            let text = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            std::fs::write(&target, text).with_context(|| format!("writing {}", target.display()))?;
        }
    }
    Ok(())
}
