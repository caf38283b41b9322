//! `cargo xtask image`: builds the gateway's container image as an OCI image layout, without a container
//! engine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::image::{Sources, check_static, write};

use crate::{execute, languages, plugins};

/// Builds the container image as an OCI image layout.
#[derive(Debug, clap::Args)]
pub struct BuildImage {
    /// Folder of the layout.
    #[arg(default_value = "target/image")]
    directory: PathBuf,
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
        let directory = std::path::absolute(&self.directory)?;
        plugins::build(root, &languages::names())?;
        let program = match self.program {
            Some(program) => program,
            None => build_program(root)?,
        };
        check_static(&program)?;
        let revision = revision(root);
        let sources = Sources {
            checkout: root,
            program: &program,
            guests: &root.join("target/guests"),
            revision: revision.as_deref(),
        };
        let digest = write(sources, &directory)?;
        println!("{digest}\n{}", directory.display());
        if self.check {
            // The test that runs a program in its image runs this one.
            execute(
                Command::new("cargo")
                    .args(["test", "--workspace", "--test", "parts", "image::"])
                    .env("TOLLGATE_IMAGE", &directory)
                    .current_dir(root),
            )?;
        }
        Ok(())
    }
}

/// Builds a program that needs no library.
///
/// Without `--target`, the flags would apply to procedural macros, too, which are libraries.
fn build_program(root: &Path) -> Result<PathBuf> {
    let target = output(Command::new("rustc").args(["--print", "host-tuple"])).context("rustc names no host")?;
    execute(
        Command::new("cargo")
            .args([
                "build",
                "--locked",
                "--release",
                "--bin",
                "tollgate",
                "--target",
                &target,
            ])
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .current_dir(root),
    )?;
    Ok(root.join("target").join(target).join("release/tollgate"))
}

/// The commit of the checkout; `None` if its files are others.
fn revision(root: &Path) -> Option<String> {
    let git = |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(root)).ok();
    match git(&["status", "--porcelain"])?.is_empty() {
        true => git(&["rev-parse", "HEAD"]),
        false => None,
    }
}

/// The first line of a command's standard output.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
