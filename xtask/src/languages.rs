//! Guests in other languages: JavaScript by componentize-js, Python by
//! componentize-py.
//!
//! In: a program with a manifest, locked versions of the tools. Out: the same
//! files as [`crate::plugins`] writes. Never: a build where sources, contract and
//! tools are those of one that is kept; a tool without a digest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::plugins::{self, Built};
use crate::{execute, setup};

/// World of each guest, in the `world.wit` beside its program.
const WORLD: &str = "guest";

/// The component, among the files of a build.
const COMPONENT: &str = "component.wasm";

/// Components of one plugin that are kept, for changes to and fro.
const KEPT: usize = 4;

/// What a component is made with.
#[derive(Clone, Copy, Debug)]
enum Tool {
    /// SpiderMonkey, with the program compiled in. Without WASI.
    JavaScript,
    /// CPython, with the program imported. WASI traps.
    Python,
    /// The same, with WASI.
    PythonWithWasi,
}

/// One plugin.
struct Source {
    /// Name in its manifest.
    name: &'static str,
    /// Folder of program and manifest, from the root.
    folder: &'static str,
    program: &'static str,
    tool: Tool,
}

const SOURCES: [Source; 3] = [
    Source {
        name: "token-broker",
        folder: "plugins/other/javascript",
        program: "provider.js",
        tool: Tool::JavaScript,
    },
    Source {
        name: "session-broker",
        folder: "plugins/other/python",
        program: "provider.py",
        tool: Tool::Python,
    },
    Source {
        name: "surroundings",
        folder: "plugins/testing/surroundings",
        program: "provider.py",
        tool: Tool::PythonWithWasi,
    },
];

/// Names of these guests, whose files the build of the others leaves alone.
pub fn names() -> [&'static str; 3] {
    SOURCES.map(|source| source.name)
}

/// Builds them into `target/guests`. Cold it takes a minute and the registries of
/// both languages; warm it copies what is kept.
///
/// # Errors
/// Node.js or Python is missing (the text says what to install), a tool cannot be
/// installed, or a program is refused by its tool.
pub fn build(root: &Path) -> Result<Vec<Built>> {
    let output = root.join("target/guests");
    fs::create_dir_all(&output).with_context(|| format!("creating {}", output.display()))?;
    // Several checkouts share the tools; one installs them, the others wait.
    let lock = setup::cache()?.join("languages.lock");
    let lock = fs::File::create(&lock).with_context(|| format!("creating {}", lock.display()))?;
    lock.lock().context("waiting for another build")?;
    SOURCES
        .iter()
        .map(|source| {
            let component = source
                .component(root)
                .with_context(|| format!("building {}", source.folder))?;
            let manifest = root.join(source.folder).join("manifest.yaml");
            let built = plugins::write(&component, &manifest, &output)?;
            ensure!(built.name == source.name, "{} has another name", manifest.display());
            Ok(built)
        })
        .collect()
}

impl Source {
    /// The component: the one that is kept, or a new one.
    fn component(&self, root: &Path) -> Result<Vec<u8>> {
        let folder = root.join(self.folder);
        let sources = [folder.join(self.program), folder.join("world.wit")];
        let contract = contract(root)?;
        let mut parts = vec![format!("{:?}", self.tool).into_bytes()];
        for file in sources.iter().chain(&contract).chain(&self.tool.files(root)) {
            parts.push(read(file)?);
        }
        let shelf = cache("components")?;
        let kept = shelf.join(format!("{}-{}.wasm", self.name, digest(&parts)));
        if !kept.is_file() {
            // A folder of their own: the tools take in, and leave behind, what is beside
            // the program. On the same file system, for the last step.
            let desk = tempfile::tempdir_in(&shelf)?;
            lay_out(desk.path(), &sources, &contract)?;
            self.tool.run(root, desk.path(), self.program)?;
            fs::rename(desk.path().join(COMPONENT), &kept).with_context(|| format!("writing {}", kept.display()))?;
            forget_old(&shelf, &format!("{}-", self.name))?;
        }
        read(&kept)
    }
}

impl Tool {
    /// Files that say which tool it is, and last, if any, the script that calls it.
    fn files(self, root: &Path) -> Vec<PathBuf> {
        match self {
            Self::JavaScript => ["package.json", "package-lock.json", "build.js"]
                .map(|name| root.join("plugins/other/javascript").join(name))
                .into(),
            Self::Python | Self::PythonWithWasi => vec![root.join("plugins/other/python/requirements.txt")],
        }
    }

    /// Makes a component of the program on `desk`.
    fn run(self, root: &Path, desk: &Path, program: &str) -> Result<()> {
        let mut command = match self {
            Self::JavaScript => {
                let mut node = Command::new("node");
                node.arg(node_tools(root)?.join("build.js"))
                    .args([program, "wit", COMPONENT]);
                node
            }
            Self::Python | Self::PythonWithWasi => {
                let mut python = Command::new(python_tools(root)?.join("bin/componentize-py"));
                python.args(["--quiet", "--wit-path", "wit", "--world", WORLD, "componentize"]);
                if matches!(self, Self::Python) {
                    python.arg("--stub-wasi");
                }
                // Else it takes in whatever packages are at hand.
                python.env_remove("VIRTUAL_ENV").env_remove("PYTHONPATH");
                python.args(["--python-path", ".", "--output", COMPONENT]);
                python.arg(program.trim_end_matches(".py"));
                python
            }
        };
        execute(command.current_dir(desk))
    }
}

/// Puts program and world on `desk`, and the contract where the world finds it.
fn lay_out(desk: &Path, [program, world]: &[PathBuf; 2], contract: &[PathBuf]) -> Result<()> {
    let deps = desk.join("wit/deps/plugin");
    fs::create_dir_all(&deps).with_context(|| format!("creating {}", deps.display()))?;
    copy(program, desk)?;
    copy(world, &desk.join("wit"))?;
    contract.iter().try_for_each(|file| copy(file, &deps))
}

/// Copies a file into a folder.
fn copy(file: &Path, folder: &Path) -> Result<()> {
    let name = file.file_name().context("a file without a name")?;
    fs::copy(file, folder.join(name)).with_context(|| format!("copying {}", file.display()))?;
    Ok(())
}

/// A folder with the locked packages and `build.js` in it.
fn node_tools(root: &Path) -> Result<PathBuf> {
    if setup::find("node").is_none() {
        bail!("node is missing: install Node.js 20 or later (on Debian, as root: `apt-get install nodejs npm`)");
    }
    let files = Tool::JavaScript.files(root);
    let (_script, locked) = files.split_last().context("no lock file")?;
    let folder = tools("javascript", locked)?;
    files.iter().try_for_each(|file| copy(file, &folder))?;
    setup::node_modules(&folder)?;
    Ok(folder)
}

/// A virtual environment with the locked packages.
fn python_tools(root: &Path) -> Result<PathBuf> {
    let files = Tool::Python.files(root);
    let folder = tools("python", &files)?;
    let stamp = folder.join("installed");
    if stamp.is_file() {
        return Ok(folder);
    }
    let usable = Command::new("python3").args(["-c", "import ensurepip, venv"]).output();
    if !usable.is_ok_and(|output| output.status.success()) {
        bail!(
            "python3 with venv is missing: install Python 3.9 or later (on Debian, as root: `apt-get install python3-venv`)"
        );
    }
    execute(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]);
    pip.args([
        "--require-hashes",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--requirement",
    ]);
    execute(pip.args(&files))?;
    fs::write(&stamp, "").with_context(|| format!("writing {}", stamp.display()))?;
    Ok(folder)
}

/// The folder of what `files` lock.
fn tools(name: &str, files: &[PathBuf]) -> Result<PathBuf> {
    let contents: Vec<Vec<u8>> = files.iter().map(|file| read(file)).collect::<Result<_>>()?;
    cache(&format!("{name}-{}", digest(&contents)))
}

/// A folder beside the others that are kept.
fn cache(name: &str) -> Result<PathBuf> {
    let folder = setup::cache()?.join(name);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

/// The files of the contract, in the order of their names.
fn contract(root: &Path) -> Result<Vec<PathBuf>> {
    let folder = root.join("wit");
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

/// Removes the oldest components with names that begin with `prefix`.
fn forget_old(folder: &Path, prefix: &str) -> Result<()> {
    let mut kept: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            kept.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    kept.sort();
    kept.reverse();
    for (_, old) in kept.iter().skip(KEPT) {
        fs::remove_file(old).with_context(|| format!("removing {}", old.display()))?;
    }
    Ok(())
}

/// The first half of a digest over parts, so that no two lists of parts are one.
fn digest(parts: &[Vec<u8>]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        digest.update(part);
    }
    digest
        .finalize()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_border_between_parts_counts() {
        let of = |parts: &[&str]| digest(&parts.iter().map(|part| part.as_bytes().to_vec()).collect::<Vec<_>>());
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["ab"]), of(&["ab", ""]));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
        assert_eq!(of(&[]).len(), 32);
    }

    #[test]
    fn the_newest_components_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let at = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let make = |name: &str, seconds| {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_modified(at(seconds)).unwrap();
        };
        for age in 0..6 {
            make(&format!("mine-{age}"), 100 - age);
            make(&format!("other-{age}"), 100 - age);
        }
        forget_old(folder.path(), "mine-").unwrap();
        let mut names: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let mine: Vec<&String> = names.iter().filter(|name| name.starts_with("mine-")).collect();
        assert_eq!(mine, ["mine-0", "mine-1", "mine-2", "mine-3"]);
        assert_eq!(names.len(), 10, "those of others stay");
    }
}
