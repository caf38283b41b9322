//! Tests policy bundles with the loader of the gateway.

use std::path::PathBuf;

use tollgate_rego::Checker;

mod applications;
mod applicationsets;
mod bundles;
mod commands;
mod explain;
mod shell;
mod shipped;

fn checker() -> Checker {
    Checker::new(PathBuf::from(env!("CARGO_BIN_EXE_tollgate")))
}
