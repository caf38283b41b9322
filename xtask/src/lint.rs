//! `cargo xtask lint`: what a reviewer should not have to say.
//!
//! In: the checkout. Out: nothing, or the first finding. Never: a warning that
//! passes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{execute, run, setup};

/// Release of cargo-deny; `deny.toml` is written for it.
const CARGO_DENY: &str = "0.20.2";

/// Workspaces whose formatting is checked.
const WORKSPACES: [&str; 3] = ["Cargo.toml", "plugins/Cargo.toml", "benches/peers/casbin/Cargo.toml"];

/// Checks formatting, lints, documentation, licences and sources.
#[derive(Debug, Default, clap::Args)]
pub struct Lint {
    /// Also check the advisories; needs a network that reaches their database.
    #[arg(long)]
    advisories: bool,
}

impl Lint {
    /// Runs the task.
    ///
    /// # Errors
    /// The first check that finds something.
    pub fn run(self, root: &Path) -> Result<()> {
        for manifest in WORKSPACES.iter().filter(|manifest| root.join(manifest).is_file()) {
            run(root, "cargo", &["fmt", "--all", "--check", "--manifest-path", manifest])?;
        }
        gofmt(root)?;
        let clippy = [
            "clippy",
            "--workspace",
            "--all-targets",
            // The fuzz targets are part of no other build.
            "--features",
            "tollgate/fuzz",
            "--locked",
            "--",
            "-D",
            "warnings",
        ];
        run(root, "cargo", &clippy)?;
        execute(
            Command::new("cargo")
                .args([
                    "doc",
                    "--workspace",
                    "--no-deps",
                    "--locked",
                    "--document-private-items",
                ])
                .env("RUSTDOCFLAGS", "-D warnings")
                .current_dir(root),
        )?;
        self.deny(root)
    }

    /// Checks licences, duplicates and sources of everything in the lock file.
    fn deny(self, root: &Path) -> Result<()> {
        let mut command = Command::new(cargo_deny()?);
        command.current_dir(root).args(["--all-features", "--locked"]);
        if self.advisories {
            return execute(command.args(["check", "all"]));
        }
        println!(
            "advisories are not checked here: `cargo xtask lint --advisories` does, where their database is reachable"
        );
        // The lock file names crates that are not built here, and those are not there yet.
        run(root, "cargo", &["fetch", "--locked"])?;
        execute(command.args(["--offline", "check", "licenses", "bans", "sources"]))
    }
}

/// Checks the formatting of the peers' Go, where Go is.
fn gofmt(root: &Path) -> Result<()> {
    if setup::find("gofmt").is_none() {
        println!("gofmt is missing: the formatting of benches/peers is not checked");
        return Ok(());
    }
    let output = Command::new("gofmt")
        .args(["-l", "benches/peers"])
        .current_dir(root)
        .output()?;
    let files = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && files.is_empty(),
        "run gofmt -w on: {}",
        files.trim().replace('\n', ", ")
    );
    Ok(())
}

/// The program, installed once into the tool cache when it is not on the PATH.
fn cargo_deny() -> Result<PathBuf> {
    if let Some(found) = setup::find("cargo-deny") {
        return Ok(found);
    }
    let folder = setup::cache()?.join(format!("cargo-deny-{CARGO_DENY}"));
    let program = folder.join("bin/cargo-deny");
    if !program.is_file() {
        println!("building cargo-deny {CARGO_DENY} into {} (once)", folder.display());
        let mut install = Command::new("cargo");
        install
            .args(["install", "cargo-deny", "--locked", "--version", CARGO_DENY, "--root"])
            .arg(&folder);
        // Its own target folder: the checkout's must not be filled with it.
        install.arg("--target-dir").arg(folder.join("target"));
        execute(&mut install).context("building cargo-deny")?;
        std::fs::remove_dir_all(folder.join("target")).context("removing its build folder")?;
    }
    Ok(program)
}
