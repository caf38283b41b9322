//! Describes the machine and the commit of a measurement.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Machine and commit, in one line each.
#[derive(Debug)]
pub(super) struct Machine {
    /// Processor, cores, memory, kernel.
    pub(super) hardware: String,
    /// Short commit, followed by ` with edits` if the checkout differs from it.
    pub(super) commit: String,
}

/// Reads `/proc` and asks git.
pub(super) fn describe(root: &Path) -> Result<Machine> {
    let processors = std::fs::read_to_string("/proc/cpuinfo").context("reading /proc/cpuinfo")?;
    let model = field(&processors, "model name").unwrap_or("unknown processor");
    let memory = std::fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let kibibytes: u64 = field(&memory, "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").context("reading the kernel's release")?;
    let cores = std::thread::available_parallelism()?;
    let hardware = format!(
        "{model}, {cores} cores, {} GiB, Linux {}",
        kibibytes >> 20,
        kernel.trim()
    );
    let edited = if git(root, &["status", "--porcelain", "--untracked-files=no"])?.is_empty() {
        ""
    } else {
        " with edits"
    };
    Ok(Machine {
        hardware,
        commit: git(root, &["rev-parse", "--short=12", "HEAD"])? + edited,
    })
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output()
        .context("starting git")?;
    ensure!(output.status.success(), "git {} failed", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
