//! What the fronts share that keep the inputs of their policies.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use tollgate_core::attributes::Attributes;

/// Bytes of what is kept beside the facts of a caller, approximately: attributes of the request, and
/// references.
pub const ATTRIBUTE_BYTES: usize = 1_024;

/// Bytes that a request to a cluster keeps alive, approximately. Callers choose its path, and what is read
/// from it.
pub fn attributes_size(attributes: &Attributes) -> usize {
    attributes.path.len().saturating_mul(2).saturating_add(ATTRIBUTE_BYTES)
}

/// An input as JSON.
pub fn json(input: &impl Serialize) -> Value {
    // Inputs have nothing that JSON has not.
    serde_json::to_value(input).unwrap_or_default()
}

/// The time for an input: that of the decision, and without one the time of the record. A policy that
/// does not read the time is not given any, but the one that is tried may read it.
pub fn json_time(judged: Option<&str>, at: Option<Timestamp>) -> Option<String> {
    judged.map(str::to_owned).or_else(|| at.map(|at| at.to_string()))
}
