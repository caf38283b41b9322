//! The host interfaces that a plugin is granted.

use std::collections::BTreeSet;

use tollgate_core::plugin::Import;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GrantedImports(u8);

impl GrantedImports {
    pub(super) fn new(imports: &BTreeSet<Import>) -> Self {
        Self(imports.iter().fold(0, |bits, import| bits | 1 << (*import as u8)))
    }

    pub(super) fn has(self, import: Import) -> bool {
        self.0 & 1 << (import as u8) != 0
    }
}
