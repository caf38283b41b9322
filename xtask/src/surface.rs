//! `cargo xtask surface`: writes what other programs rely on into a folder, so that two releases can
//! be compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xtask::reference::Metric;

use crate::write_reference;

/// Copies of these files and folders, by their path in the checkout.
const COPIED: [(&str, &str); 11] = [
    (
        "host/rego/src/input/extensions.schema.json",
        "policy-inputs/extensions.schema.json",
    ),
    (
        "host/rego/src/input/applications.schema.json",
        "policy-inputs/applications.schema.json",
    ),
    (
        "host/rego/src/input/applicationsets.schema.json",
        "policy-inputs/applicationsets.schema.json",
    ),
    (
        "host/rego/src/input/argocd.schema.json",
        "policy-inputs/argocd.schema.json",
    ),
    (
        "host/rego/src/input/controlplane.schema.json",
        "policy-inputs/controlplane.schema.json",
    ),
    (
        "host/rego/src/input/kubernetes.schema.json",
        "policy-inputs/kubernetes.schema.json",
    ),
    (
        "host/proxy/src/record/record.schema.json",
        "decision-record.schema.json",
    ),
    ("deploy/kubernetes/crds", "crds"),
    ("deploy/helm/tollgate/values.schema.json", "chart-values.schema.json"),
    ("host/store/src/migrations", "store"),
    ("wit", "wit"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Surface {
    /// Folder to write; what it contains is replaced
    folder: PathBuf,
}

impl Surface {
    pub(crate) fn run(&self, root: &Path) -> Result<()> {
        let sources = write_reference::sources(root)?;
        let mut files = BTreeMap::new();
        for (from, to) in COPIED {
            copy(&root.join(from), Path::new(to), &mut files)?;
        }
        let mut commands = String::new();
        for help in &sources.help {
            writeln!(commands, "# tollgate {}\n\n{}", help.command.join(" "), help.text)?;
        }
        files.insert("commands.txt".into(), commands);
        let schema = serde_json::to_string_pretty(&sources.settings)?;
        files.insert("settings.schema.json".into(), schema + "\n");
        files.insert("metrics.tsv".into(), metrics(sources.facts.metrics));
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        for (name, text) in &files {
            let path = self.folder.join(name);
            fs::create_dir_all(path.parent().context("no folder")?)?;
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        println!("{} files in {}", files.len(), self.folder.display());
        Ok(())
    }
}

fn copy(from: &Path, to: &Path, files: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    if !from.is_dir() {
        let text = fs::read_to_string(from).with_context(|| format!("reading {}", from.display()))?;
        files.insert(to.to_owned(), text);
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()), files)?;
    }
    Ok(())
}

/// Name, type, unit and labels of every metric.
fn metrics(mut metrics: Vec<Metric>) -> String {
    metrics.sort_by(|one, other| one.name.cmp(&other.name));
    let rows = metrics.iter().map(|metric| {
        let labels = metric.labels.join(", ");
        format!("{}\t{}\t{}\t{labels}\n", metric.name, metric.kind, metric.unit())
    });
    rows.collect()
}
