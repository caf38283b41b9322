//! Order of start-up; everything else is in the library.
//!
//! Never: a decision; a secret on disk with a core dump.

use std::process::ExitCode;

/// Runs the command line.
fn main() -> ExitCode {
    // A dump would be a copy of every secret. Lowering a limit needs no right;
    // where it fails all the same, the gateway is no less fit to run.
    drop(rlimit::setrlimit(rlimit::Resource::CORE, 0, 0));
    tollgate::cli::main()
}
