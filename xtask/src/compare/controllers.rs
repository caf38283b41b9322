//! Runs the example `controllers` (`tests/controllers`), which measures Argo CD's controllers in a real
//! cluster with and without the gateway.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::{argocd, kubernetes, setup};

/// One measurement, as the example prints it: seconds of each round.
#[derive(Debug, Deserialize)]
pub(super) struct Measured {
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
pub(super) fn measure(root: &Path, gateway: &Path, is_quick: bool) -> Result<Vec<Measured>> {
    setup::world()?;
    kubernetes::build(root)?;
    argocd::build(root)?;
    // The gateway too, so that libraries are built with the same features as for the tests.
    let build = ["build", "--workspace", "--bin", "tollgate", "--example", "controllers"];
    crate::run(root, "cargo", &build)?;
    println!("measuring Argo CD's controllers (some minutes)");
    let program = super::target(root).join("debug/examples/controllers");
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
