//! `cargo xtask nightly`: what finds faults that no test run has the time for. A step that fails does
//! not keep the next from running; the summary names all that failed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::differential::seed_or_clock;
use crate::test::{self, DOORS, IDLE};
use crate::{compare, languages, plugins, setup};

/// Runs every test many times, and the machines with large numbers of random inputs.
#[derive(Debug, clap::Args)]
pub struct Nightly {
    /// Steps to run; all by default.
    steps: Vec<Step>,
    /// How often the step `repeat` runs every test. A test that fails once without a fault is a fault.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seed of the random inputs. By default it is taken from the clock; it is printed.
    #[arg(long)]
    seed: Option<u64>,
}

/// A step. The order is that of a whole run: what is short comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// 1,000,000 pairs of answers of each kind, beside Argo CD's, Kubernetes' and OPA's own code.
    Differential,
    /// Every Unicode character through the functions of templates, beside Argo CD's own code.
    Letters,
    /// A tour of a whole Argo CD, with every command beside the same one straight to argocd-server.
    World,
    /// Every bench, one round each.
    Benches,
    /// Both container images, statically linked, and the programs in them.
    Image,
    /// Every part of `cargo xtask compare`, in short rounds.
    Compare,
    /// 10,000 sequences of writes past the gateway, judged by the oracle of admission.
    Admission,
    /// Each fuzz target for five minutes.
    Fuzz,
    /// How much longer people wait while unauthenticated clients send 500 requests a second: the build of
    /// releases.
    Doors,
    /// A stream without a byte for ten minutes.
    Idle,
    /// A control plane at full size for 15 minutes.
    Soak,
    /// Every unit and integration test, many times over.
    Repeat,
}

impl Nightly {
    /// Runs the task.
    ///
    /// # Errors
    /// Something cannot be built, or a step failed.
    pub fn run(self, root: &Path) -> Result<()> {
        let folder = root.join("target/nightly");
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        setup::tests(root)?;
        plugins::build(root, &languages::names())?;
        languages::build(root)?;
        let seed = seed_or_clock(self.seed)?;
        let steps = match self.steps.is_empty() {
            true => Step::value_variants(),
            false => &self.steps,
        };
        let mut summary = Vec::new();
        for step in steps {
            println!("== {step:?}, seed {seed}");
            let start = Instant::now();
            let outcome = match step {
                Step::Differential => task(
                    root,
                    &["differential", "--pairs", "1000000", "--seed", &seed.to_string()],
                ),
                Step::Letters => letters(root),
                Step::World => task(root, &["world", "--check"]),
                Step::Benches => crate::run(root, "cargo", &["test", "--workspace", "--benches"]),
                Step::Image => {
                    task(root, &["image", "--check"]).and_then(|()| task(root, &["image", "--connector", "--check"]))
                }
                Step::Compare => task(root, &["compare", "--quick"]),
                Step::Admission => admission(root, seed),
                Step::Doors => doors(root),
                Step::Idle => idle(root),
                Step::Soak => task(root, &["soak"]),
                Step::Fuzz => task(root, &["fuzz", "--seconds", "300"]),
                Step::Repeat => self.repeat(root, &folder),
            };
            if let Err(error) = &outcome {
                println!("{step:?} failed: {error:#}");
            }
            summary.push((*step, start.elapsed().as_secs(), outcome));
        }
        println!("| step | seconds | outcome |\n|---|---:|---|");
        for (step, seconds, outcome) in &summary {
            let outcome = outcome
                .as_ref()
                .map_or_else(|error| format!("{error:#}"), |()| "passed".to_owned());
            println!("| {step:?} | {seconds} | {outcome} |");
        }
        let failed = summary.iter().filter(|(_, _, outcome)| outcome.is_err()).count();
        ensure!(failed == 0, "{failed} of {} steps failed", summary.len());
        Ok(())
    }

    /// Runs every unit and integration test [`Self::rounds`] times.
    ///
    /// The output of each round is kept in `target/nightly/repeat-N.log`.
    fn repeat(&self, root: &Path, folder: &Path) -> Result<()> {
        let mut failures = BTreeMap::<String, Vec<u32>>::new();
        for round in 1..=self.rounds {
            let path = folder.join(format!("repeat-{round}.log"));
            let (succeeded, failed) = run_all(root, &path)?;
            println!("round {round} of {}: {} tests failed", self.rounds, failed.len());
            if !succeeded && failed.is_empty() {
                // A test binary that ends before it has printed a result, or one without libtest.
                failures
                    .entry("a whole test binary".to_owned())
                    .or_default()
                    .push(round);
            }
            for test in failed {
                failures.entry(test).or_default().push(round);
            }
        }
        for (test, rounds) in &failures {
            println!(
                "{test}: failed {} of {} times, in rounds {rounds:?}",
                rounds.len(),
                self.rounds
            );
        }
        ensure!(
            failures.is_empty(),
            "{} tests failed at least once; the output is in {}",
            failures.len(),
            folder.display()
        );
        Ok(())
    }
}

/// Runs another task of this program.
fn task(root: &Path, arguments: &[&str]) -> Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    crate::execute(Command::new(program).args(arguments).current_dir(root))
}

/// Runs the property test of admission with many sequences.
fn admission(root: &Path, seed: u64) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args([
        "test",
        "--workspace",
        "--test",
        "gateway",
        "admission_oracle::nobody_stores",
    ]);
    command.args(["--", "--nocapture"]);
    command.env("TOLLGATE_ORACLE_SEQUENCES", "10000");
    command.env("TOLLGATE_ORACLE_SEED", seed.to_string());
    crate::execute(command.current_dir(root))
}

/// Runs the test of characters with all of them.
fn letters(root: &Path) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace", "--test", "parts", "letters::"]);
    command.env("TOLLGATE_DIFFERENTIAL_PAIRS", "1000000");
    crate::execute(command.current_dir(root))
}

/// Runs the test that no part of the way ends a stream because it is idle.
fn idle(root: &Path) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace", "--test", "kubernetes", IDLE, "--", "--exact"]);
    crate::execute(command.current_dir(root))
}

/// Runs the test of unauthenticated clients past the build of releases, and then measures what people
/// notice of them.
fn doors(root: &Path) -> Result<()> {
    let program = compare::build_gateway(root)?;
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace", "--test", "gateway", DOORS, "--", "--nocapture"]);
    command.env("TOLLGATE_DOORS_REPORT", "1");
    command.env("TOLLGATE_PROGRAM", program);
    crate::execute(command.current_dir(root))
}

/// Runs every test once, with its output in a file. Returns whether all succeeded, and the names of
/// those that failed.
fn run_all(root: &Path, path: &PathBuf) -> Result<(bool, Vec<String>)> {
    let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    let errors = file
        .try_clone()
        .with_context(|| format!("opening {}", path.display()))?;
    let status = Command::new("cargo")
        .args(["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"])
        .args(["--", "--skip", IDLE, "--skip", DOORS])
        .env("RUST_TEST_THREADS", test::threads().to_string())
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .status()
        .context("starting cargo")?;
    // Output of tests need not be UTF-8.
    let output = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    Ok((status.success(), failed_tests(&String::from_utf8_lossy(&output))))
}

/// The names of the tests that failed, from the output of libtest.
fn failed_tests(output: &str) -> Vec<String> {
    let failed = output
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    failed.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::failed_tests;

    #[test]
    fn failed_tests_are_named() {
        let output = "running 3 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest d - should panic ... FAILED\n\
            \nfailures:\n\n---- a::c stdout ----\ntest result: FAILED. 1 passed; 2 failed\n";
        assert_eq!(failed_tests(output), ["a::c", "d - should panic"]);
        assert_eq!(failed_tests("test result: ok. 1 passed; 0 failed\n"), [""; 0]);
    }
}
