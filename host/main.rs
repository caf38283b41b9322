//! Order of start-up; everything else is in the library.
//!
//! Never: a decision.

use std::process::ExitCode;

/// Runs the command line.
fn main() -> ExitCode {
    tollgate::cli::main()
}
