//! The state of one cached credential, for metrics and operators: numbers, times and the last
//! error.
//!
//! Security: it contains no secret; a fingerprint has a meaning in this process only.

use jiff::Timestamp;
use serde::Serialize;

use super::super::MintError;

/// The status of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum SlotStatus {
    /// There is no credential, because none was requested for a long time or ever. The next request
    /// mints.
    Idle,
    /// There is a usable credential.
    Usable,
    /// There is a usable credential, and renewing it failed.
    Stale,
    /// There is none, because minting failed.
    Failing,
    /// Closed, because its inputs changed or were removed.
    Closed,
}

/// The state of one slot at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// The status of the slot.
    pub standing: SlotStatus,
    /// Number of credentials minted so far, which is the number of the current one.
    pub generation: u64,
    /// 8 hexadecimal digits that identify the current token in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Start of the mint that made the current credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minted_at: Option<Timestamp>,
    /// When the current credential expires, as its provider says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// From when a request renews it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_at: Option<Timestamp>,
    /// How long the last mint took, whether it succeeded or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_mint_seconds: Option<f64>,
    /// Completed mints, successful or not.
    pub mints: u64,
    /// Failed mints.
    pub failed: u64,
    /// The last error. It stays even after a later mint succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// When the next mint may run, if it must wait after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<Timestamp>,
    /// Warnings of the provider for the operator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// An error of a mint, for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastError {
    /// The error.
    #[serde(flatten)]
    pub error: MintError,
    /// When it happened.
    pub at: Timestamp,
}

/// Sums over all slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Slots that clusters use.
    pub slots: usize,
    /// Credentials in memory.
    pub live: usize,
    /// Mints that may still start at once.
    pub free_mints: usize,
}
