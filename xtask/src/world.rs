//! `cargo xtask world`: runs a whole Argo CD on loopback (argocd-server, controllers, repo-server,
//! Redis, a real API server with controllers, a git repository) with a gateway in front of it. The
//! program is the example `world`, which shares its parts with the tests.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{argocd, execute, kubernetes, setup};

/// Starts a whole Argo CD with the gateway in front, and prints how to use it.
#[derive(Debug, clap::Args)]
pub struct World {
    /// Make a tour with the real `argocd`, compare it with the same commands sent straight to
    /// argocd-server, and exit.
    #[arg(long)]
    check: bool,
}

impl World {
    /// Builds what it needs, and runs it until it is interrupted.
    ///
    /// # Errors
    /// A program is missing or cannot be built, or a step of the tour fails.
    pub fn run(self, root: &Path) -> Result<()> {
        build(root)?;
        if self.check {
            setup::packages(&[setup::CHROMIUM])?;
            return execute(program(root).arg("--check"));
        }
        // In place of this process, so that a signal that ends the task ends Argo CD, too.
        Err(program(root).exec()).context("starting the world")
    }
}

/// Takes the pictures of the documentation.
///
/// # Errors
/// As [`World::run`].
pub fn take_pictures(root: &Path) -> Result<()> {
    build(root)?;
    setup::packages(&[setup::CHROMIUM])?;
    execute(program(root).arg("--pictures"))
}

fn build(root: &Path) -> Result<()> {
    setup::world()?;
    kubernetes::build(root)?;
    argocd::build(root)?;
    crate::run(
        root,
        "cargo",
        &["build", "--workspace", "--bin", "tollgate", "--example", "world"],
    )
}

fn program(root: &Path) -> Command {
    let target = crate::demo::target(root).join("debug");
    let mut command = Command::new(target.join("examples/world"));
    command
        .current_dir(root)
        .env("CARGO_BIN_EXE_tollgate", target.join("tollgate"));
    command
}
