//! What the last load of each part of the configuration found.

use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::diagnostic::Diagnostic;
use tollgate_proxy::metrics::ConfigPart;

/// The findings of the last load of each part. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LoadFindings(Arc<Mutex<ByPart>>);

type ByPart = Vec<(ConfigPart, Vec<Diagnostic>)>;

impl LoadFindings {
    /// Replaces the findings of a part.
    pub fn set(&self, part: ConfigPart, findings: Vec<Diagnostic>) {
        let mut by_part = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        by_part.retain(|(other, _)| *other != part);
        by_part.push((part, findings));
    }

    /// The findings of all parts.
    pub fn all(&self) -> Vec<Diagnostic> {
        let by_part = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        by_part.iter().flat_map(|(_, findings)| findings).cloned().collect()
    }
}
