//! Builds Go programs, and downloads Go modules, as pinned by a `go.mod` and `go.sum`.
//!
//! Security: Go verifies everything against `go.sum`, and only the toolchain on the PATH is used.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use crate::{execute, setup};

/// Builds `package`, in the release that the module at `module` requires, to the path `program`,
/// unless that file exists. The file appears only when it is complete.
///
/// # Errors
/// Go is missing or too old, or the build fails.
pub fn program(module: &Path, program: &Path, package: &str, linker_flags: &str) -> Result<()> {
    build(command(module), program, package, linker_flags)
}

/// The same for a program with parts in C, which a C compiler must be there for. Nothing that the
/// tests use is in C, so it is not optimized, and is built in less time.
///
/// # Errors
/// As [`program`], or there is no C compiler.
pub fn program_with_c(module: &Path, program: &Path, package: &str, linker_flags: &str) -> Result<()> {
    let mut command = command(module);
    command.env("CGO_ENABLED", "1").env("CGO_CFLAGS", "-O0");
    build(command, program, package, linker_flags)
}

fn build(mut command: Command, program: &Path, package: &str, linker_flags: &str) -> Result<()> {
    if program.is_file() {
        return Ok(());
    }
    check_toolchain()?;
    eprintln!("building {}", program.display());
    let start = SystemTime::now();
    let partial = program.with_extension(format!("{}.partial", std::process::id()));
    command
        // Without DWARF, and with a larger heap for the compiler, kubectl is built in a sixth less
        // time.
        .env("GOGC", "400")
        .args(["build", "-gcflags=all=-dwarf=false", "-trimpath", "-buildvcs=false"])
        .args(["-mod=readonly", "-ldflags"])
        .arg(linker_flags)
        .arg("-o")
        .arg(&partial)
        .arg(package);
    execute(&mut command).with_context(|| format!("building {}", program.display()))?;
    std::fs::rename(&partial, program).with_context(|| format!("writing {}", program.display()))?;
    let took = start.elapsed().unwrap_or_default().as_secs();
    eprintln!("built {} in {took} s", program.display());
    Ok(())
}

/// The folder of the module `name`, in the release that the module at `module` requires.
/// Downloads it if it is not in Go's module cache.
///
/// # Errors
/// Go is missing or too old, or the download fails.
pub fn module(module: &Path, name: &str) -> Result<PathBuf> {
    check_toolchain()?;
    let output = command(module)
        .args(["mod", "download", "-json", name])
        .output()
        .context("starting go")?;
    // If the download fails, the text is in `Error`; if Go fails earlier, it is on standard error.
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let folder = result.get("Dir").and_then(serde_json::Value::as_str);
    let Some(folder) = folder.filter(|_| output.status.success()) else {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = result.get("Error").and_then(serde_json::Value::as_str);
        bail!("downloading {name}: {}", text.unwrap_or(&stderr).trim());
    };
    Ok(PathBuf::from(folder))
}

fn check_toolchain() -> Result<()> {
    setup::go()
        .context("building programs for the tests; KUBEBUILDER_ASSETS may name a folder with those of Kubernetes")
}

/// The command `go` in a module's folder, set to build static binaries with the local toolchain
/// and without a Go workspace.
fn command(module: &Path) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off");
    command
}
