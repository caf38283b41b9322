//! `cargo xtask quick`: what shows most mistakes within two minutes of a change, without root and network.

use std::path::Path;

use anyhow::Result;

use crate::run;

/// Checks formatting and lints, and runs the unit tests.
///
/// # Errors
/// The first check that finds something.
pub fn quick(root: &Path) -> Result<()> {
    run(root, "cargo", &["fmt", "--all", "--check"])?;
    run(
        root,
        "cargo",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ],
    )?;
    run(root, "cargo", &["test", "--workspace", "--lib", "--locked"])
}
