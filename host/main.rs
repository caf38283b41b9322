//! Order of start-up.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tollgate::cli::policy;

#[derive(Parser)]
#[command(name = "tollgate")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Policies
    #[command(subcommand)]
    Policy(policy::Command),
    /// Checks a bundle in a limited process
    #[command(hide = true)]
    PolicyWorker,
}

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(Cli {
            command: Command::Policy(command),
        }) => policy::run(&command, &mut std::io::stdout().lock()),
        Ok(Cli {
            command: Command::PolicyWorker,
        }) => policy::worker(),
        Err(error) => {
            drop(error.print());
            ExitCode::from(if error.use_stderr() { 64 } else { 0 })
        }
    }
}
