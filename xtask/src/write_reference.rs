//! `cargo xtask reference`: writes the pages of `docs/reference`, which are made from the program.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::reference::{self, Sources};

use crate::run;

#[derive(Debug, clap::Args)]
pub(crate) struct WriteReference {
    /// Write nothing, and fail if a page differs from the program
    #[arg(long)]
    check: bool,
}

impl WriteReference {
    pub(crate) fn run(&self, root: &Path) -> Result<()> {
        let pages = reference::pages(root, &sources(root)?)?;
        match self.check {
            true => reference::check(root, &pages),
            false => reference::write(root, &pages),
        }
    }
}

/// Builds the program, and what tells the facts that it does not print, and asks both.
pub(crate) fn sources(root: &Path) -> Result<Sources> {
    let build = [
        "build",
        "--workspace",
        "--locked",
        "--bin",
        "tollgate",
        "--example",
        "reference",
    ];
    run(root, "cargo", &build)?;
    let program = root.join("target/debug/tollgate");
    let settings = reference::output(&program, &["check", "--schema"])?;
    let output = Command::new(root.join("target/debug/examples/reference")).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(Sources {
        settings: serde_json::from_str(&settings).context("reading the schema of the settings")?,
        help: reference::help(&program)?,
        facts: serde_json::from_slice(&output.stdout).context("reading what the example `reference` prints")?,
    })
}
