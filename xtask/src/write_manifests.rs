//! `cargo xtask manifests`: renders the manifests of [`xtask::manifests`] from the Helm chart.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::kubernetes;
use xtask::manifests;

/// Renders deploy/kubernetes and deploy/monitoring from the Helm chart.
#[derive(Debug, clap::Args)]
pub struct WriteManifests {
    /// Write nothing, and fail with the differences if a file is not what the chart gives.
    #[arg(long)]
    check: bool,
}

impl WriteManifests {
    /// Runs the task.
    ///
    /// # Errors
    /// The chart cannot be rendered, a file cannot be written, or, with `--check`, a file differs.
    pub fn run(self, root: &Path) -> Result<()> {
        let files = manifests::render(&kubernetes::build_helm(root)?, root)?;
        let mut differing = Vec::new();
        for (name, text) in &files {
            let path = root.join(name);
            if std::fs::read_to_string(&path).is_ok_and(|present| present == *text) {
                continue;
            }
            if self.check {
                show(&path, name, text)?;
                differing.push(name.as_str());
                continue;
            }
            let folder = path.parent().context("a file has no folder")?;
            std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
            std::fs::write(&path, text).with_context(|| format!("writing {name}"))?;
            println!("wrote {name}");
        }
        ensure!(
            differing.is_empty(),
            "{} differ from the chart: change {} and run `cargo xtask manifests`",
            differing.join(", "),
            manifests::CHART
        );
        Ok(())
    }
}

/// Prints how a file differs from what the chart gives.
fn show(path: &Path, name: &str, text: &str) -> Result<()> {
    let folder = tempfile::tempdir().context("creating a temporary folder")?;
    let rendered = folder.path().join("rendered");
    std::fs::write(&rendered, text).with_context(|| format!("writing {}", rendered.display()))?;
    println!("{name}:");
    // Its status is 1, because the files differ.
    Command::new("git")
        .args(["--no-pager", "diff", "--no-index", "--"])
        .arg(if path.is_file() { path } else { Path::new("/dev/null") })
        .arg(&rendered)
        .status()
        .context("starting git")?;
    Ok(())
}
