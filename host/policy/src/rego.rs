//! Policy bundles in Rego, one for each front. A bundle gets an input that the host built and
//! returns a decision.
//!
//! A bundle is `policy.rego` and other `*.rego`, conditions in `*.cel.yaml` that can only deny,
//! tables in `data/`, and `cases.yaml`. docs/policies.md describes them for operators.
//!
//! Security: only `{"allow": true}` allows. This process parses a bundle only after a child process
//! with limits has parsed, checked and tested it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use tollgate_core::diagnostic::{Diagnostic, Loaded, Location};

mod builtins;
mod cases;
mod compile;
mod constructs;
mod decision;
mod dependencies;
mod depth;
mod evaluator;
mod explanation;
mod functions;
mod graph;
mod growth;
mod input;
mod interpreter;
mod operators;
mod scan;
mod schema;
mod source;
mod starvation;
mod syntax;
mod watchdog;
mod worker;

pub use decision::Decision;
pub use dependencies::{InputDependencies, RequestParts};
pub use explanation::UntrueCondition;
pub use graph::{MAX_CALL_DEPTH, MAX_LEVELS};
pub use growth::{MAX_TREE_DEPTH, MAX_TREE_NODES};
pub use input::{
    ApplicationChange, ApplicationDetails, ApplicationFacts, ApplicationInput, ApplicationSetDetails,
    ApplicationSetFacts, ApplicationSetInput, ApplicationSetStage, ApplicationVerdicts, ArgocdInput, ArgocdRequest,
    CheckedFact, ControlPlaneInput, ExtensionFacts, ExtensionInput, ExtensionRequest, ExtensionVerdicts,
    KubernetesFacts, KubernetesInput, MAX_CANDIDATES, PlacementChecks, PrincipalFacts, RbacCheck, RbacFacts, RbacRow,
    RbacVerdict,
};
pub use scan::{MAX_BRACKET_DEPTH, MAX_COLUMNS, MAX_FILE_BYTES, MAX_LINES};
pub use source::{BundleSource, IMPERSONATION_FILE};
pub use watchdog::STUCK_AFTER;
pub use worker::{CaseOutcome, CaseResult, CheckReport, Checker, Coverage, FileCoverage, WorkerLimits, run_job};

/// Maximum time of one decision, checked between expressions.
///
/// This is wall time, unless the thread did not run meanwhile: a decision that a busy machine held
/// up is repeated, with three attempts at most.
pub const DECISION_TIME_LIMIT: Duration = Duration::from_millis(50);
/// Maximum number of attempts for one decision, each with twice the wall time: 350 ms in all.
const MAX_ATTEMPTS: u32 = 3;
/// Bytes that one decision may allocate beyond its input, checked after each call of a built-in
/// function and at the end. A single call can overshoot by the factor that its terms allow, and what
/// stands between two calls by what the interpreter can build in its time.
pub const MAX_MEMORY_BYTES: u64 = 2 * 1024 * 1024;
/// Bytes of stack that a decision needs at most, [`MAX_LEVELS`] deep.
pub const MAX_STACK_BYTES: usize = 16 * 1024 * 1024;

/// A front that a bundle decides for.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::AsRefStr,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Front {
    /// Requests to proxy extensions.
    Extensions,
    /// Requests to clusters below `/k8s-proxy/`.
    Kubernetes,
    /// Requests to clusters in the name of an Application.
    Applications,
    /// ApplicationSets, what they read and what they generate.
    ApplicationSets,
    /// Calls of Argo CD's own API.
    Argocd,
    /// Requests of Argo CD's own components to clusters.
    ControlPlane,
}

impl Front {
    fn entry_point(self) -> String {
        format!("data.tollgate.{}.decision", self.as_ref())
    }

    /// JSON Schema of the input.
    pub fn input_schema(self) -> &'static serde_json::Value {
        input::schema(self)
    }
}

/// Why there is no decision. Each error denies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The rule has no value for this input.
    #[error("the policy gives no decision for this request")]
    Undefined,
    /// The decision is not an object.
    #[error("the decision is of type `{0}`, an object is expected")]
    NotAnObject(&'static str),
    /// `allow` is missing or not a boolean.
    #[error("`allow` of the decision is of type `{0}`, a boolean is expected")]
    NotABoolean(&'static str),
    /// `reason` is not a short, printable text.
    #[error("`reason` of the decision {0}")]
    Reason(&'static str),
    /// A key of the decision that this front does not know.
    #[error("the decision has the unknown key `{0}`")]
    UnknownObligation(String),
    /// A known key with a wrong value.
    #[error("`{key}` of the decision {problem}")]
    Obligation {
        /// The key.
        key: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The decision took longer than [`DECISION_TIME_LIMIT`].
    #[error("the policy ran longer than {DECISION_TIME_LIMIT:?}")]
    Time,
    /// The decision took too much memory.
    #[error("the policy used {observed} bytes, {limit} are allowed")]
    Memory {
        /// Bytes used.
        observed: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// A function or operator failed, or a rule has two different values: where, and which.
    #[error("the policy failed: {0}")]
    Evaluation(String),
    /// A condition of a `*.cel.yaml` could not be evaluated.
    #[error("condition `{name}`: {source}")]
    Condition {
        /// Name of the condition.
        name: String,
        /// Why.
        source: super::cel::Error,
    },
    /// The engine panicked.
    #[error("the policy engine panicked")]
    Panicked,
    /// An earlier decision of this bundle has not returned for [`STUCK_AFTER`].
    #[error("the policy is not used any more, one of its decisions ran longer than {STUCK_AFTER:?}")]
    Stuck,
}

/// One front's policy, compiled, tested and ready.
#[derive(Debug)]
pub struct Bundle {
    compiled: compile::Compiled,
    digest: String,
    front: Front,
    /// Identifies this bundle among each thread's engines.
    generation: u64,
    alive: Arc<()>,
    watchdog: watchdog::Watchdog,
}

static GENERATIONS: AtomicU64 = AtomicU64::new(1);

impl Bundle {
    /// Reads, checks, tests and compiles the bundle of `front` in `directory`.
    ///
    /// Blocks for some 10 ms, at most for the checker's time limit. The bundle is scanned here,
    /// then parsed, compiled and tested in a child process with limits. Only then is it parsed in
    /// this process.
    ///
    /// Findings are everything that the child process reports about the bundle, including failing
    /// cases, or how the child process died.
    pub fn load(directory: &Path, front: Front, checker: &Checker) -> Loaded<Self> {
        Self::load_source(directory, front, checker).map(|(bundle, _)| bundle)
    }

    /// Like [`Bundle::load`], together with what `parse` makes of [`IMPERSONATION_FILE`].
    ///
    /// - `parse`: takes path and text. It returns `None` if the file is broken, which the child
    ///   process has then reported.
    /// - `what`: names what `parse` returns, for the finding that it returned nothing.
    pub fn load_with<T>(
        (directory, front): (&Path, Front),
        checker: &Checker,
        (what, parse): (&str, impl FnOnce(&str, &str) -> Option<T>),
    ) -> Loaded<(Self, T)> {
        let Loaded { value, mut diagnostics } = Self::load_source(directory, front, checker);
        let Some((bundle, source)) = value else {
            return Loaded::refused(diagnostics);
        };
        match source.impersonation().and_then(|(path, text)| parse(path, text)) {
            Some(parsed) => Loaded::new((bundle, parsed), diagnostics),
            None => {
                diagnostics.push(Diagnostic::error(None, format!("{what} could not be compiled")));
                Loaded::refused(diagnostics)
            }
        }
    }

    fn load_source(directory: &Path, front: Front, checker: &Checker) -> Loaded<(Self, BundleSource)> {
        let read = BundleSource::read(directory, front);
        let mut found = read.diagnostics;
        let Some(source) = read.value else {
            return Loaded::refused(found);
        };
        found.extend(checker.check(&source, Coverage::Off).diagnostics);
        if found.iter().any(Diagnostic::is_error) {
            return Loaded::refused(found);
        }
        let bundle = compile::compile_on_large_stack(&source).and_then(|compiled| {
            Self::new(compiled, &source).map_err(|error| {
                let message = format!("the watch over the bundle cannot be started: {error}");
                vec![Diagnostic::error(None, message)]
            })
        });
        match bundle {
            Ok(bundle) => Loaded::new((bundle, source), found),
            Err(more) => {
                found.extend(more);
                if !found.iter().any(Diagnostic::is_error) {
                    let here = Location::new(directory.display().to_string(), 0);
                    found.push(Diagnostic::error(here, "the bundle could not be compiled"));
                }
                Loaded::refused(found)
            }
        }
    }

    /// A bundle that tests trust, without the child process; `None` if it does not compile.
    #[cfg(any(test, feature = "unchecked"))]
    pub fn unchecked(source: &BundleSource) -> Option<Self> {
        Self::unchecked_or_findings(source).ok()
    }

    /// As [`Bundle::unchecked`].
    ///
    /// # Errors
    /// Why it does not compile.
    #[cfg(any(test, feature = "unchecked"))]
    pub fn unchecked_or_findings(source: &BundleSource) -> Result<Self, Vec<Diagnostic>> {
        let compiled = compile::compile_on_large_stack(source)?;
        Self::new(compiled, source).map_err(|error| vec![Diagnostic::error(None, error.to_string())])
    }

    /// The value of the rule that decides, for tests alone: [`Bundle::decide`] without conditions, and
    /// without reading the value as a decision.
    ///
    /// # Errors
    /// As [`Bundle::decide`]. A rule without a value is [`Error::Undefined`].
    #[cfg(any(test, feature = "unchecked"))]
    #[expect(clippy::needless_pass_by_value, reason = "an input is made for one decision")]
    pub fn evaluate(&self, input: regorus::Value) -> Result<regorus::Value, Error> {
        self.check_stuck()?;
        let value = self.watchdog.run(|| {
            interpreter::run(
                self.generation,
                &self.alive,
                &self.compiled,
                &input,
                DECISION_TIME_LIMIT,
            )
        })?;
        match value {
            regorus::Value::Undefined => Err(Error::Undefined),
            value => Ok(value),
        }
    }

    fn new(compiled: compile::Compiled, source: &BundleSource) -> std::io::Result<Self> {
        let (digest, front) = (source.digest(), source.front);
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        let watchdog = watchdog::Watchdog::start(generation, format!("{}@{digest}", front.as_ref()))?;
        Ok(Self {
            compiled,
            digest,
            front,
            generation,
            alive: Arc::new(()),
            watchdog,
        })
    }

    /// Decides one request.
    ///
    /// Takes microseconds; bounded by [`DECISION_TIME_LIMIT`] and [`MAX_MEMORY_BYTES`]. Needs
    /// [`MAX_STACK_BYTES`] of stack. Never blocks on a lock that another decision holds: each thread
    /// has its own engine and data.
    ///
    /// # Errors
    /// Every [`Error`] is a denial. After a decision that did not return within [`STUCK_AFTER`],
    /// [`Error::Stuck`] is returned at once until that decision returns.
    #[expect(clippy::needless_pass_by_value, reason = "an input is made for one decision")]
    pub fn decide(&self, input: regorus::Value) -> Result<Decision, Error> {
        self.decide_within(&input, DECISION_TIME_LIMIT)
    }

    fn decide_within(&self, input: &regorus::Value, limit: Duration) -> Result<Decision, Error> {
        self.check_stuck()?;
        self.watchdog.run(|| {
            if let Some(denied) = self.compiled.evaluate_conditions(input)? {
                return Ok(denied);
            }
            let value = interpreter::run(self.generation, &self.alive, &self.compiled, input, limit)?;
            decision::read(self.front, &value)
        })
    }

    /// # Errors
    /// [`Error::Stuck`] while the bundle is stuck.
    pub fn check_stuck(&self) -> Result<(), Error> {
        if self.is_stuck() { Err(Error::Stuck) } else { Ok(()) }
    }

    /// Whether a decision has been running for longer than [`STUCK_AFTER`]. Every further decision
    /// is then [`Error::Stuck`] until it returns or another bundle is loaded.
    pub fn is_stuck(&self) -> bool {
        self.watchdog.is_stuck()
    }

    /// Which parts of the input the decision can depend on.
    pub fn dependencies(&self) -> InputDependencies {
        self.compiled.dependencies
    }

    /// Hex SHA-256 of the bundle's files.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The front that it decides for.
    pub fn front(&self) -> Front {
        self.front
    }
}

/// Parses a YAML or JSON text; on failure returns what is wrong with it and where.
pub fn parse_yaml<T: serde::de::DeserializeOwned>(path: &str, text: &str) -> Result<T, Diagnostic> {
    serde_saphyr::from_str(text).map_err(|error| {
        let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
        let number = |value: u64| u32::try_from(value).unwrap_or(0);
        let location = Location {
            file: path.into(),
            line: number(line),
            column: number(column),
        };
        let text = shorten(&error.to_string());
        // The location says that already.
        let position = format!("error: line {line} column {column}: ");
        Diagnostic::error(location, text.strip_prefix(&position).unwrap_or(&text))
    })
}

/// The first line of a text, at most 300 characters, without control characters.
fn shorten(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(300).collect()
}
