//! `tollgate agent run` and `tollgate agent key`: the agent of a cluster, which runs inside it.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;

use crate::client::{Failure, print};
use crate::serve::{LogArgs, shutdown_signal};
use tollgate_agent::Agent;
use tollgate_agent::key::SigningKey;
use tollgate_agent::settings::Settings;
use tollgate_config::KubernetesApi;

/// How long open requests may go on after a signal to stop.
const DRAIN: Duration = Duration::from_secs(30);

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Settings of the agent
    #[arg(short, long, value_name = "FILE", env = "TOLLGATE_AGENT_CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Args, Debug)]
pub(crate) struct Key {
    /// New file for the private key, readable by its owner only
    file: PathBuf,
}

impl Run {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let _log = self.log.start().map_err(|message| Failure::new("agent.log", message))?;
        // Each request has a connection to the API server, and watches stay open.
        drop(rlimit::increase_nofile_limit(u64::MAX));
        let settings = Settings::load(&self.config, KubernetesApi::of_pod());
        let settings = settings.map_err(|error| Failure::new("agent.settings", error))?;
        let agent = Agent::new(settings).map_err(|error| Failure::new("agent.settings", error))?;
        let agent = Arc::new(agent);
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "the agent starts");
        let runtime = tokio::runtime::Runtime::new().map_err(|error| Failure::new("agent.runtime", error))?;
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
            .map_err(|error| Failure::new("agent.health", error))
    }
}

impl Key {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let made = SigningKey::generate_pem().and_then(|pem| Ok((SigningKey::from_pem(&pem)?.public(), pem)));
        let (public, pem) = made.map_err(|error| Failure::new("agent.key", error))?;
        let failed = |error: std::io::Error| {
            Failure::new(
                "agent.key",
                format_args!("`{}` cannot be written: {error}", self.file.display()),
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
        print(&public.to_string(), out)
    }
}
