//! Cases of `providers.yaml`: a module a kind.

mod cache;

use serde_json::Value;

use crate::suite::{Case, Suite, Table};

/// Kinds of the table of credential providers.
pub(crate) struct Providers;

impl Suite for Providers {
    fn covers(&self, table: &Table, kind: &str) -> bool {
        let explained = table.head.get("meta").and_then(|meta| meta.get("kinds"));
        explained.is_some_and(|kinds| kinds.get(kind).is_some()) && matches!(kind, "cache")
    }

    fn run(&self, _table: &Table, case: &Case) -> Result<(), String> {
        let fields: Value = case.read()?;
        match case.kind.as_str() {
            "cache" => cache::run(&fields),
            other => Err(format!("no handler for `{other}`")),
        }
    }
}
