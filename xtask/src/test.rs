//! `cargo xtask test`: runs every check and test, those that fail soonest first. CI runs exactly
//! this.

use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tokio::process::Child;

use crate::demo::Demo;
use crate::soak::Soak;
use crate::world::World;
use crate::{execute, languages, lint, plugins, run, setup};

// Every build has `--workspace`. Without it, libraries would be built again with other features.

/// Runs every check and test.
#[derive(Debug, clap::Args)]
pub struct Test {
    /// Skip formatting, lints, documentation and licenses.
    #[arg(long)]
    no_lint: bool,
}

impl Test {
    /// Runs the task.
    pub async fn run(self, root: &Path) -> Result<()> {
        let start = Instant::now();
        let step = |what: &str| println!("== {what} (after {} s)", start.elapsed().as_secs());
        setup::tests(root)?;
        step("guests");
        plugins::build(root, &languages::names())?;
        languages::build(root)?;
        if !self.no_lint {
            step("lints");
            lint::Lint::default().run(root)?;
        }
        step("compiling the unit and integration tests");
        let all = ["test", "--workspace", "--lib", "--bins", "--tests"];
        run(root, "cargo", &[&all[..], &["--no-run"]].concat())?;
        step("unit and integration tests; the idle test of ten minutes starts in the background");
        let idle = start_idle(root)?;
        execute(
            Command::new("cargo")
                .args(all)
                .args(["--", "--skip", IDLE, "--skip", DOORS])
                .env("RUST_TEST_THREADS", threads().to_string())
                .current_dir(root),
        )?;
        // Alone, because 500 requests a second slow all other tests down.
        step("unauthenticated clients at every door");
        run(root, "cargo", &["test", "--workspace", "--test", "gateway", DOORS])?;
        // Alone, because it measures times.
        step("a large control plane for a minute");
        Soak::of_a_test_run().run(root).await?;
        step("the guests' own tests");
        let guests = root.join("plugins");
        let folder = root.join("target/guest-test").display().to_string();
        run(&guests, "cargo", &["test", "--workspace", "--target-dir", &folder])?;
        step("documentation tests");
        run(root, "cargo", &["test", "--workspace", "--doc"])?;
        step("benches, one round each");
        run(root, "cargo", &["test", "--workspace", "--benches"])?;
        step("the demo");
        // The tests' build made the gateway. Building it alone would build libraries with other
        // features, which takes five minutes.
        Demo::checked().run_built(root).await?;
        step("the tour of a whole Argo CD");
        World::checked().run(root)?;
        step("waiting for the idle test");
        let output = idle.wait_with_output().await.context("waiting for the idle test")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success() && text.contains("1 passed"), "{text}");
        step("all tests passed");
        Ok(())
    }
}

/// The test of what is served before authentication.
pub const DOORS: &str = "doors::";

/// A test that waits for ten minutes.
pub const IDLE: &str = "access::a_stream_without_a_byte_lives_ten_minutes";

/// How many tests run at a time: more than there are processors, because many wait for servers.
pub fn threads() -> usize {
    2 * std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Starts the idle test, which uses almost no CPU time.
fn start_idle(root: &Path) -> Result<Child> {
    let mut command = tokio::process::Command::new("cargo");
    command
        .args(["test", "--workspace", "--test", "kubernetes", IDLE, "--", "--exact"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command.spawn().context("starting the idle test")
}
