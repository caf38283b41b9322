//! `cargo xtask fuzz`: runs the fuzz targets that `host/gateway/src/fuzz.rs` lists under libFuzzer.
//!
//! Only the gateway's own libraries are built again, optimized and with coverage counters. All
//! other crates are those that the tests use. Corpora and failing inputs are kept in `target/fuzz`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Flags that add libFuzzer's coverage counters. Stable compilers accept them.
const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Copt-level=1 -Cdebug-assertions=on -Coverflow-checks=on";

/// Runs fuzz targets.
#[derive(Debug, clap::Args)]
pub struct Fuzz {
    /// Targets to run; all by default.
    targets: Vec<String>,
    /// How long to run each target, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// List the targets and exit.
    #[arg(long)]
    list: bool,
}

/// Result of a run of one target.
#[derive(Debug)]
struct Outcome {
    executions: String,
    coverage: String,
    /// The failing input, or the log if there is none.
    failure: Option<PathBuf>,
}

impl Fuzz {
    /// Runs the task.
    ///
    /// # Errors
    /// The build fails, a target is unknown, or a target fails on an input.
    pub fn run(self, root: &Path) -> Result<()> {
        let folder = root.join("target/fuzz");
        std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let driver = build(root, &folder)?;
        let known = names(&driver)?;
        if self.list {
            known.iter().for_each(|name| println!("{name}"));
            return Ok(());
        }
        for name in &self.targets {
            ensure!(
                known.contains(name),
                "there is no target `{name}`: `cargo xtask fuzz --list` prints their names"
            );
        }
        let chosen = if self.targets.is_empty() { &known } else { &self.targets };
        println!("{} targets, {} s each", chosen.len(), self.seconds);
        let mut failures = Vec::new();
        for name in chosen {
            let outcome = fuzz(&driver, &folder, name, self.seconds)?;
            let result = match &outcome.failure {
                Some(path) => format!("FAILED, see {}", path.display()),
                None => "no failure".to_owned(),
            };
            println!(
                "{name:20} {:>12} executions {:>8} coverage  {result}",
                outcome.executions, outcome.coverage
            );
            failures.extend(outcome.failure);
        }
        ensure!(
            failures.is_empty(),
            "{} targets failed; when you have fixed them, copy each input to tests/data/fuzz/TARGET/",
            failures.len()
        );
        Ok(())
    }
}

/// Builds the driver with instrumented libraries.
fn build(root: &Path, folder: &Path) -> Result<PathBuf> {
    let wrapper = folder.join("rustc");
    let script = format!(
        "#!/bin/sh\nrustc=$1; shift\ncase \" $* \" in\n*' --crate-name tollgate'*|*' --crate-name fuzz '*)\n\
         exec \"$rustc\" \"$@\" {INSTRUMENTATION};;\nesac\nexec \"$rustc\" \"$@\"\n"
    );
    if std::fs::read_to_string(&wrapper).ok().as_deref() != Some(&script) {
        std::fs::write(&wrapper, &script).with_context(|| format!("writing {}", wrapper.display()))?;
        std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755))?;
    }
    println!("building the libraries with coverage counters (minutes the first time)");
    let mut cargo = Command::new("cargo");
    // With `--workspace`, dependencies have the same features as for the tests: no rebuild.
    cargo
        .args([
            "build",
            "--workspace",
            "--features",
            "tollgate/fuzz",
            "--example",
            "fuzz",
        ])
        .env("RUSTC_WORKSPACE_WRAPPER", &wrapper)
        .env("CARGO_INCREMENTAL", "0")
        .current_dir(root);
    crate::execute(&mut cargo).context("building the fuzz targets")?;
    // A copy, because a build without instrumentation would replace the example.
    let driver = folder.join("driver");
    let built = root.join("target/debug/examples/fuzz");
    std::fs::copy(&built, &driver).with_context(|| format!("copying {}", built.display()))?;
    Ok(driver)
}

fn names(driver: &Path) -> Result<Vec<String>> {
    let output = Command::new(driver)
        .env("TOLLGATE_FUZZ_LIST", "1")
        .output()
        .with_context(|| format!("starting {}", driver.display()))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).context("reading the names of targets")?;
    Ok(names.lines().map(str::to_owned).collect())
}

/// Runs one target until its time is over or it fails on an input.
fn fuzz(driver: &Path, folder: &Path, name: &str, seconds: u64) -> Result<Outcome> {
    let corpus = folder.join("corpus").join(name);
    let failures = folder.join("failures").join(name);
    for path in [&corpus, &failures] {
        std::fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))?;
    }
    println!("{name}: {seconds} s");
    let output = Command::new(driver)
        .arg(&corpus)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", failures.display()))
        .args([
            "-timeout=60",
            "-rss_limit_mb=2048",
            "-max_len=8192",
            "-print_final_stats=1",
        ])
        .env("TOLLGATE_FUZZ_TARGET", name)
        .env("TOLLGATE_FUZZ_CORPUS", &corpus)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {}", driver.display()))?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let path = folder.join(format!("{name}.log"));
    std::fs::write(&path, &log).with_context(|| format!("writing {}", path.display()))?;
    let written = log.lines().find_map(|line| {
        line.split_once("Test unit written to ")
            .map(|(_, path)| PathBuf::from(path.trim()))
    });
    let failure = (!output.status.success()).then(|| written.unwrap_or(path));
    Ok(Outcome {
        executions: last(&log, "stat::number_of_executed_units:"),
        coverage: last(&log, " cov: "),
        failure,
    })
}

/// The word after the last `marker` of a log.
fn last(log: &str, marker: &str) -> String {
    let behind = log.rsplit_once(marker).map_or("", |(_, behind)| behind);
    behind.split_whitespace().next().unwrap_or("?").to_owned()
}
