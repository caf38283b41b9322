//! Runs the example `controllers` (`tests/controllers`), which measures Argo CD's controllers in a real
//! cluster with and without the gateway.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Build;
use crate::{argocd, kubernetes, setup};

/// One measurement, as the example prints it: seconds of each round.
#[derive(Debug, Deserialize)]
pub(super) struct Measured {
    /// The build of the gateway.
    #[serde(skip)]
    pub(super) build: &'static str,
    pub(super) name: String,
    pub(super) without: Vec<f64>,
    pub(super) with: Vec<f64>,
}

impl Measured {
    /// The best round without the gateway and the best with it, in seconds.
    pub(super) fn best(&self) -> [f64; 2] {
        [&self.without, &self.with].map(|rounds| rounds.iter().copied().fold(f64::INFINITY, f64::min))
    }
}

/// Builds the example and runs it with this gateway.
///
/// # Errors
/// A program is missing, or a controller does not finish a round.
pub(super) fn measure(root: &Path, build: &Build, is_quick: bool) -> Result<Vec<Measured>> {
    argocd::build(root)?;
    println!("measuring Argo CD's controllers (some minutes)");
    // Only the gateway that is measured needs to be optimized.
    let mut measured: Vec<Measured> = run_example(root, ("controllers", "dev"), &build.program, is_quick)?;
    measured.iter_mut().for_each(|measured| measured.build = build.name);
    Ok(measured)
}

/// Builds an example and runs it with this gateway. Returns what it prints, a JSON object on a line each.
///
/// - `profile`: of the example.
pub(super) fn run_example<T: DeserializeOwned>(
    root: &Path,
    (name, profile): (&str, &str),
    gateway: &Path,
    is_quick: bool,
) -> Result<Vec<T>> {
    setup::world()?;
    kubernetes::build(root)?;
    // The gateway too, so that libraries are built with the same features as for the tests.
    let build = [
        "build",
        "--workspace",
        "--profile",
        profile,
        "--bin",
        "tollgate",
        "--example",
        name,
    ];
    crate::run(root, "cargo", &build)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    let program = super::target(root).join(folder).join("examples").join(name);
    let output = Command::new(&program)
        .args(is_quick.then_some("--quick"))
        .env("CARGO_BIN_EXE_tollgate", gateway)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", program.display()))?;
    ensure!(
        output.status.success(),
        "{} ended with {}",
        program.display(),
        output.status
    );
    let lines = std::str::from_utf8(&output.stdout)?.lines();
    let measured = lines.map(|line| serde_json::from_str(line).with_context(|| format!("reading `{line}`")));
    measured.collect()
}
