//! `cargo xtask test`: runs every check and test but those of `cargo xtask nightly`, those that fail soonest first.
//! CI runs exactly this.

use std::num::NonZero;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::demo::Demo;
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
        let mut steps = Steps::default();
        steps.begin("what tests need");
        setup::tests(root)?;
        steps.begin("guests");
        plugins::build(root, &languages::names())?;
        languages::build(root)?;
        if !self.no_lint {
            steps.begin("lints");
            lint::Lint::default().run(root)?;
        }
        steps.begin("compiling the unit and integration tests");
        let all = ["test", "--workspace", "--lib", "--bins", "--tests", "--no-run"];
        run(root, "cargo", &all)?;
        steps.begin("unit tests");
        tests(root, &["--lib", "--bins"], &[])?;
        steps.begin("cases of the design");
        tests(root, &["--test", "cases"], &[])?;
        steps.begin("tests of parts, and differentials");
        tests(root, &["--test", "parts"], &["--skip", CONTAINER])?;
        steps.begin("tests of the gateway");
        tests(root, &["--test", "gateway"], &["--skip", DOORS])?;
        // Alone, because 500 requests a second slow all other tests down.
        steps.begin("unauthenticated clients at every door");
        tests(root, &["--test", "gateway"], &[DOORS])?;
        steps.begin("tests with a whole Argo CD");
        tests(root, &["--test", "kubernetes"], &WITH_ARGOCD)?;
        steps.begin("tests with Kubernetes");
        let others = WITH_ARGOCD.iter().chain([&IDLE]).flat_map(|name| ["--skip", name]);
        tests(root, &["--test", "kubernetes"], &others.collect::<Vec<_>>())?;
        steps.begin("the guests' own tests");
        let guests = root.join("plugins");
        let folder = root.join("target/guest-test").display().to_string();
        run(&guests, "cargo", &["test", "--workspace", "--target-dir", &folder])?;
        steps.begin("documentation tests");
        run(root, "cargo", &["test", "--workspace", "--doc"])?;
        steps.begin("the demo");
        // The tests' build made the gateway. Building it alone would build libraries with other
        // features, which takes five minutes.
        Demo::checked().run_built(root).await?;
        steps.end();
        println!("== all tests passed");
        Ok(())
    }
}

/// Runs tests that are built.
///
/// - `which`: the binaries.
/// - `arguments`: of libtest; names to run, or to skip.
fn tests(root: &Path, which: &[&str], arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace"]).args(which);
    command.arg("--").args(arguments);
    command.env("RUST_TEST_THREADS", threads().to_string());
    execute(command.current_dir(root))
}

/// The steps of a run, and how long each took.
#[derive(Debug)]
struct Steps {
    start: Instant,
    current: Option<(&'static str, Instant)>,
    done: Vec<(&'static str, Duration)>,
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            current: None,
            done: Vec::new(),
        }
    }
}

impl Steps {
    fn begin(&mut self, what: &'static str) {
        self.close();
        println!("== {what} (after {} s)", self.start.elapsed().as_secs());
        self.current = Some((what, Instant::now()));
    }

    fn close(&mut self) {
        if let Some((what, begun)) = self.current.take() {
            self.done.push((what, begun.elapsed()));
        }
    }

    /// Prints the steps, the slowest first.
    fn end(mut self) {
        self.close();
        self.done.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        println!("== {} s; the slowest steps:", self.start.elapsed().as_secs());
        for (what, took) in self.done.iter().take(SLOWEST) {
            println!("{:>6} s  {what}", took.as_secs());
        }
    }
}

/// How many steps are printed at the end.
const SLOWEST: usize = 10;

/// The test of what is served before authentication.
pub const DOORS: &str = "doors::";

/// The tests of the binary `kubernetes` that start Argo CD.
const WITH_ARGOCD: [&str; 3] = ["admission::", "argocd::", "enrolled::"];

/// The tests that run the container images, which `cargo xtask nightly` does with those of releases.
const CONTAINER: &str = "image::container::";

/// A test that waits for ten minutes, for `cargo xtask nightly`.
pub const IDLE: &str = "access::a_stream_without_a_byte_lives_ten_minutes";

/// How many tests run at a time: more than there are processors, because many wait for servers.
pub fn threads() -> usize {
    2 * std::thread::available_parallelism().map_or(1, NonZero::get)
}
