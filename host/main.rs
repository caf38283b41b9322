//! Order of start-up; everything else is in the library.

use std::process::ExitCode;

/// Counts what the policy engine allocates, which bounds hostile policies.
fn main() -> ExitCode {
    tollgate::cli::main()
}
