//! Which lines of policies the cases of a bundle reach.

use serde::{Deserialize, Serialize};

/// Whether the lines that cases reach are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coverage {
    /// Reported.
    On,
    /// Not reported.
    Off,
}

/// Lines of one policy file that cases reached, and those that they did not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCoverage {
    /// The file.
    pub file: String,
    /// Lines reached.
    pub covered: Vec<u32>,
    /// Lines not reached.
    pub not_covered: Vec<u32>,
}
