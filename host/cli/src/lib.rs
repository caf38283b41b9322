//! The command line. The exit code is 0 for done, 1 for refused or failed, 2 for differences
//! found, 64 for wrong usage, and 69 for no answer (of commands whose exit code is the answer).
//!
//! Security: no command prints a secret, except the credential that `tollgate credential get` and
//! `exec`, `tollgate token create` and `tollgate kubeconfig` are asked for.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

mod age;
pub mod agent;
pub mod app;
pub mod appset;
pub mod audit;
pub mod check;
mod client;
pub mod credential;
pub mod decisions;
pub mod format;
pub mod kubeconfig;
mod list_output;
pub mod plugin;
pub mod policy;
pub mod project;
pub mod rbac;
pub mod serve;
pub mod session;
mod terminal;
pub mod token;

use terminal::Terminal;

/// What exit codes mean, for `--help` and the manual page.
const EXIT_CODES: &str = "Exit codes: 0 done or yes, 1 refused, failed or no, 2 differences found, 64 wrong usage, \
                          69 no answer (of `rbac` and `app identity`, where 1 says no)";

/// Exit code of a wrong command line (`EX_USAGE` of sysexits.h).
pub const EXIT_USAGE: u8 = 64;

/// Exit code of a command that answers by its exit code and has no answer
/// (`EX_UNAVAILABLE` of sysexits.h), so that a script can tell "no" from "unknown".
pub const EXIT_NO_ANSWER: u8 = 69;

/// A policy gateway between people, their GitOps control plane and their
/// Kubernetes clusters.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway.
    Serve(serve::Serve),
    /// Check settings, state, policies and plugins without running.
    Check(check::CheckArgs),
    /// Test, check and evaluate policy bundles.
    #[command(subcommand)]
    Policy(policy::Command),
    /// Ask and compare Argo CD's RBAC policy.
    Rbac(rbac::RbacCommand),
    /// List, inspect, create and test plugins.
    Plugin(PluginCommand),
    /// Get, hand out and explain credentials of clusters.
    #[command(subcommand)]
    Credential(credential::Command),
    /// Show projects, and say which service accounts act for their Applications.
    #[command(subcommand, visible_alias = "proj")]
    Project(project::Command),
    /// Make, list and revoke personal access tokens.
    #[command(subcommand)]
    Token(token::Command),
    /// List and end sessions.
    #[command(subcommand)]
    Session(session::Command),
    /// List the agents that are shared with you.
    #[command(subcommand)]
    Agent(agent::Command),
    /// Show who acts for an Application.
    #[command(subcommand)]
    App(app::Command),
    /// Create, change, delete and show ApplicationSets, and what they would generate.
    #[command(subcommand)]
    Appset(appset::Command),
    /// Print a kubeconfig for an agent's cluster.
    Kubeconfig(kubeconfig::Kubeconfig),
    /// Show what was written down about tokens, sessions and access.
    Audit(audit::Audit),
    /// Show the latest decisions of a running gateway.
    Decisions(decisions::Decisions),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print a manual page.
    Man {
        /// The command the page is about, such as `rbac can`; the program when left out.
        command: Vec<String>,
    },
    /// Check one policy bundle in a limited process; used by the gateway itself.
    #[command(hide = true)]
    PolicyWorker,
}

#[derive(Debug, Args)]
struct PluginCommand {
    /// Settings file whose part `plugins` is used; without it, what the other
    /// options say.
    #[arg(short, long, global = true, env = "TOLLGATE_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    args: plugin::PluginArgs,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() {
                ExitCode::from(EXIT_USAGE)
            } else {
                ExitCode::SUCCESS
            };
            return if error.print().is_ok() { code } else { ExitCode::FAILURE };
        }
    };
    let mut out = Terminal::new(std::io::stdout().lock());
    match cli.command {
        Command::Serve(command) => {
            drop(out);
            command.run()
        }
        Command::Check(command) => command.run(&mut out),
        Command::Policy(command) => policy::run(&command, &mut out),
        Command::Rbac(command) => command.run(&mut out),
        Command::Plugin(command) => run_plugin(command, &mut out),
        Command::Credential(command) => credential::run(&command, &mut out),
        Command::Project(command) => to_exit_code(command.run(&mut out)),
        Command::Token(command) => to_exit_code(command.run(&mut out)),
        Command::Session(command) => to_exit_code(command.run(&mut out)),
        Command::Agent(command) => to_exit_code(command.run(&mut out)),
        Command::App(command) => command.run(&mut out),
        Command::Appset(command) => to_exit_code(command.run(&mut out)),
        Command::Kubeconfig(command) => to_exit_code(command.run(&mut out)),
        Command::Audit(command) => to_exit_code(command.run(&mut out)),
        Command::Decisions(command) => to_exit_code(command.run(&mut out)),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "tollgate", &mut out);
            ExitCode::SUCCESS
        }
        Command::Man { command } => manual(&command, &mut out),
        Command::PolicyWorker => {
            drop(out);
            policy::worker()
        }
    }
}

fn to_exit_code(done: Result<(), client::Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_error(&failure);
            failure.details().iter().for_each(print_error);
            ExitCode::FAILURE
        }
    }
}

fn run_plugin(command: PluginCommand, out: &mut dyn Write) -> ExitCode {
    let settings = match command.config {
        None => tollgate_config::Plugins::default(),
        Some(path) => {
            let loaded = tollgate_config::raw::load(&path);
            loaded.diagnostics.iter().for_each(print_error);
            match loaded.value {
                Some(config) => config.plugins,
                None => return ExitCode::FAILURE,
            }
        }
    };
    plugin::run(command.args, settings, out, &mut errors()).unwrap_or_else(|error| {
        print_error(error);
        ExitCode::FAILURE
    })
}

fn manual(names: &[String], out: &mut dyn Write) -> ExitCode {
    let mut command = Cli::command();
    command.build();
    for name in names {
        let Some(next) = command.find_subcommand(name).cloned() else {
            print_error(format_args!("there is no command `{name}`"));
            return ExitCode::from(EXIT_USAGE);
        };
        command = next;
    }
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command)
        .render(&mut page)
        .and_then(|()| out.write_all(&page));
    if rendered.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints one line on standard error, as every command's last word on failure.
pub fn print_error(text: impl std::fmt::Display) {
    // Nothing is left to do when even this fails.
    let _ = writeln!(errors(), "tollgate: {text}");
}

/// Standard error.
fn errors() -> Terminal<std::io::StderrLock<'static>> {
    Terminal::new(std::io::stderr().lock())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn definition_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_manual_page() {
        let page = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut out = Vec::new();
            let code = super::manual(&names, &mut out);
            (code, String::from_utf8(out).unwrap())
        };
        assert!(page(&[]).1.contains("tollgate"));
        let (code, text) = page(&["rbac", "can"]);
        assert_eq!(code, super::ExitCode::SUCCESS);
        assert!(text.contains("policy\\-file"), "{text}");
        assert_eq!(page(&["rbac", "cna"]).0, super::ExitCode::from(super::EXIT_USAGE));
    }
}
