//! `cargo xtask differential`: our decisions beside those of Argo CD and Kubernetes, for
//! as many pairs as asked, and a table of what came of it.
//!
//! The tests are those of CI; the task says how many pairs they compare and from which
//! seed, and reads the line that each of them prints.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::Deserialize;

use crate::argocd;

/// Compares our decisions with Argo CD's and Kubernetes' own.
#[derive(Debug, clap::Args)]
pub struct Differential {
    /// What is compared; everything where nothing is named.
    kinds: Vec<Kind>,
    /// Pairs of answers of each kind.
    #[arg(long, default_value_t = 1_000_000)]
    pairs: u64,
    /// Seed; the same one compares the same pairs. The clock gives one where none is named.
    #[arg(long)]
    seed: Option<u64>,
    /// Build with optimizations: for long runs.
    #[arg(long)]
    release: bool,
}

/// What can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Verdicts of RBAC: Argo CD's enforcer.
    Rbac,
    /// Lines of `policy.csv`: Argo CD's loader.
    Policy,
    /// Globs, and lists of them: Argo CD's `util/glob`.
    Glob,
    /// Attributes of requests: kube-apiserver's `RequestInfoFactory`.
    Attributes,
    /// Functions of templates: Argo CD's.
    TemplateFunctions,
    /// Whole templates: Argo CD's.
    Templates,
    /// Templates without `goTemplate`: Argo CD's.
    FastTemplates,
    /// YAML of generators, patches and templates: Argo CD's reader.
    Yaml,
}

impl Kind {
    /// The test that compares it.
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
        }
    }
}

/// The line that a test prints.
#[derive(Debug, Deserialize)]
struct Line {
    kind: String,
    pairs: u64,
    /// Both sides allow; of templates, both render the same.
    #[serde(alias = "same")]
    allows: u64,
    /// Of templates none: a text is not denied.
    denies: Option<u64>,
    /// Both sides refuse the question; of templates, both have an error.
    #[serde(alias = "wrong")]
    refused_by_both: Option<u64>,
    refused: Option<Refused>,
    #[serde(default)]
    exceptions: BTreeMap<String, u64>,
    unexplained: u64,
    seconds: f64,
    seed: u64,
}

/// Of templates, `refused` is what we refuse alone, by reason.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Refused {
    ByBoth(u64),
    Here(BTreeMap<String, u64>),
}

impl Line {
    fn exceptions(&self) -> impl Iterator<Item = (&String, u64)> {
        let here = match &self.refused {
            Some(Refused::Here(here)) => Some(here),
            Some(Refused::ByBoth(_)) | None => None,
        };
        self.exceptions
            .iter()
            .chain(here.into_iter().flatten())
            .map(|(name, count)| (name, *count))
    }

    fn refused_by_both(&self) -> u64 {
        match self.refused {
            Some(Refused::ByBoth(count)) => count,
            Some(Refused::Here(_)) | None => self.refused_by_both.unwrap_or_default(),
        }
    }
}

impl Differential {
    /// Runs the task.
    ///
    /// # Errors
    /// Something cannot be built, or a test fails: the table is printed all the same.
    pub fn run(self, root: &Path) -> Result<()> {
        argocd::build(root)?;
        let seed = match self.seed {
            Some(seed) => seed,
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .context("reading the clock")?
                .as_secs(),
        };
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

    /// Runs one test: the line it printed, also if it fails.
    fn compare(&self, root: &Path, kind: Kind, seed: u64) -> (Option<Line>, Result<()>) {
        let test = kind.test();
        eprintln!("== {test}: {} pairs, seed {seed}", self.pairs);
        // `--workspace`: libraries have other features without, and would be built once more.
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
        let mut outcome = listen(&mut command, &mut line);
        if outcome.is_ok() && line.is_none() {
            outcome = Err(anyhow::anyhow!("no test is called `{test}`"));
        }
        (line, outcome)
    }
}

/// Runs the command and keeps the line among what it prints.
fn listen(command: &mut Command, found: &mut Option<Line>) -> Result<()> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let output = child.stdout.take().context("the test has no output")?;
    for line in BufReader::new(output).lines() {
        let line = line.context("reading the test's output")?;
        if let Some(told) = line.strip_prefix("differential: ") {
            *found = Some(serde_json::from_str(told).with_context(|| format!("reading `{told}`"))?);
        }
    }
    let status = child.wait().context("waiting for the test")?;
    if !status.success() {
        bail!("the test failed, see above");
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
