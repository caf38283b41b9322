//! Local git repositories that stand in for the URLs in ApplicationSets. Argo CD's repository
//! server and our own reader get the same commits, without a network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tollgate_applicationset::inputs::InputError;
use tollgate_applicationset::{GenerationBudget, GitTree, Repositories};
use tollgate_config::{GitCache, GitLimits};
use tollgate_objects::Resources;
use tollgate_repository::RepositoryStore;

/// Local repositories by the URL they stand in for.
#[derive(Debug)]
pub(crate) struct LocalRepositories {
    folders: BTreeMap<String, PathBuf>,
    store: RepositoryStore,
    resources: Resources,
    root: TempDir,
}

impl LocalRepositories {
    /// No repository yet.
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let pattern = format!("{}/*", root.path().display());
        Self {
            folders: BTreeMap::new(),
            store: RepositoryStore::new(GitLimits::default(), &GitCache::default(), &[pattern]).unwrap(),
            resources: Resources::default(),
            root,
        }
    }

    /// Adds a repository with one commit on `main` that has these files, by path.
    pub(crate) fn with(mut self, url: &str, files: &BTreeMap<String, Vec<u8>>) -> Self {
        let folder = self.root.path().join(format!("repository-{}", self.folders.len()));
        std::fs::create_dir(&folder).unwrap();
        git(&folder, &["init", "--quiet", "--initial-branch=main"]);
        for (path, content) in files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        git(&folder, &["add", "--all"]);
        git(&folder, &["commit", "--quiet", "--message=all"]);
        self.folders.insert(url.to_owned(), folder);
        self
    }

    /// Adds another URL for the repository at `other`.
    pub(crate) fn also(mut self, url: &str, other: &str) -> Self {
        let folder = self.folders[other].clone();
        self.folders.insert(url.to_owned(), folder);
        self
    }

    /// The folder of each URL.
    pub(crate) fn folders(&self) -> &BTreeMap<String, PathBuf> {
        &self.folders
    }
}

impl Repositories for LocalRepositories {
    fn open(&self, url: &str, revision: &str, budget: &GenerationBudget) -> Result<Box<dyn GitTree>, InputError> {
        let Some(folder) = self.folders.get(url) else {
            return Err(InputError(format!("no test has the repository `{url}`")));
        };
        let reader = self.store.reader(&self.resources, "");
        reader.open(&format!("file://{}", folder.display()), revision, budget)
    }
}

/// Runs git as a test author, without the user's configuration and hooks.
fn git(folder: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "user.name=test", "-c", "user.email=test@example.invalid"])
        .args(["-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap_or_else(|error| panic!("git is missing, `cargo xtask setup` installs it: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {stderr}");
}

/// Every file below a folder, by its path relative to the folder.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}
