//! Runs Tollgate's criterion benches and reads their medians from
//! `target/criterion/**/new/{benchmark,estimates}.json`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::execute;

/// One bench.
#[derive(Debug)]
pub(super) struct Bench {
    /// Group, function and parameter joined by `/`, such as `rbac/hit/10000`.
    pub(super) name: String,
    /// Median.
    pub(super) nanoseconds: f64,
}

#[derive(Deserialize)]
struct Benchmark {
    full_id: String,
}

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
}

/// Runs every bench of the package. `compare` is built with the profile of releases, and runs
/// first, so that it is closest in time to the measurements of the peers.
pub(super) fn run(root: &Path, quick: bool) -> Result<()> {
    let mut benches = Vec::new();
    for entry in std::fs::read_dir(root.join("benches")).context("reading benches")? {
        let file = entry?.path();
        if file.extension().is_some_and(|ending| ending == "rs") {
            benches.extend(file.file_stem().map(|name| name.to_owned()));
        }
    }
    benches.sort_by_key(|name| (name != "compare", name.clone()));
    for bench in benches {
        let profile = if bench == "compare" { "dist" } else { "bench" };
        let mut command = Command::new("cargo");
        command
            .args(["bench", "--locked", "--profile", profile, "--bench"])
            .arg(bench)
            .current_dir(root);
        if quick {
            command.args(["--", "--quick"]);
        }
        execute(&mut command)?;
    }
    Ok(())
}

/// Reads every result below `folder`, sorted by name. A missing folder has none.
pub(super) fn read(folder: &Path) -> Result<Vec<Bench>> {
    let mut benches = Vec::new();
    if folder.is_dir() {
        walk(folder, &mut benches)?;
    }
    benches.sort_by(|one, other| natural(&one.name).cmp(&natural(&other.name)));
    Ok(benches)
}

/// Sort key that compares numbers as numbers: `hit/1000`, `hit/10000`, `miss/10`.
fn natural(name: &str) -> Vec<(Option<u64>, &str)> {
    name.split('/').map(|part| (part.parse().ok(), part)).collect()
}

fn walk(folder: &Path, benches: &mut Vec<Bench>) -> Result<()> {
    if let Some(bench) = bench(&folder.join("new"))? {
        benches.push(bench);
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), benches)?;
        }
    }
    Ok(())
}

fn bench(folder: &Path) -> Result<Option<Bench>> {
    let file = folder.join("benchmark.json");
    if !file.is_file() {
        return Ok(None);
    }
    let named: Benchmark = json(&file)?;
    let estimates: Estimates = json(&folder.join("estimates.json"))?;
    Ok(Some(Bench {
        name: named.full_id,
        nanoseconds: estimates.median.point_estimate,
    }))
}

fn json<T: for<'de> Deserialize<'de>>(file: &Path) -> Result<T> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("reading {}", file.display()))
}
