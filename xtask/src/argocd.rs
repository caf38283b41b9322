//! Puts into the cache what the tests use of Argo CD: its CLI, the judge (a program that runs
//! Argo CD's own code), the examples from its documentation, and the definitions of its API; and Dex,
//! which signs people in for it. The Go modules `tests/argocd` and `tests/dex` pin the releases.
//!
//! Invariant: no text or code of Argo CD is in the checkout.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::go;
use crate::kubernetes::ARGO_CD;
use xtask::cache::{ARGOCD_MODULE, Argocd, DEX_MODULE, dex};

/// Folders of Argo CD's module with examples of ApplicationSets.
const EXAMPLES: [&str; 2] = ["docs/operator-manual/applicationset", "applicationset/examples"];

/// Files of Argo CD's module that define its API, besides `server/*/*.proto`.
const API: [&str; 2] = ["assets/swagger.json", "pkg/apis/application/v1alpha1/generated.proto"];

/// The file of Kubernetes' types that those of the API are made of, in a separate module.
const META: (&str, &str) = ("k8s.io/apimachinery", "pkg/apis/meta/v1/generated.proto");

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
    // SQLite, one of its stores, is in C.
    go::program_with_c(
        &root.join(DEX_MODULE),
        &dex(root)?,
        "github.com/dexidp/dex/cmd/dex",
        "-s -w",
    )?;
    fetch_files(&module, &argocd.files)?;
    Ok(argocd)
}

/// Copies the files out of the release's Go module, which has a checksum.
fn fetch_files(module: &Path, folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    eprintln!("fetching {}", folder.display());
    let source = go::module(module, ARGO_CD)?;
    let partial = folder.with_extension(format!("{}.partial", std::process::id()));
    for part in EXAMPLES {
        copy(&source.join(part), &partial.join(part))?;
    }
    for file in API {
        copy_file(&source.join(file), &partial.join(file))?;
    }
    for service in paths(&source.join("server"))? {
        for file in service
            .is_dir()
            .then(|| paths(&service))
            .transpose()?
            .unwrap_or_default()
        {
            if file.extension() == Some(OsStr::new("proto")) {
                let name = file.strip_prefix(&source)?;
                copy_file(&file, &partial.join(name))?;
            }
        }
    }
    let (name, file) = META;
    copy_file(&go::module(module, name)?.join(file), &partial.join(name).join(file))?;
    std::fs::rename(&partial, folder).with_context(|| format!("writing {}", folder.display()))
}

/// What a folder has in it.
fn paths(folder: &Path) -> Result<Vec<PathBuf>> {
    let reading = || format!("reading {}", folder.display());
    let entries = std::fs::read_dir(folder).with_context(reading)?;
    let paths = entries.map(|entry| Ok(entry.with_context(reading)?.path()));
    paths.collect()
}

/// Copies a folder without its permissions: Go's module cache is read-only, the copy is not.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for path in paths(from)? {
        let target = to.join(path.file_name().unwrap_or(OsStr::new("")));
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            copy_file(&path, &target)?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().unwrap_or(Path::new(""));
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let text = std::fs::read(from).with_context(|| format!("reading {}", from.display()))?;
    std::fs::write(to, text).with_context(|| format!("writing {}", to.display()))
}
