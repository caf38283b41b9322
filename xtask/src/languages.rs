//! Builds the guests written in JavaScript (with componentize-js) and Python (with
//! componentize-py), and writes the same files as [`crate::plugins`]. Components are cached by a
//! digest of sources, contract and tools.
//!
//! Security: the tools are installed only from lock files with a hash of each package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::plugins::{self, Built};
use crate::{execute, setup};

/// Name of the world in the `world.wit` beside each guest's program.
const WORLD: &str = "guest";

/// File name of the component in the folder of a build.
const COMPONENT: &str = "component.wasm";

/// How many components of one plugin stay in the cache, so that switching between versions does
/// not rebuild them.
const MAX_CACHED: usize = 4;

/// The tool that makes a component.
#[derive(Clone, Copy, Debug)]
enum Tool {
    /// componentize-js: SpiderMonkey with the program compiled in, without WASI.
    JavaScript,
    /// componentize-py: CPython with the program imported. Calls of WASI trap.
    Python,
    /// componentize-py, with WASI.
    PythonWithWasi,
}

/// A plugin to build.
struct Source {
    /// Name in its manifest.
    name: &'static str,
    /// Folder of the program and the manifest, relative to the root.
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

/// Names of these guests. The build of the Rust guests must keep their files.
pub fn names() -> [&'static str; 3] {
    SOURCES.map(|source| source.name)
}

/// Builds them into `target/guests`. The first build takes a minute and needs the package
/// registries of both languages; later builds copy cached components.
///
/// # Errors
/// Node.js or Python is missing (the text says what to install), a tool cannot be installed, or a
/// tool fails to build a program.
pub fn build(root: &Path) -> Result<Vec<Built>> {
    let output = root.join("target/guests");
    fs::create_dir_all(&output).with_context(|| format!("creating {}", output.display()))?;
    // Checkouts share the tools: one installs them, the others wait.
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
            ensure!(
                built.name == source.name,
                "{}: the name is `{}`, expected `{}`",
                manifest.display(),
                built.name,
                source.name
            );
            Ok(built)
        })
        .collect()
}

impl Source {
    /// The cached component, or a new one.
    fn component(&self, root: &Path) -> Result<Vec<u8>> {
        let folder = root.join(self.folder);
        let sources = [folder.join(self.program), folder.join("world.wit")];
        let contract = contract(root)?;
        let mut parts = vec![format!("{:?}", self.tool).into_bytes()];
        for file in sources.iter().chain(&contract).chain(&self.tool.files(root)) {
            parts.push(read(file)?);
        }
        let components = cache("components")?;
        let cached = components.join(format!("{}-{}.wasm", self.name, digest(&parts)));
        if !cached.is_file() {
            // The tools read and write files beside the program, so it is copied to a separate
            // folder, on the same file system so that the component can be renamed.
            let build = tempfile::tempdir_in(&components)?;
            copy_sources(build.path(), &sources, &contract)?;
            self.tool.run(root, build.path(), self.program)?;
            fs::rename(build.path().join(COMPONENT), &cached)
                .with_context(|| format!("writing {}", cached.display()))?;
            remove_old(&components, &format!("{}-", self.name))?;
        }
        read(&cached)
    }
}

impl Tool {
    /// Files that pin the tool's version, followed by the script that calls it, if there is one.
    fn files(self, root: &Path) -> Vec<PathBuf> {
        match self {
            Self::JavaScript => ["package.json", "package-lock.json", "build.js"]
                .map(|name| root.join("plugins/other/javascript").join(name))
                .into(),
            Self::Python | Self::PythonWithWasi => vec![root.join("plugins/other/python/requirements.txt")],
        }
    }

    /// Makes a component of the program in the folder `build`.
    fn run(self, root: &Path, build: &Path, program: &str) -> Result<()> {
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
                // Otherwise it would include packages from there.
                python.env_remove("VIRTUAL_ENV").env_remove("PYTHONPATH");
                python.args(["--python-path", ".", "--output", COMPONENT]);
                python.arg(program.trim_end_matches(".py"));
                python
            }
        };
        execute(command.current_dir(build))
    }
}

/// Copies the program and its world to `build`, and the contract to the folder of dependencies.
fn copy_sources(build: &Path, [program, world]: &[PathBuf; 2], contract: &[PathBuf]) -> Result<()> {
    let deps = build.join("wit/deps/plugin");
    fs::create_dir_all(&deps).with_context(|| format!("creating {}", deps.display()))?;
    copy(program, build)?;
    copy(world, &build.join("wit"))?;
    contract.iter().try_for_each(|file| copy(file, &deps))
}

/// Copies a file into a folder.
fn copy(file: &Path, folder: &Path) -> Result<()> {
    let name = file.file_name().context("a file without a name")?;
    fs::copy(file, folder.join(name)).with_context(|| format!("copying {}", file.display()))?;
    Ok(())
}

/// Installs the locked packages; returns their folder, which also contains `build.js`.
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

/// Installs the locked packages into a virtual environment; returns its folder.
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

/// The folder for the tools that `files` lock.
fn tools(name: &str, files: &[PathBuf]) -> Result<PathBuf> {
    let contents: Vec<Vec<u8>> = files.iter().map(|file| read(file)).collect::<Result<_>>()?;
    cache(&format!("{name}-{}", digest(&contents)))
}

/// Creates a folder of the tool cache.
fn cache(name: &str) -> Result<PathBuf> {
    let folder = setup::cache()?.join(name);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

/// The files of the contract, sorted by name.
fn contract(root: &Path) -> Result<Vec<PathBuf>> {
    let folder = root.join("wit");
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

/// Of the components whose names begin with `prefix`, removes all but the newest [`MAX_CACHED`].
fn remove_old(folder: &Path, prefix: &str) -> Result<()> {
    let mut cached: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            cached.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    cached.sort();
    cached.reverse();
    for (_, old) in cached.iter().skip(MAX_CACHED) {
        fs::remove_file(old).with_context(|| format!("removing {}", old.display()))?;
    }
    Ok(())
}

/// The first half of a digest over `parts`. Each part is preceded by its length, so that moving a
/// boundary changes the digest.
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
    fn moving_a_boundary_between_parts_changes_the_digest() {
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
        remove_old(folder.path(), "mine-").unwrap();
        let mut names: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let mine: Vec<&String> = names.iter().filter(|name| name.starts_with("mine-")).collect();
        assert_eq!(mine, ["mine-0", "mine-1", "mine-2", "mine-3"]);
        assert_eq!(names.len(), 10, "components of other plugins must stay");
    }
}
