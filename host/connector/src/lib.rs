//! The connector of a cluster: a process that runs inside the cluster, dials the gateway, and serves the API
//! server to it. It is the program `tollgate-connector`, and the command `tollgate connector`.
//!
//! Invariant: it links no policy engine, no WASM runtime, no git and no store, since customers run it in their
//! clusters.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;

use tollgate_agent::Agent;
use tollgate_agent::key::SigningKey;
use tollgate_agent::settings::Settings;
use tollgate_config::KubernetesApi;
use tollgate_runtime::log::{self, LineFormat, Log};
use tollgate_runtime::signals::shutdown_signal;

/// How long open requests may go on after a signal to stop.
const DRAIN: Duration = Duration::from_secs(30);

/// What a connector does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Connect to the gateway, and serve the cluster's API server to it
    ///
    /// Runs inside the cluster until SIGINT or SIGTERM. Logs go to standard error.
    Run(Run),
    /// Make the key of a connector, and print its public half
    Key(Key),
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// Stable, such as `connector.settings`.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
}

impl Failure {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }
}

/// Arguments of [`Command::Run`].
#[derive(Args, Debug)]
pub struct Run {
    /// Settings of the connector
    #[arg(short, long, value_name = "FILE", env = variable())]
    config: PathBuf,
    #[command(flatten)]
    log: LogArgs,
}

/// What a command that runs until it is stopped writes to standard error.
#[derive(Args, Debug)]
pub struct LogArgs {
    /// Log filter: a level such as `info`, or directives such as `tollgate=debug`
    #[arg(long, default_value = "info", env = "TOLLGATE_LOG")]
    log: String,
    /// Write logs as JSON, one object per line
    #[arg(long)]
    log_json: bool,
}

impl LogArgs {
    /// Starts the log.
    ///
    /// # Errors
    /// Those of [`log::start`].
    pub fn start(&self) -> Result<Log, String> {
        let format = match self.log_json {
            true => LineFormat::Json,
            false => LineFormat::Text,
        };
        log::start(&self.log, format)
    }
}

/// Arguments of [`Command::Key`].
#[derive(Args, Debug)]
pub struct Key {
    /// New file for the private key, readable by its owner only
    file: PathBuf,
}

const VARIABLE: &str = "TOLLGATE_CONNECTOR_CONFIG";

/// Its name before the program was called a connector.
const FORMER_VARIABLE: &str = "TOLLGATE_AGENT_CONFIG";

/// The variable that names the settings: the former one, if it is the only one that is set.
fn variable() -> &'static str {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    match is_set(FORMER_VARIABLE) && !is_set(VARIABLE) {
        true => FORMER_VARIABLE,
        false => VARIABLE,
    }
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The settings or the key cannot be used, or the health port is taken.
    pub fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Run(run) => run.run(),
            Self::Key(key) => key.run(out),
        }
    }
}

impl Run {
    /// Runs until it receives a signal to stop.
    ///
    /// # Errors
    /// The settings cannot be used, or the health port is taken.
    pub fn run(&self) -> Result<(), Failure> {
        self.run_with(None)
    }

    /// As [`Self::run`], for the former name of the command.
    ///
    /// # Errors
    /// Those of [`Self::run`].
    pub fn run_by_former_name(&self) -> Result<(), Failure> {
        self.run_with(Some("`tollgate agent run` is deprecated: use `tollgate connector run`"))
    }

    fn run_with(&self, warning: Option<&str>) -> Result<(), Failure> {
        let _log = self
            .log
            .start()
            .map_err(|message| Failure::new("connector.log", message))?;
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        if variable() == FORMER_VARIABLE {
            tracing::warn!("`{FORMER_VARIABLE}` is deprecated: use `{VARIABLE}`");
        }
        // Each request has a connection to the API server, and watches stay open.
        drop(rlimit::increase_nofile_limit(u64::MAX));
        let settings = Settings::load(&self.config, KubernetesApi::of_pod());
        let settings = settings.map_err(|error| Failure::new("connector.settings", error.to_string()))?;
        let agent = Agent::new(settings).map_err(|error| Failure::new("connector.settings", error.to_string()))?;
        let agent = Arc::new(agent);
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "the connector starts");
        let runtime =
            tokio::runtime::Runtime::new().map_err(|error| Failure::new("connector.runtime", error.to_string()))?;
        let stop = CancellationToken::new();
        runtime
            .block_on(async {
                let serving = agent.run(stop.clone(), DRAIN);
                let stopping = async {
                    shutdown_signal().await;
                    tracing::info!("stopping; running requests may end");
                    stop.cancel();
                    std::future::pending::<std::convert::Infallible>().await
                };
                tokio::select! {
                    served = serving => served,
                    never = stopping => match never {},
                }
            })
            .map_err(|error| Failure::new("connector.health", error))
    }
}

impl Key {
    /// Makes the key.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let made = SigningKey::generate_pem().and_then(|pem| Ok((SigningKey::from_pem(&pem)?.public(), pem)));
        let (public, pem) = made.map_err(|error| Failure::new("connector.key", error.to_string()))?;
        let failed = |error: std::io::Error| {
            Failure::new(
                "connector.key",
                format!("`{}` cannot be written: {error}", self.file.display()),
            )
        };
        // A key that is there may be in use.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.file)
            .map_err(failed)?;
        file.write_all(pem.expose_secret().as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        writeln!(out, "{public}").map_err(|error| Failure::new("host.output", error.to_string()))
    }
}
