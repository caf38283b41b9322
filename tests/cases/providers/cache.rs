//! Kind `cache`: the token cache, its clock and its provider in our hands.
//!
//! The fields a case has tell its form; each form refuses fields it does not
//! read.

mod bench;
mod keys;
mod script;
mod times;

use std::future::Future;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Runs a case of any form.
///
/// # Errors
/// Expected and observed, or which field nobody reads.
pub(crate) fn run(case: &Value) -> Result<(), String> {
    let has = |field: &str| case.get(field).is_some();
    if has("a") || has("b") {
        wait(keys::pair(read(case)?))
    } else if has("steps") {
        wait(script::steps(read(case)?))
    } else if has("concurrent_gets") {
        wait(script::crowd(read(case)?))
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
