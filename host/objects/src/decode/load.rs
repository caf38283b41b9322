//! Builds [`Resources`] from decoded inputs, and reuses the result while they stay the same.

use std::sync::Arc;

use super::last_known_good::{Completeness, DecodedInput, last_known_good};
use super::{LoadMemo, collect};
use crate::Resources;
use tollgate_core::diagnostic::{Diagnostic, Loaded};

/// The loads of one source.
#[derive(Debug, Default)]
pub struct LoadHistory {
    memo: LoadMemo,
    last: Option<LastLoad>,
    /// What each input last decoded to without mistakes.
    last_good: Vec<DecodedInput>,
}

#[derive(Debug)]
struct LastLoad {
    decoded: Vec<DecodedInput>,
    /// The findings that are about no input.
    outer: Vec<Diagnostic>,
    resources: Option<Arc<Resources>>,
    /// If the load was refused.
    last_known_good: Option<Arc<Resources>>,
    findings: Vec<Diagnostic>,
}

impl LoadHistory {
    /// The resources of `decoded`, with the findings `outer` that are about no input. `namespace`
    /// is the control plane's.
    pub fn load(
        &mut self,
        decoded: Vec<DecodedInput>,
        outer: Vec<Diagnostic>,
        namespace: &str,
    ) -> Loaded<Arc<Resources>> {
        let is_same = |(now, then): (&DecodedInput, &DecodedInput)| Arc::ptr_eq(&now.items, &then.items);
        if let Some(last) = &self.last
            && last.outer == outer
            && decoded.len() == last.decoded.len()
            && decoded.iter().zip(&last.decoded).all(is_same)
        {
            return Loaded {
                value: last.resources.clone(),
                diagnostics: last.findings.clone(),
            };
        }
        let (resources, more) = collect(&decoded, namespace, &mut self.memo);
        let findings = outer.iter().cloned().chain(more).collect();
        let loaded = Loaded::new(Arc::new(resources), findings);
        let mut last_known_good_resources = None;
        if loaded.value.is_some() {
            self.last_good.clone_from(&decoded);
        } else {
            let completeness = match outer.iter().any(Diagnostic::is_error) {
                true => Completeness::Partial,
                false => Completeness::Complete,
            };
            self.last_good = last_known_good(&decoded, &self.last_good, completeness);
            // With a copy of the memo: this result is never in force, and the next load must not reuse parts of it.
            let (resources, _) = collect(&self.last_good, namespace, &mut self.memo.clone());
            last_known_good_resources = Some(Arc::new(resources));
        }
        self.last = Some(LastLoad {
            decoded,
            outer,
            last_known_good: last_known_good_resources,
            resources: loaded.value.clone(),
            findings: loaded.diagnostics.clone(),
        });
        loaded
    }

    /// While the last load is refused: the last good content of what has mistakes, and all else as it is now.
    pub fn last_known_good(&self) -> Option<Arc<Resources>> {
        self.last.as_ref()?.last_known_good.clone()
    }
}
