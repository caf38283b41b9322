//! Runs the example `agents` (`tests/agents`), which measures clusters behind an agent, and thousands of agents
//! at one gateway.

use std::path::Path;

use anyhow::Result;
use serde::Deserialize;

use super::Build;
use super::controllers::run_example;

/// One measurement, as the example prints it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Measured {
    /// The build of the gateway.
    #[serde(skip)]
    pub(super) build: &'static str,
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) unit: String,
    pub(super) goal: f64,
    /// Whether the goal is the least, not the most.
    pub(super) is_least: bool,
}

impl Measured {
    pub(super) fn is_met(&self) -> bool {
        match self.is_least {
            true => self.value >= self.goal,
            false => self.value <= self.goal,
        }
    }
}

/// Builds the example and runs it with this gateway.
///
/// # Errors
/// A program is missing, or an agent does not connect.
pub(super) fn measure(root: &Path, build: &Build, is_quick: bool) -> Result<Vec<Measured>> {
    println!("measuring agents (some minutes)");
    // The agents run in the example.
    let mut measured: Vec<Measured> = run_example(root, ("agents", "dist"), &build.program, is_quick)?;
    measured.iter_mut().for_each(|measured| measured.build = build.name);
    Ok(measured)
}
