//! The pictures of the console in the documentation: which there are, and whether they still show the
//! pages of today.
//!
//! `cargo xtask pictures` takes them in the world of `cargo xtask world`. Beside them is a digest of what
//! the pages are made of, which a test compares.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sha2::{Digest as _, Sha256};

/// Where the pictures are.
pub const FOLDER: &str = "docs/pictures";

/// Where the world leaves those that it takes.
const TAKEN: &str = "target/pictures/docs";

/// The file with the digest.
const DIGEST: &str = "pages.sha256";

/// What the pages are made of.
const SOURCES: [&str; 3] = ["host/console/templates", "host/console/assets", "host/front/templates"];

/// Digest of the names and texts of all files that the pages are made of, as hex.
///
/// # Errors
/// A file cannot be read.
pub fn digest_of_pages(root: &Path) -> Result<String> {
    let mut digest = Sha256::new();
    for folder in SOURCES {
        for path in files(&root.join(folder))? {
            let text = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            digest.update(name.as_bytes());
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(&text);
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The digest of the pages of which the pictures were taken.
///
/// # Errors
/// There is none.
pub fn digest_of_pictures(root: &Path) -> Result<String> {
    let path = root.join(FOLDER).join(DIGEST);
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(text.trim().to_owned())
}

/// The names of the pictures.
///
/// # Errors
/// The folder cannot be read.
pub fn names(root: &Path) -> Result<Vec<String>> {
    let names = files(&root.join(FOLDER))?;
    let names = names.iter().filter_map(|path| path.file_name()?.to_str());
    Ok(names.filter(|name| *name != DIGEST).map(str::to_owned).collect())
}

/// Replaces the pictures by those that the world took.
///
/// # Errors
/// There are none, or a file cannot be written.
pub fn replace(root: &Path) -> Result<()> {
    let (taken, folder) = (files(&root.join(TAKEN))?, root.join(FOLDER));
    ensure!(!taken.is_empty(), "no picture was taken");
    if folder.is_dir() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    for path in taken {
        let to = folder.join(path.file_name().unwrap_or_default());
        std::fs::copy(&path, &to).with_context(|| format!("writing {}", to.display()))?;
    }
    let digest = format!("{}\n", digest_of_pages(root)?);
    let path = folder.join(DIGEST);
    std::fs::write(&path, digest).with_context(|| format!("writing {}", path.display()))
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let about = || format!("reading {}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(about)? {
        files.push(entry.with_context(about)?.path());
    }
    files.sort();
    Ok(files)
}
