//! What the last load of each part of the configuration found.

use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::diagnostic::Diagnostic;
use tollgate_proxy::metrics::ConfigPart;

#[derive(Clone, Debug, Default)]
pub(crate) struct LoadFindings(Arc<Mutex<ByPart>>);

type ByPart = Vec<(ConfigPart, Vec<Diagnostic>)>;

impl LoadFindings {
    pub(crate) fn set(&self, part: ConfigPart, findings: Vec<Diagnostic>) {
        let mut by_part = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        by_part.retain(|(other, _)| *other != part);
        by_part.push((part, findings));
    }

    pub(crate) fn all(&self) -> Vec<Diagnostic> {
        let by_part = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        by_part.iter().flat_map(|(_, findings)| findings).cloned().collect()
    }
}
