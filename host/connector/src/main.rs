//! The program `tollgate-connector`.
//!
//! Security: core dumps are off, and memory is wiped when it is freed, so that no secret stays behind.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use tollgate_connector::Command;
use tollgate_core::diagnostic::one_line;
use zeroizing_alloc::ZeroAlloc;

#[global_allocator]
static ALLOCATOR: ZeroAlloc<std::alloc::System> = ZeroAlloc(std::alloc::System);

/// Longest error that is printed, in bytes.
const MAX_ERROR_BYTES: usize = 4_096;

/// Exit status for wrong usage, as of `tollgate`.
const EXIT_USAGE: u8 = 64;

/// Connects a cluster to a Tollgate gateway, from inside the cluster
#[derive(Debug, Parser)]
#[command(name = "tollgate-connector", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Word,
}

#[derive(Debug, clap::Subcommand)]
enum Word {
    #[command(flatten)]
    Own(Command),
    /// As in `tollgate connector run`, and `tollgate agent run` before: one manifest fits the images of both programs
    #[command(subcommand, hide = true, alias = "agent")]
    Connector(Command),
}

fn main() -> ExitCode {
    // Lowering a limit needs no privilege; if it fails anyway, the connector can still run.
    drop(rlimit::setrlimit(rlimit::Resource::CORE, 0, 0));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            return match error.print() {
                Ok(()) if error.use_stderr() => ExitCode::from(EXIT_USAGE),
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
    };
    let (Word::Own(command) | Word::Connector(command)) = cli.command;
    match command.run(&mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // A caller that closed standard error still reads the exit code.
            let _ = writeln!(
                std::io::stderr(),
                "tollgate-connector: {}",
                one_line(&failure.to_string(), MAX_ERROR_BYTES)
            );
            ExitCode::FAILURE
        }
    }
}
