//! `cargo xtask lint`: checks formatting, lints, documentation and dependencies, and stops at the
//! first finding. Warnings count as findings.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{execute, run, setup};

/// Release of cargo-deny for which `deny.toml` is written.
const CARGO_DENY: &str = "0.20.2";

/// Workspaces whose formatting is checked.
const WORKSPACES: [&str; 3] = ["Cargo.toml", "plugins/Cargo.toml", "benches/peers/casbin/Cargo.toml"];

/// Checks formatting, lints, documentation, licenses and sources.
#[derive(Debug, Default, clap::Args)]
pub struct Lint {
    /// Also check the advisories, which needs access to their database on the network.
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
            // No other build includes the fuzz targets.
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

    /// Checks licenses, duplicates and sources of everything in the lock file.
    fn deny(self, root: &Path) -> Result<()> {
        let mut command = Command::new(cargo_deny()?);
        command.current_dir(root).args(["--all-features", "--locked"]);
        if self.advisories {
            return execute(command.args(["check", "all"]));
        }
        println!("advisories are not checked: where their database is reachable, run `cargo xtask lint --advisories`");
        // cargo-deny runs offline but reads every crate of the lock file, also those that are never
        // built on this machine.
        run(root, "cargo", &["fetch", "--locked"])?;
        execute(command.args(["--offline", "check", "licenses", "bans", "sources"]))
    }
}

/// Checks the formatting of the Go code of peers and tests.
fn gofmt(root: &Path) -> Result<()> {
    setup::go()?;
    let output = Command::new("gofmt")
        .args(["-l", "benches/peers", "tests"])
        .current_dir(root)
        .output()
        .context("running gofmt, which comes with Go")?;
    let files = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && files.is_empty(),
        "run gofmt -w on: {}",
        files.trim().replace('\n', ", ")
    );
    Ok(())
}

/// Path of cargo-deny. If it is not on the PATH, it is built once into the tool cache.
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
            // Optimized, it takes three minutes to build instead of one, and saves two seconds a check.
            .args([
                "install",
                "cargo-deny",
                "--debug",
                "--locked",
                "--version",
                CARGO_DENY,
                "--root",
            ])
            .arg(&folder)
            .env("CARGO_PROFILE_DEV_DEBUG", "none");
        // A separate target folder, so that it does not fill the checkout's.
        install.arg("--target-dir").arg(folder.join("target"));
        execute(&mut install).context("building cargo-deny")?;
        std::fs::remove_dir_all(folder.join("target")).context("removing its build folder")?;
    }
    Ok(program)
}
