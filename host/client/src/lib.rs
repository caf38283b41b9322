//! The commands of `tollgate` that people and pipelines run on their own machines, against a running gateway or
//! against files. They need nothing that serves; the crate `cli` adds the commands that do.
//!
//! Security: no command prints a secret, except `tollgate token create`, `tollgate kubectl-credential` and
//! `tollgate kubeconfig`, whose purpose is to print a credential.

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;

mod admin_listener;
mod age;
mod agent;
pub mod answer;
pub mod api;
mod app;
mod appset;
mod audit;
mod context;
mod decisions;
pub mod exec_info;
pub mod failure;
pub mod format;
pub mod input;
mod kubeconfig;
mod kubectl_credential;
mod list_args;
pub mod list_output;
mod login;
mod person;
mod policy;
mod project;
mod rbac;
mod session;
pub mod terminal;
mod token;

pub use kubeconfig::kubeconfig_path;
pub use policy::worker as policy_worker;
pub use rbac::parse_subject;

use failure::Failure;
use terminal::Terminal;

/// Exit code of a wrong command line (`EX_USAGE` of sysexits.h).
pub const EXIT_USAGE: u8 = 64;

/// Exit code of a command that answers by its exit code and has no answer
/// (`EX_UNAVAILABLE` of sysexits.h), so that a script can tell "no" from "unknown".
pub const EXIT_NO_ANSWER: u8 = 69;

/// Commands for the access of people, and for the policies that decide on it.
#[derive(Debug, Subcommand)]
pub enum AccessCommand {
    /// Sign in to a gateway
    ///
    /// Opens a browser, or with --device or --no-browser works without one. Keeps the credential in the
    /// keyring, else in a file that only you may read, and makes the gateway the current context.
    #[command(
        after_help = "Examples:\n  tollgate login --server https://tollgate.example.com\n  tollgate login --device"
    )]
    Login(login::Login),
    /// Sign out of a gateway, which ends everything that the login has open
    Logout(login::Logout),
    /// Show who you are to a gateway
    Whoami(login::WhoAmI),
    /// List, choose and remove the gateways you signed in to
    #[command(subcommand)]
    Context(context::Command),
    /// Lock and unlock people
    #[command(subcommand)]
    Person(person::Command),
    /// Print a token (kubectl exec plugin)
    ///
    /// Kubeconfigs that `tollgate kubeconfig` writes after `tollgate login` name this command. The token
    /// lasts 15 minutes, and is renewed by the login.
    KubectlCredential(kubectl_credential::KubectlCredential),
    /// Test, check and evaluate policy bundles
    #[command(subcommand)]
    Policy(policy::Command),
    /// Query, validate and compare Argo CD RBAC policies
    #[command(subcommand)]
    Rbac(rbac::Command),
}

/// Commands for what a gateway and its control plane have.
#[derive(Debug, Subcommand)]
pub enum ResourceCommand {
    /// Show projects and edit their destination service accounts
    #[command(subcommand, visible_alias = "proj")]
    Project(project::Command),
    /// Create, list and revoke personal access tokens
    #[command(subcommand)]
    Token(token::Command),
    /// List and revoke sessions
    #[command(subcommand)]
    Session(session::Command),
    /// Connect a cluster to a gateway from inside the cluster, and make keys for that
    #[command(
        subcommand,
        after_help = "Example:\n  tollgate connector key key.pem\n\nThe program tollgate-connector has the same commands \
                      and is smaller."
    )]
    Connector(tollgate_connector::Command),
    /// List agents shared with you
    #[command(subcommand)]
    Agent(agent::Command),
    /// Show which identity acts for an Application
    #[command(subcommand)]
    App(app::Command),
    /// Manage ApplicationSets and preview what they generate
    #[command(subcommand)]
    Appset(appset::Command),
    /// Print a kubeconfig for the cluster of an agent or of an Application
    ///
    /// After `tollgate login`, the kubeconfig has no secret: kubectl gets short tokens from `tollgate
    /// kubectl-credential`. Otherwise, creates a personal access token for an agent unless --token-file or
    /// --oidc-issuer is given; for an Application, one of them is required.
    #[command(after_help = "Examples:\n  tollgate kubeconfig --agent production --write\n  \
                            tollgate kubeconfig --application argocd/guestbook --token-file ~/.argocd-token")]
    Kubeconfig(kubeconfig::Kubeconfig),
    /// Show the audit log of tokens, sessions and access
    Audit(audit::Audit),
    /// Show the latest decisions of a running gateway, the newest last
    Decisions(decisions::Decisions),
}

impl AccessCommand {
    /// Runs the command, and prints why it failed.
    pub fn run(self, out: &mut dyn Write) -> ExitCode {
        match self {
            Self::Login(command) => to_exit_code(command.run(out)),
            Self::Logout(command) => to_exit_code(command.run(out)),
            Self::Whoami(command) => to_exit_code(command.run(out)),
            Self::Context(command) => to_exit_code(command.run(out)),
            Self::Person(command) => to_exit_code(command.run(out)),
            Self::KubectlCredential(command) => to_exit_code(command.run(out)),
            Self::Policy(command) => policy::run(&command, out),
            Self::Rbac(command) => command.run(out),
        }
    }
}

impl ResourceCommand {
    /// Runs the command, and prints why it failed.
    pub fn run(self, out: &mut dyn Write) -> ExitCode {
        match self {
            Self::Project(command) => to_exit_code(command.run(out)),
            Self::Token(command) => to_exit_code(command.run(out)),
            Self::Session(command) => to_exit_code(command.run(out)),
            Self::Connector(command) => to_exit_code(command.run(out).map_err(agent::connector_failure)),
            Self::Agent(command) => to_exit_code(command.run(out)),
            Self::App(command) => command.run(out),
            Self::Appset(command) => to_exit_code(command.run(out)),
            Self::Kubeconfig(command) => to_exit_code(command.run(out)),
            Self::Audit(command) => to_exit_code(command.run(out)),
            Self::Decisions(command) => to_exit_code(command.run(out)),
        }
    }
}

/// The exit code of a command; prints why it failed.
pub fn to_exit_code(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_error(&failure);
            failure.details.iter().for_each(print_error);
            ExitCode::FAILURE
        }
    }
}

/// The exit code for success or failure.
pub fn exit_code(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints one line with the prefix `tollgate: ` on standard error.
pub fn print_error(text: impl std::fmt::Display) {
    // If this fails, there is nowhere to report it.
    let _ = writeln!(stderr(), "tollgate: {text}");
}

/// Standard error, with unsafe characters replaced.
pub fn stderr() -> Terminal<std::io::StderrLock<'static>> {
    Terminal::new(std::io::stderr().lock())
}
