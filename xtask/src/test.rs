//! `cargo xtask test`: every test there is, in the order that fails soonest.
//!
//! CI runs exactly this.

use std::path::Path;

use anyhow::Result;

use crate::demo::Demo;
use crate::{languages, lint, plugins, run, setup};

/// Runs every check and test.
#[derive(Debug, clap::Args)]
pub struct Test {
    /// Leave out formatting, lints, documentation and licences.
    #[arg(long)]
    no_lint: bool,
}

impl Test {
    /// Runs the task.
    pub async fn run(self, root: &Path) -> Result<()> {
        setup::tests(root)?;
        step("guests");
        plugins::build(root, &languages::names())?;
        languages::build(root)?;
        if !self.no_lint {
            step("lints");
            lint::Lint::default().run(root)?;
        }
        step("unit and integration tests");
        run(root, "cargo", &["test", "--workspace", "--lib", "--bins", "--tests"])?;
        step("the guests' own tests");
        let guests = root.join("plugins");
        let folder = root.join("target/guest-test").display().to_string();
        run(&guests, "cargo", &["test", "--workspace", "--target-dir", &folder])?;
        step("documentation tests");
        run(root, "cargo", &["test", "--workspace", "--doc"])?;
        step("benches, one round each");
        run(root, "cargo", &["test", "--benches"])?;
        step("the demo");
        Demo::checked().run(root).await?;
        step("all tests passed");
        Ok(())
    }
}

fn step(what: &str) {
    println!("== {what}");
}
