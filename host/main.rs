//! The binary's entry point. Everything else is in the library.
//!
//! Security: core dumps are off, so that no secret gets to disk with one.

use std::process::ExitCode;

/// Runs the command line.
fn main() -> ExitCode {
    // A core dump would contain every secret. Lowering a limit needs no privilege; if it fails
    // anyway, the gateway can still run.
    drop(rlimit::setrlimit(rlimit::Resource::CORE, 0, 0));
    tollgate_cli::main()
}
