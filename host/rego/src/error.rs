//! Why there is no decision.

use tollgate_policy::cel;

use crate::limits::DECISION_TIME_LIMIT;
use crate::watchdog::STUCK_AFTER;

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
        source: cel::Error,
    },
    /// The engine panicked.
    #[error("the policy engine panicked")]
    Panicked,
    /// An earlier decision of this bundle has not returned for [`STUCK_AFTER`].
    #[error("the policy is not used any more, one of its decisions ran longer than {STUCK_AFTER:?}")]
    Stuck,
}
