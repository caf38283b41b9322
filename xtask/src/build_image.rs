//! `cargo xtask image`: builds a container image as an OCI image layout, without a container
//! engine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xtask::image::{Contents, Sources, check_static, write};

use crate::{execute, languages, notices, output, plugins};

/// Builds the container image as an OCI image layout.
#[derive(Debug, clap::Args)]
pub struct BuildImage {
    /// Folder of the layout; if omitted, `target/image`, with `--connector` `target/connector-image`.
    directory: Option<PathBuf>,
    /// Build the image of the connector in place of the gateway's.
    #[arg(long)]
    connector: bool,
    /// Statically linked program to put into the image, instead of building one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Also unpack the image and run the program in it.
    #[arg(long)]
    check: bool,
}

impl BuildImage {
    /// Runs the task.
    pub fn run(self, root: &Path) -> Result<()> {
        let (folder, package, variable) = match self.connector {
            true => (
                "target/connector-image",
                "tollgate-connector",
                "TOLLGATE_CONNECTOR_IMAGE",
            ),
            false => ("target/image", "tollgate", "TOLLGATE_IMAGE"),
        };
        let directory = std::path::absolute(self.directory.unwrap_or_else(|| folder.into()))?;
        if !self.connector {
            plugins::build(root, &languages::names())?;
        }
        let program = match self.program {
            Some(program) => program,
            None => build_program(root, package)?,
        };
        check_static(&program)?;
        let revision = revision(root);
        let guests = root.join("target/guests");
        let notices = notices::write(root, package, None)?;
        let sources = Sources {
            checkout: root,
            program: &program,
            notices: &notices,
            contents: match self.connector {
                true => Contents::Connector,
                false => Contents::Gateway { guests: &guests },
            },
            revision: revision.as_deref(),
        };
        let digest = write(sources, &directory)?;
        println!("{digest}\n{}", directory.display());
        if self.check {
            // The test that runs a program in its image runs this one.
            execute(
                Command::new("cargo")
                    .args(["test", "--workspace", "--test", "parts", "image::"])
                    .env(variable, &directory)
                    .current_dir(root),
            )?;
        }
        Ok(())
    }
}

/// Builds a program that needs no library.
///
/// Without `--target`, the flags would apply to procedural macros, too, which are libraries.
fn build_program(root: &Path, package: &str) -> Result<PathBuf> {
    let target = output(Command::new("rustc").args(["--print", "host-tuple"])).context("rustc names no host")?;
    execute(
        Command::new("cargo")
            .args([
                "build",
                "--locked",
                "--release",
                "--package",
                package,
                "--bin",
                package,
                "--target",
                &target,
            ])
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .current_dir(root),
    )?;
    Ok(root.join("target").join(target).join("release").join(package))
}

/// The commit of the checkout; `None` if its files are others.
fn revision(root: &Path) -> Option<String> {
    let git = |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(root)).ok();
    match git(&["status", "--porcelain"])?.is_empty() {
        true => git(&["rev-parse", "HEAD"]),
        false => None,
    }
}
