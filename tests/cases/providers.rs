//! Runs the cases of `providers.yaml`.

mod cache;
mod compare;
mod exchange;
mod plugin_host;
mod webapi;

use serde_json::Value;

use crate::suite::{Case, Suite, Table};

/// Kinds of the table of credential providers.
pub(crate) struct Providers;

impl Suite for Providers {
    fn covers(&self, _: &Table, kind: &str) -> bool {
        matches!(kind, "cache" | "exchange" | "template" | "jsonpath" | "egress")
    }

    fn run(&self, table: &Table, case: &Case) -> Result<(), String> {
        match case.kind.as_str() {
            "cache" => cache::run(&case.read::<Value>()?),
            "exchange" => exchange::run(table, case),
            "template" => webapi::template(table, case),
            "jsonpath" => webapi::jsonpath(table, case),
            "egress" => webapi::egress(table, case),
            other => Err(format!("no handler for `{other}`")),
        }
    }
}
