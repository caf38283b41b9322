//! Policy bundles in Rego, one for each front. A bundle gets an input that the host built and
//! returns a decision.
//!
//! A bundle is `policy.rego` and other `*.rego`, conditions in `*.cel.yaml` that can only deny,
//! tables in `data/`, and `cases.yaml`. docs/policies.md describes them for operators.
//!
//! Security: only `{"allow": true}` allows. This process parses a bundle only after a child process
//! with limits has parsed, checked and tested it.

mod builtins;
mod bundle;
mod cases;
mod compile;
mod constructs;
mod coverage;
mod decision;
mod dependencies;
mod depth;
mod engine;
mod error;
mod evaluator;
mod explanation;
mod front;
mod functions;
mod graph;
mod growth;
mod input;
mod interpreter;
mod limits;
mod operators;
mod scan;
mod schema;
mod source;
mod starvation;
mod syntax;
mod usage;
mod watchdog;
mod worker;

/// A value of an input, as the interpreter has it.
pub use regorus::Value;

pub use bundle::Bundle;
pub use cases::{CaseOutcome, CaseResult};
pub use coverage::{Coverage, FileCoverage};
pub use decision::Decision;
pub use dependencies::{InputDependencies, RequestParts};
pub use error::Error;
pub use explanation::UntrueCondition;
pub use front::Front;
pub use graph::{MAX_CALL_DEPTH, MAX_LEVELS};
pub use growth::{MAX_TREE_DEPTH, MAX_TREE_NODES};
pub use input::{
    ApplicationChange, ApplicationDetails, ApplicationFacts, ApplicationInput, ApplicationSetDetails,
    ApplicationSetFacts, ApplicationSetInput, ApplicationSetStage, ApplicationVerdicts, ArgocdInput, ArgocdRequest,
    CheckedFact, ControlPlaneInput, ExtensionFacts, ExtensionInput, ExtensionRequest, ExtensionVerdicts,
    KubernetesFacts, KubernetesInput, MAX_CANDIDATES, PlacementChecks, PrincipalFacts, RbacCheck, RbacFacts, RbacRow,
    RbacVerdict,
};
pub use limits::{DECISION_TIME_LIMIT, MAX_MEMORY_BYTES, MAX_STACK_BYTES, WORKER_STACK_BYTES};
pub use scan::{MAX_BRACKET_DEPTH, MAX_COLUMNS, MAX_FILE_BYTES, MAX_LINES};
pub use source::BundleSource;
pub use watchdog::STUCK_AFTER;
pub use worker::{CheckReport, Checker, WorkerLimits, run_job};
