//! Times single decisions of the peers: the questions of benches/support/rows.rs, and the shipped
//! Rego policy. Each peer checks its answers, except those to lists, and fails on a wrong one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::json;

use super::Effort;
use super::peers::Binaries;

#[path = "../../../benches/support/rows.rs"]
mod rows;

/// Applications in the question that lists them.
const LISTED: usize = 10_000;
/// Rows of the policy for which the list is asked.
const LIST_ROWS: usize = 10_000;

/// A program that Tollgate is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Argo CD's own enforcer.
    Argocd,
    /// casbin-rs.
    Casbin,
    /// Open Policy Agent's SDK.
    Opa,
}

/// One result that a peer printed.
#[derive(Debug)]
pub(super) struct Answer {
    /// The peer that printed it.
    pub(super) peer: Peer,
    /// Question, named as its criterion bench.
    pub(super) name: String,
    /// Median.
    pub(super) nanoseconds: f64,
    /// How many answers were timed, if the rest was extrapolated.
    pub(super) scaled_from: Option<u64>,
}

#[derive(Deserialize)]
struct Line {
    name: String,
    nanoseconds: f64,
    scaled_from: Option<u64>,
}

/// Asks every peer every question.
pub(super) fn ask(root: &Path, binaries: &Binaries, folder: &Path, effort: Effort) -> Result<Vec<Answer>> {
    let time = format!("{}ms", effort.question.as_millis());
    let mut answers = Vec::new();
    for rows in effort.rows {
        println!("RBAC with {rows} rows");
        let questions = write_questions(folder, *rows)?;
        let mut argocd = Command::new(&binaries.argocd);
        argocd.args(["rbac", "-time", &time, "-questions"]).arg(&questions);
        answers.extend(read(Peer::Argocd, &mut argocd)?);
        let mut casbin = Command::new(&binaries.casbin);
        casbin.arg(&questions).arg(effort.question.as_millis().to_string());
        answers.extend(read(Peer::Casbin, &mut casbin)?);
    }
    println!("Rego");
    let mut opa = Command::new(&binaries.opa);
    opa.args(["-time", &time, "-bundle"])
        .arg(root.join("policies/extensions"));
    opa.arg("-input")
        .arg(root.join("benches/support/extensions-input.json"));
    answers.extend(read(Peer::Opa, &mut opa)?);
    Ok(answers)
}

/// Writes a policy of `rows` rows and its questions to the file that every peer reads.
fn write_questions(folder: &Path, rows: usize) -> Result<PathBuf> {
    let asked = rows::questions(rows, if rows == LIST_ROWS { LISTED } else { 0 });
    let tuple =
        |[resource, action, object]: &[String; 3]| json!({"resource": resource, "action": action, "object": object});
    let text = json!({
        "rows": rows,
        "policy": asked.policy,
        "subject": asked.subject,
        "groups": asked.groups,
        "hit": tuple(&asked.hit),
        "miss": tuple(&asked.miss),
        "applications": asked.applications,
    });
    let file = folder.join(format!("questions-{rows}.json"));
    std::fs::write(&file, text.to_string()).with_context(|| format!("writing {}", file.display()))?;
    Ok(file)
}

/// A policy of `rows` rows, for the objects that both proxies read.
pub(super) fn policy(rows: usize) -> String {
    rows::questions(rows, 0).policy
}

fn read(peer: Peer, command: &mut Command) -> Result<Vec<Answer>> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?} ended with {}: {stderr}",
        output.status
    );
    let mut answers = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let line: Line = serde_json::from_str(line).with_context(|| format!("`{line}`"))?;
        let Line {
            name,
            nanoseconds,
            scaled_from,
        } = line;
        answers.push(Answer {
            peer,
            name,
            nanoseconds,
            scaled_from,
        });
    }
    Ok(answers)
}
