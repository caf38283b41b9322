//! `cargo xtask differential`: compares our decisions with those of Argo CD, Kubernetes, OPA and
//! cel-go, and prints a table of the results.
//!
//! It runs the same tests as CI, sets how many pairs they compare and from which seed, and reads
//! the line that each of them prints.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::Deserialize;

use crate::{argocd, engines};

/// Compares our decisions with those of Argo CD, Kubernetes, OPA and cel-go.
#[derive(Debug, clap::Args)]
pub struct Differential {
    /// What to compare; everything by default.
    kinds: Vec<Kind>,
    /// Number of pairs of answers to compare, for each kind.
    #[arg(long, default_value_t = 1_000_000)]
    pairs: u64,
    /// Seed: the same seed compares the same pairs. By default it is taken from the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// Build with optimizations, for long runs.
    #[arg(long)]
    release: bool,
}

/// What can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// RBAC decisions, with those of Argo CD's enforcer.
    Rbac,
    /// How lines of `policy.csv` are read, with Argo CD's loader.
    Policy,
    /// Globs and lists of globs, with Argo CD's `util/glob`.
    Glob,
    /// Attributes of requests, with those of kube-apiserver's `RequestInfoFactory`.
    Attributes,
    /// Functions of templates, with those of Argo CD.
    TemplateFunctions,
    /// Whole templates, with Argo CD's engine.
    Templates,
    /// Templates without `goTemplate`, with Argo CD's engine.
    FastTemplates,
    /// YAML of generators, patches and templates, with Argo CD's reader.
    Yaml,
    /// Whether sync windows permit a manual sync, with Argo CD's `SyncWindows`.
    SyncWindows,
    /// Policies in Rego, with OPA. A pair is a policy and an input.
    Rego,
    /// Expressions in CEL, with cel-go. A pair is an expression and an input.
    Cel,
}

impl Kind {
    /// Name of the test that compares it.
    fn test(self) -> &'static str {
        match self {
            Self::Rbac => "differential::rbac::verdicts_are_those_of_argo_cd",
            Self::Policy => "differential::policy_csv::policies_are_read_as_argo_cd_reads_them",
            Self::Glob => "differential::glob::globs_are_those_of_argo_cd",
            Self::Attributes => "differential::attributes::attributes_are_those_of_kube_apiserver",
            Self::TemplateFunctions => {
                "applicationsets::differential::functions_of_judged_texts_give_what_argo_cd_s_give"
            }
            Self::Templates => "applicationsets::differential::judged_texts_become_what_argo_cd_makes_of_them",
            Self::FastTemplates => {
                "applicationsets::differential::texts_of_the_fast_engine_become_what_argo_cd_makes_of_them"
            }
            Self::Yaml => "differential::yaml::documents_are_those_of_argo_cd",
            Self::SyncWindows => "differential::sync_windows::manual_syncs_pass_where_argo_cd_lets_them_pass",
            Self::Rego => "differential::rego::policies_mean_what_opa_says",
            Self::Cel => "differential::cel::expressions_are_true_only_where_cel_go_says_so",
        }
    }
}

/// The line that a test prints.
#[derive(Debug, Deserialize)]
struct Line {
    kind: String,
    pairs: u64,
    /// Both sides allow. For templates: both render the same.
    #[serde(alias = "same")]
    allows: u64,
    /// Both sides deny. Templates have no such count.
    denies: Option<u64>,
    /// Both sides refuse the question. For templates: both report an error.
    #[serde(alias = "wrong")]
    refused_by_both: Option<u64>,
    refused: Option<Refused>,
    #[serde(default)]
    exceptions: BTreeMap<String, u64>,
    unexplained: u64,
    seconds: f64,
    seed: u64,
}

/// The member `refused`: a count, or, for templates, what only we refuse, by reason.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Refused {
    ByBoth(u64),
    ByUs(BTreeMap<String, u64>),
}

impl Line {
    fn exceptions(&self) -> impl Iterator<Item = (&String, u64)> {
        let by_us = match &self.refused {
            Some(Refused::ByUs(by_us)) => Some(by_us),
            Some(Refused::ByBoth(_)) | None => None,
        };
        self.exceptions
            .iter()
            .chain(by_us.into_iter().flatten())
            .map(|(name, count)| (name, *count))
    }

    fn refused_by_both(&self) -> u64 {
        match self.refused {
            Some(Refused::ByBoth(count)) => count,
            Some(Refused::ByUs(_)) | None => self.refused_by_both.unwrap_or_default(),
        }
    }
}

/// The seed that was given, or one from the clock.
pub fn seed_or_clock(given: Option<u64>) -> Result<u64> {
    match given {
        Some(seed) => Ok(seed),
        None => Ok(SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .context("reading the clock")?
            .as_secs()),
    }
}

impl Differential {
    /// Runs the task.
    ///
    /// # Errors
    /// Something cannot be built, or a test fails. The table is printed even if a test fails.
    pub fn run(self, root: &Path) -> Result<()> {
        argocd::build(root)?;
        engines::build(root)?;
        let seed = seed_or_clock(self.seed)?;
        let kinds = if self.kinds.is_empty() {
            Kind::value_variants().to_vec()
        } else {
            self.kinds.clone()
        };
        let mut lines = Vec::new();
        let mut failed = Vec::new();
        for kind in kinds {
            let (line, outcome) = self.compare(root, kind, seed);
            lines.extend(line);
            if let Err(error) = outcome {
                failed.push(format!("{kind:?}: {error:#}"));
            }
        }
        print(&lines);
        ensure!(failed.is_empty(), "{}", failed.join("\n"));
        Ok(())
    }

    /// Runs one test and returns the line that it printed, even if it failed.
    fn compare(&self, root: &Path, kind: Kind, seed: u64) -> (Option<Line>, Result<()>) {
        let test = kind.test();
        eprintln!("== {test}: {} pairs, seed {seed}", self.pairs);
        // Without `--workspace`, libraries would be built again with other features.
        let mut command = Command::new("cargo");
        command.args(["test", "--workspace", "--test", "parts"]);
        if self.release {
            command.arg("--release");
        }
        command
            .args(["--", "--exact", test, "--nocapture"])
            .env("TOLLGATE_DIFFERENTIAL_PAIRS", self.pairs.to_string())
            .env("TOLLGATE_DIFFERENTIAL_SEED", seed.to_string())
            .current_dir(root);
        let mut line = None;
        let mut outcome = run_test(&mut command, &mut line);
        if outcome.is_ok() && line.is_none() {
            outcome = Err(anyhow::anyhow!("no test is called `{test}`"));
        }
        (line, outcome)
    }
}

/// Runs the command and stores its `differential: ` line in `found`.
fn run_test(command: &mut Command, found: &mut Option<Line>) -> Result<()> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let output = child.stdout.take().context("the test has no output")?;
    for line in BufReader::new(output).lines() {
        let line = line.context("reading the test's output")?;
        if let Some(json) = line.strip_prefix("differential: ") {
            *found = Some(serde_json::from_str(json).with_context(|| format!("reading `{json}`"))?);
        }
    }
    let status = child.wait().context("waiting for the test")?;
    if !status.success() {
        bail!("the test failed, see its output above");
    }
    Ok(())
}

fn print(lines: &[Line]) {
    println!(
        "| kind | pairs | allows | denies | refused by both | named exceptions | unexplained | seconds | seed |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    for line in lines {
        let denies = line.denies.map_or_else(|| "-".to_owned(), |denies| denies.to_string());
        let exceptions: u64 = line.exceptions().map(|(_, count)| count).sum();
        println!(
            "| {} | {} | {} | {denies} | {} | {exceptions} | {} | {:.0} | {} |",
            line.kind,
            line.pairs,
            line.allows,
            line.refused_by_both(),
            line.unexplained,
            line.seconds,
            line.seed
        );
    }
    for line in lines {
        for (name, count) in line.exceptions() {
            println!("{}: {count} {name}", line.kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn both_forms_of_the_line_are_read() {
        let line = r#"{"kind": "glob", "pairs": 9, "allows": 3, "denies": 2, "refused": 1, "exceptions": {"x": 3},
            "unexplained": 0, "seconds": 1.5, "seed": 13}"#;
        let line: Line = serde_json::from_str(line).unwrap();
        assert_eq!((line.refused_by_both(), line.exceptions().count()), (1, 1));
        let line = r#"{"kind": "templates", "pairs": 9, "same": 4, "wrong": 2, "refused": {"a": 1, "b": 2},
            "unexplained": 0, "seconds": 1.5, "seed": 13}"#;
        let line: Line = serde_json::from_str(line).unwrap();
        assert_eq!(
            (line.allows, line.refused_by_both(), line.exceptions().count()),
            (4, 2, 2)
        );
    }
}
