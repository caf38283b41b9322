//! Checks a bundle in a child process with limits, and returns a report.
//!
//! A policy can hang, overflow the stack or take all memory while it is parsed, compiled or tested.
//! The child (`tollgate policy-worker`) limits itself first and then does all of that; if it is
//! killed, this is a finding about the bundle.
//!
//! Security: this process does not parse the bundle, and a child that exceeds its time is killed.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cases::{self, CaseOutcome, CaseResult};
use crate::compile::{self, Compiled};
use crate::coverage::{Coverage, FileCoverage};
use crate::engine;
use crate::evaluator::Evaluator;
use crate::explanation::{UntrueCondition, untrue_conditions};
use crate::source::BundleSource;
use tollgate_core::diagnostic::{Diagnostic, Location};

const MAX_RESULT_BYTES: u64 = 8 * 1024 * 1024;
const MAX_STDERR_BYTES: u64 = 16 * 1024;
/// SIGABRT: stack overflow, or no memory.
const SIGABRT: i32 = 6;
/// SIGKILL: CPU time beyond the hard limit, or the system is out of memory.
const SIGKILL: i32 = 9;
/// SIGSEGV: a stack overflow that Rust did not detect.
const SIGSEGV: i32 = 11;
/// SIGXCPU: CPU time beyond the soft limit.
const SIGXCPU: i32 = 24;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Check(Coverage),
    Evaluate(serde_json::Value),
    Explain(serde_json::Value),
}

/// The result of a check.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct CheckReport {
    /// Findings; an error refuses the bundle. A failing case is an error.
    pub diagnostics: Vec<Diagnostic>,
    /// Results of the cases, in file order; empty if the bundle does not compile.
    pub cases: Vec<CaseResult>,
    /// Coverage, when asked for.
    pub coverage: Vec<FileCoverage>,
    /// The decision about the input given to [`Checker::evaluate`]: an object with `allow`,
    /// `reason` and obligations, or with `error`.
    pub evaluation: Option<serde_json::Value>,
    /// For a denial, what [`Checker::explain`] found that was tried and was not true.
    pub untrue: Vec<UntrueCondition>,
    /// The complete input given to [`Checker::explain`], with the identity that the mapping gives.
    pub input: Option<serde_json::Value>,
}

impl CheckReport {
    /// Names every file below a folder without that folder.
    pub fn relative_to(&mut self, folder: &str) {
        let cases = self.cases.iter_mut().map(|case| &mut case.file);
        let coverage = self.coverage.iter_mut().map(|coverage| &mut coverage.file);
        let untrue = self.untrue.iter_mut().map(|condition| &mut condition.file);
        for file in cases.chain(coverage).chain(untrue) {
            if let Some(rest) = file.strip_prefix(folder) {
                *file = rest.trim_start_matches('/').to_owned();
            }
        }
    }

    fn with_findings(diagnostics: Vec<Diagnostic>) -> Self {
        Self {
            diagnostics,
            ..Self::default()
        }
    }
}

/// Bounds of one child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerLimits {
    /// Wall time from start to result. It bounds a process that neither ends nor works, and is many
    /// times the CPU time, as a busy machine gives the process only a small share.
    pub time: Duration,
    /// CPU seconds, `RLIMIT_CPU`. They bound a policy that works for too long.
    pub cpu_seconds: u64,
    /// Bytes of address space, `RLIMIT_AS`. The allocator reserves 1 GiB of it without using it, so
    /// a process with much less than 2 GiB does not start at all.
    pub memory_bytes: u64,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(300),
            cpu_seconds: 20,
            memory_bytes: 2 * 1024 * 1024 * 1024,
        }
    }
}

/// Starts the child processes that check bundles.
#[derive(Clone, Debug)]
pub struct Checker {
    exe: PathBuf,
    limits: WorkerLimits,
}

impl Checker {
    /// A checker that runs `exe policy-worker`.
    pub fn new(exe: PathBuf) -> Self {
        Self {
            exe,
            limits: WorkerLimits::default(),
        }
    }

    /// A checker that runs the current program.
    ///
    /// # Errors
    /// The system does not report the path of this program.
    pub fn current() -> std::io::Result<Self> {
        Ok(Self::new(std::env::current_exe()?))
    }

    /// The same checker with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: WorkerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Parses, compiles and tests a bundle.
    pub fn check(&self, source: &BundleSource, coverage: Coverage) -> CheckReport {
        self.run(source, &Action::Check(coverage))
    }

    /// Parses and compiles a bundle and evaluates one input.
    pub fn evaluate(&self, source: &BundleSource, input: serde_json::Value) -> CheckReport {
        self.run(source, &Action::Evaluate(input))
    }

    /// Like [`Checker::evaluate`], and also reports which lines decided and, for a denial, which
    /// conditions were not true. An input of the Kubernetes
    /// front without `identity` gets the one that the mapping gives.
    pub fn explain(&self, source: &BundleSource, input: serde_json::Value) -> CheckReport {
        self.run(source, &Action::Explain(input))
    }

    fn run(&self, source: &BundleSource, action: &Action) -> CheckReport {
        let mut report = self
            .run_child(source, action)
            .unwrap_or_else(|message| CheckReport::with_findings(vec![Diagnostic::error(None, message)]));
        for case in &report.cases {
            if let CaseOutcome::Fail(how) = &case.outcome {
                let location = Location::new(case.file.as_str(), case.line);
                let message = format!("case `{}`: {how}", case.note);
                report.diagnostics.push(Diagnostic::error(location, message));
            }
        }
        report
    }

    fn run_child(&self, source: &BundleSource, action: &Action) -> Result<CheckReport, String> {
        let limits = self.limits;
        let mut text = format!("{} {}\n", limits.cpu_seconds, limits.memory_bytes).into_bytes();
        serde_json::to_writer(&mut text, &(source, action))
            .map_err(|error| format!("the bundle cannot be handed over: {error}"))?;
        // SECURITY: the child gets nothing of the gateway's environment.
        let mut child = Command::new(&self.exe)
            .arg("policy-worker")
            .env_clear()
            .env("RUST_BACKTRACE", "0")
            .env("RUST_LIB_BACKTRACE", "0")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the process that checks policies cannot be started: {error}"))?;
        let finished = communicate(&mut child, text, limits.time);
        if finished.is_none() {
            // It may have ended already; the wait below collects it either way.
            drop(child.kill());
        }
        let status = child
            .wait()
            .map_err(|error| format!("the process that checks policies is lost: {error}"))?;
        let Some((result, stderr)) = finished else {
            return Err(format!("checking the bundle took longer than {:?}", limits.time));
        };
        if !status.success() {
            return Err(describe_exit(status, &stderr, limits));
        }
        serde_json::from_slice(&result).map_err(|_| "the process that checks policies gave no answer".to_owned())
    }
}

/// Writes the job while reading the result and standard error. Returns `None` if waiting for either
/// takes longer than `time`.
fn communicate(child: &mut Child, job: Vec<u8>, time: Duration) -> Option<(Vec<u8>, String)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    // If the child ends early, the write fails, and the exit status is reported instead.
    std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&job)));
    let results = read_in_background(stdout, MAX_RESULT_BYTES);
    let errors = read_in_background(stderr, MAX_STDERR_BYTES);
    let result = results.recv_timeout(time).ok()?;
    let error_text = errors.recv_timeout(time).ok()?;
    Some((result, String::from_utf8_lossy(&error_text).into_owned()))
}

fn read_in_background(from: Option<impl Read + Send + 'static>, most: u64) -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(from) = from {
            // What was read before an error is still useful.
            drop(from.take(most).read_to_end(&mut bytes));
        }
        send.send(bytes)
    });
    receive
}

fn describe_exit(status: ExitStatus, stderr: &str, limits: WorkerLimits) -> String {
    let out_of = |what: &str| format!("the bundle made the checking process run out of {what}");
    let stack = stderr.contains("overflowed its stack");
    let memory = stderr.contains("memory allocation") || stderr.contains("out of memory");
    match status.signal() {
        Some(SIGXCPU) => out_of(&format!("its {} s of CPU time", limits.cpu_seconds)),
        _ if memory => out_of(&format!("its {} bytes of memory", limits.memory_bytes)),
        Some(SIGABRT | SIGSEGV) if stack => out_of("stack"),
        Some(SIGABRT | SIGSEGV) => out_of("stack or memory"),
        Some(SIGKILL) => out_of("CPU time or memory"),
        Some(signal) => format!("the process that checks policies died of signal {signal}"),
        None => format!("the process that checks policies failed with {status}"),
    }
}

/// The child's side: reads the bytes of the job, without the line of limits, and returns the bytes
/// of the result. Call it on a large stack, after the limits are set.
pub fn run_job(job: &[u8]) -> Vec<u8> {
    let report = match serde_json::from_slice(job) {
        Ok((source, action)) => execute_job(&source, action).unwrap_or_else(CheckReport::with_findings),
        Err(error) => {
            let message = format!("the job cannot be read: {error}");
            CheckReport::with_findings(vec![Diagnostic::error(None, message)])
        }
    };
    // Without bytes there is no answer, which the gateway takes for a refusal.
    serde_json::to_vec(&report).unwrap_or_default()
}

fn execute_job(source: &BundleSource, action: Action) -> Result<CheckReport, Vec<Diagnostic>> {
    let compiled = compile::compile(source)?;
    let mut report = CheckReport::default();
    let mut denied = None;
    let coverage = match action {
        Action::Check(coverage) => coverage,
        Action::Evaluate(_) => Coverage::Off,
        Action::Explain(_) => Coverage::On,
    };
    let mut evaluator = Evaluator::new(&compiled, coverage);
    match action {
        Action::Check(_) => {
            let cases = cases::read(source, &mut report.diagnostics);
            let decisions = cases.decisions.iter();
            report.cases = decisions.map(|case| cases::run(&mut evaluator, case)).collect();
            let identities = cases::identities::run(source, &cases.identities, &mut report.diagnostics);
            report.cases.extend(identities);
        }
        Action::Evaluate(input) => decide(&mut evaluator, &input, &mut report),
        Action::Explain(mut input) => {
            cases::identities::fill_identity(source, &mut input, &mut report.diagnostics);
            decide(&mut evaluator, &input, &mut report);
            let decision = report.evaluation.as_ref();
            let is_denied = decision.is_some_and(|decision| decision.get("allow") != Some(&true.into()));
            denied = is_denied.then(|| regorus::Value::from(input.clone()));
            report.input = Some(input);
        }
    }
    report.coverage = evaluator.coverage();
    if let Some(input) = denied {
        explain_denial(source, &compiled, &input, &mut report);
    }
    Ok(report)
}

/// Reports what was not true. If a match condition denied, the rules did not decide.
fn explain_denial(source: &BundleSource, compiled: &Compiled, input: &regorus::Value, report: &mut CheckReport) {
    if let Some(condition) = compiled.untrue_condition(input) {
        report.coverage.clear();
        report.untrue.push(condition);
        return;
    }
    let modules = compile::parse(source, &mut report.diagnostics);
    match untrue_conditions(source, &modules, &report.coverage, &compiled.data, input) {
        Ok(untrue) => report.untrue = untrue,
        Err(why) => {
            let message = format!(
                "which conditions were not true cannot be told: {}",
                engine::error_message(&why)
            );
            report.diagnostics.push(Diagnostic::warning(None, message));
        }
    }
}

fn decide(evaluator: &mut Evaluator<'_>, input: &serde_json::Value, report: &mut CheckReport) {
    for wrong in cases::schema_errors(evaluator.front(), input) {
        let message = format!("the input does not fit the schema: {wrong}");
        report.diagnostics.push(Diagnostic::error(None, message));
    }
    if report.diagnostics.is_empty() {
        report.evaluation = Some(match evaluator.decide(input) {
            Ok(decision) => {
                let mut object = decision.obligations;
                object.insert("allow".into(), decision.allow.into());
                object.insert("reason".into(), decision.reason.into());
                object.into()
            }
            Err(error) => serde_json::json!({"allow": false, "error": error.to_string()}),
        });
    }
}

#[cfg(test)]
mod tests;
