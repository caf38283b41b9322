//! Kind `cache`: the credential cache with a manual clock and a fake provider.
//!
//! A case has one of several forms, which its fields identify. Each form refuses unknown fields.

mod harness;
mod keys;
mod script;
mod times;

use std::future::Future;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Runs a case of any form.
///
/// # Errors
/// Expected and observed, or the unknown field.
pub(crate) fn run(case: &Value) -> Result<(), String> {
    let has = |field: &str| case.get(field).is_some();
    if has("a") || has("b") {
        wait(keys::pair(read(case)?))
    } else if has("steps") {
        wait(script::steps(read(case)?))
    } else if has("concurrent_gets") {
        wait(script::concurrent_gets(read(case)?))
    } else if has("at_s") {
        wait(times::renewal(read(case)?))
    } else if has("mint_result") {
        wait(times::failures(read(case)?))
    } else if has("lifetime_s") {
        wait(times::window(read(case)?))
    } else {
        Err("no form of cache case has these fields".to_owned())
    }
}

fn read<T: DeserializeOwned>(case: &Value) -> Result<T, String> {
    serde_json::from_value(case.clone()).map_err(|error| error.to_string())
}

fn wait(run: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(run)
}
