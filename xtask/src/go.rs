//! Go programs and modules for the tests.
//!
//! In: folders with a `go.mod` and `go.sum`. Out: static binaries, folders of
//! modules. Never: another toolchain than the one on the PATH, or what Go's
//! checksums do not vouch for.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use crate::{execute, setup};

/// Builds `program` of a package that the module at `module` names, unless it is
/// there; it appears under its name only when it is whole.
///
/// # Errors
/// Go is missing or too old, or the build fails.
pub fn program(module: &Path, program: &Path, package: &str, linker_flags: &str) -> Result<()> {
    if program.is_file() {
        return Ok(());
    }
    is_there()?;
    eprintln!("building {}", program.display());
    let start = SystemTime::now();
    let partial = program.with_extension(format!("{}.partial", std::process::id()));
    let mut command = command(module);
    command
        .args(["build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags"])
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

/// The folder with the files of `name`, in the release that the module at `module`
/// requires; downloaded when it is not there.
///
/// # Errors
/// Go is missing or too old, or there is no such release to be had.
pub fn module(module: &Path, name: &str) -> Result<PathBuf> {
    is_there()?;
    let output = command(module)
        .args(["mod", "download", "-json", name])
        .output()
        .context("starting go")?;
    // Of a failure, the text is in `Error`; of one before it, on standard error.
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let folder = said.get("Dir").and_then(serde_json::Value::as_str);
    let Some(folder) = folder.filter(|_| output.status.success()) else {
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = said.get("Error").and_then(serde_json::Value::as_str);
        bail!("downloading {name}: {}", text.unwrap_or(&complaint).trim());
    };
    Ok(PathBuf::from(folder))
}

fn is_there() -> Result<()> {
    setup::go()
        .context("building programs for the tests; KUBEBUILDER_ASSETS may name a folder with those of Kubernetes")
}

/// Go in a module's folder: what it builds is static, whatever C compiler is here;
/// no other toolchain, no workspace.
fn command(module: &Path) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off");
    command
}
