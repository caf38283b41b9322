//! Loads and evaluates the bundle `policies/applicationsets`.
//!
//! Security: the policy can only narrow; it cannot allow what the host's own findings refuse.

use std::path::Path;

use tollgate_core::diagnostic::Loaded;
use tollgate_policy::rego::{self, ApplicationSetInput, Bundle, Checker, Front};

/// Bundle of the ApplicationSet front, compiled, tested and ready.
#[derive(Debug)]
pub(crate) struct ApplicationSetsPolicy(pub(super) Bundle);

impl ApplicationSetsPolicy {
    /// Reads, checks, tests and compiles `policies/applicationsets`.
    ///
    /// Blocks as [`Bundle::load`] does. Findings: as there.
    pub(crate) fn load(folder: &Path, checker: &Checker) -> Loaded<Self> {
        Bundle::load(folder, Front::ApplicationSets, checker).map(Self)
    }

    /// Why the policy denies. `None` if it allows.
    pub(super) fn deny_reason(&self, input: &ApplicationSetInput<'_>) -> Result<Option<String>, rego::Error> {
        let decision = self.0.decide(input.to_value())?;
        Ok((!decision.allow).then_some(decision.reason))
    }
}
