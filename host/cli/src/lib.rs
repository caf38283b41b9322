//! The command line. The exit code is 0 on success, 1 for refused or failed, 2 for differences
//! found, 64 for wrong usage, and 69 for no answer (only of commands whose exit code is the answer).
//!
//! Security: no command prints a secret, except `tollgate credential get` and `exec`,
//! `tollgate token create`, `tollgate kubectl-credential` and `tollgate kubeconfig`, whose purpose is to
//! print a credential.

use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use tollgate_client::answer::SETTINGS_FILE;
use tollgate_client::terminal::Terminal;
use tollgate_client::{AccessCommand, EXIT_USAGE, ResourceCommand, exit_code, print_error, stderr, to_exit_code};

mod check;
mod cluster;
mod credential;
mod init;
mod install;
mod migrate;
pub mod plugin;
pub mod serve;

/// Meaning of the exit codes, for `--help` and the manual page.
const EXIT_CODES: &str = "Exit codes: 0 success or yes, 1 refused, failed or no, 2 differences found, 64 wrong usage, \
                          69 no answer (only `rbac` and `app identity`, where 1 means no)";

/// Policy gateway between people, their GitOps control plane and their Kubernetes clusters
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway
    ///
    /// Runs until SIGINT or SIGTERM, then lets running requests end. Logs go to standard error.
    Serve(serve::Serve),
    /// Check the configuration without starting the gateway
    ///
    /// Loads the settings and all that they name (state, policies, plugins, the store), and prints
    /// what is wrong. Opens no listener and changes nothing.
    Check(check::CheckArgs),
    /// Generate a gateway configuration from an existing Argo CD
    ///
    /// Reads the cluster that kubectl's kubeconfig names, or a folder. Writes into a new folder only, and
    /// no secret of Argo CD. Checks what it wrote, and prints what to do next.
    #[command(
        after_help = "Examples:\n  tollgate init\n  tollgate init gate --argocd-server https://localhost:8443 \
                      --context staging\n  tollgate init gate --state argocd-objects"
    )]
    Init(init::Init),
    #[command(flatten)]
    Access(AccessCommand),
    /// List, inspect, create and test plugins
    Plugin(PluginCommand),
    /// Enroll and join clusters
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Show what an existing control plane needs before it goes behind the gateway
    #[command(subcommand)]
    Migrate(migrate::Command),
    /// Get and troubleshoot credentials of clusters
    #[command(subcommand)]
    Credential(credential::Command),
    #[command(flatten)]
    Resource(ResourceCommand),
    /// Copy this program into a folder, for containers of other images
    ///
    /// For an init container that shares a volume with Argo CD's components, which then run `tollgate
    /// credential exec`. An earlier copy is replaced atomically.
    Install(install::Install),
    /// Print a shell completion script
    Completions {
        /// Shell that the script is for
        shell: clap_complete::Shell,
    },
    /// Print a manual page in roff format
    Man {
        /// Command to document, such as `rbac can`; if omitted, `tollgate` itself
        command: Vec<String>,
    },
    /// Check one policy bundle under resource limits; started by the gateway itself
    #[command(hide = true)]
    PolicyWorker,
}

#[derive(Debug, Args)]
struct PluginCommand {
    /// Settings file of the gateway, of which `plugins` is used; if omitted, `tollgate.yaml` if it exists
    #[arg(short, long, global = true, value_name = "FILE", env = "TOLLGATE_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    args: plugin::PluginArgs,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            return match error.print() {
                Ok(()) if error.use_stderr() => ExitCode::from(EXIT_USAGE),
                printed => exit_code(printed.is_ok()),
            };
        }
    };
    let mut out = Terminal::new(std::io::stdout().lock());
    match cli.command {
        Command::Serve(command) => {
            drop(out);
            command.run()
        }
        Command::Check(command) => command.run(&mut out),
        Command::Init(command) => command.run(&mut out),
        Command::Access(command) => command.run(&mut out),
        Command::Plugin(command) => run_plugin(command, &mut out),
        Command::Cluster(command) => to_exit_code(command.run(&mut out)),
        Command::Migrate(command) => to_exit_code(command.run(&mut out)),
        Command::Credential(command) => credential::run(&command, &mut out),
        Command::Resource(command) => command.run(&mut out),
        Command::Install(command) => to_exit_code(command.run(&mut out)),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "tollgate", &mut out);
            ExitCode::SUCCESS
        }
        Command::Man { command } => manual(&command, &mut out),
        Command::PolicyWorker => {
            drop(out);
            tollgate_client::policy_worker()
        }
    }
}

fn run_plugin(command: PluginCommand, out: &mut dyn Write) -> ExitCode {
    log_plugins();
    let default = Path::new(SETTINGS_FILE);
    let named = command.config.or_else(|| default.is_file().then(|| default.to_owned()));
    let settings = match named {
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
    plugin::run(command.args, settings, out, &mut stderr()).unwrap_or_else(|error| {
        print_error(error);
        ExitCode::FAILURE
    })
}

/// Prints what guests log and what takes long, which a gateway has in its log.
fn log_plugins() {
    let log = tracing_subscriber::fmt()
        .with_env_filter("tollgate::plugin=debug")
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .without_time();
    // In tests, another log may have been started.
    let _ = log.try_init();
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
    exit_code(rendered.is_ok())
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
