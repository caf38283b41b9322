//! `cargo xtask surface`: writes what other programs rely on into a folder, so that two releases can
//! be compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

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
        crate::run(root, "cargo", &["build", "--locked", "--bin", "tollgate"])?;
        let program = root.join("target/debug/tollgate");
        let mut files = BTreeMap::new();
        for (from, to) in COPIED {
            copy(&root.join(from), Path::new(to), &mut files)?;
        }
        let mut commands = String::new();
        help(&program, &[], &mut commands)?;
        files.insert("commands.txt".into(), commands);
        let schema = output(&program, &["check", "--schema"])?;
        files.insert("settings.schema.json".into(), schema);
        files.insert("metrics.tsv".into(), metrics(root)?);
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

fn output(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    ensure!(output.status.success(), "{arguments:?} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Appends the help of a command, then that of the commands below it.
fn help(program: &Path, command: &[&str], texts: &mut String) -> Result<()> {
    let text = output(program, &[command, &["--help"]].concat())?;
    writeln!(texts, "# tollgate {}\n\n{text}", command.join(" "))?;
    let below = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    // A long description goes on in lines that begin further to the right.
    let names = below
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        help(program, &[command, &[name]].concat(), texts)?;
    }
    Ok(())
}

/// Name, type, unit and labels of every metric. A test compares the page with what the gateway serves.
fn metrics(root: &Path) -> Result<String> {
    let page = fs::read_to_string(root.join("docs/metrics.md"))?;
    let mut rows = Vec::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if let [name, kind, unit, labels, _, _, ""] = cells.as_slice() {
            rows.push([*name, kind, unit, labels].join("\t").replace('`', ""));
        }
    }
    ensure!(!rows.is_empty(), "docs/metrics.md has no table of metrics");
    rows.sort();
    Ok(rows.join("\n") + "\n")
}
