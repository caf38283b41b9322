//! `tollgate serve`: starts and stops the gateway in order, and exits once everything has ended.
//!
//! Invariant: a process that no longer serves exits.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use url::Url;

use tollgate_client::answer::SettingsArgs;
use tollgate_client::print_error;
use tollgate_config::{Config, ImpersonationMode, raw};
use tollgate_connector::LogArgs;
use tollgate_console::Console;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_gateway::running::{RunningGateway, inputs};
use tollgate_identity::clock::Clock;
use tollgate_proxy::metrics::measure_threads;
use tollgate_rego::{Checker, WORKER_STACK_BYTES};
use tollgate_runtime::signals::shutdown_signal;

/// Overrides `RUST_BACKTRACE` for the backtraces of errors.
const LIB_BACKTRACE: &str = "RUST_LIB_BACKTRACE";

/// How long the process waits for threads that still do blocking work when everything else has ended.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// The variable that Argo CD's proposal names.
const IMPERSONATION_VARIABLE: &str = "ARGOCD_APPLICATION_CONTROLLER_ENABLE_IMPERSONATION";

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    log: LogArgs,
    /// Override `applicationcontroller.enable.impersonation` of `argocd-cm`
    ///
    /// Determines whether requests to Applications' clusters act as the Application's service account.
    /// Without a value it means `true`. Needs the section `applications` in the settings.
    #[arg(
        long,
        value_enum,
        value_name = "MODE",
        ignore_case = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = IMPERSONATION_VARIABLE
    )]
    enable_impersonation: Option<ImpersonationArg>,
    /// URL by which other replicas reach this one, in place of `connectors.peers.url`
    ///
    /// Needs the section `connectors.peers` in the settings, which replicas share.
    #[arg(long, value_name = "URL", env = "TOLLGATE_PEER_URL")]
    peer_url: Option<Url>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ImpersonationArg {
    /// Act as the service account of the Application
    True,
    /// Act as the gateway, and log what `true` would refuse
    Audit,
    /// Act as the gateway
    False,
}

impl From<ImpersonationArg> for ImpersonationMode {
    fn from(flag: ImpersonationArg) -> Self {
        match flag {
            ImpersonationArg::True => Self::Enforce,
            ImpersonationArg::Audit => Self::Audit,
            ImpersonationArg::False => Self::Off,
        }
    }
}

/// Starts this program again without backtraces of errors, if its environment asks for them. The engine
/// of policies creates errors that it then drops; a backtrace of each makes it many times slower. Panics
/// keep theirs.
///
/// A process cannot change its own environment safely.
fn without_error_backtraces() {
    let collects = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
    if !collects || std::env::var_os(LIB_BACKTRACE).is_some() {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // This returns only if it fails. Policies are slower then.
    drop(command.args(arguments).env(LIB_BACKTRACE, "0").exec());
}

impl Serve {
    pub(crate) fn run(&self) -> ExitCode {
        without_error_backtraces();
        // First, so that every message has the format that `--log-json` selects.
        let mut log = match self.log.start() {
            Ok(log) => log,
            Err(error) => {
                print_error(error);
                return ExitCode::FAILURE;
            }
        };
        let loaded = raw::load(&self.settings.config);
        loaded.diagnostics.iter().for_each(tollgate_core::diagnostic::log);
        let Some(mut config) = loaded.value else {
            log.fatal("the settings cannot be used");
            return ExitCode::FAILURE;
        };
        let overridden = self.override_mode(&mut config);
        if let Err(error) = overridden.and_then(|()| self.override_peer_url(&mut config)) {
            log.fatal(&error);
            return ExitCode::FAILURE;
        }
        // Each client takes one socket, each upgrade two. The soft limit exists for programs that
        // call `select`. If it cannot be raised, the gateway serves fewer clients.
        drop(rlimit::increase_nofile_limit(u64::MAX));
        let runtime = measure_threads(&mut tokio::runtime::Builder::new_multi_thread())
            .enable_all()
            .thread_stack_size(WORKER_STACK_BYTES)
            .thread_name("gateway")
            .build();
        let locations = raw::SettingLocations::read(&self.settings.config);
        let served = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
            let served = runtime.block_on(serve(Arc::new(config), &locations));
            // Work that blocks, such as a name look-up or a disk, must not keep the process.
            runtime.shutdown_timeout(SHUTDOWN);
            served
        });
        if let Err(error) = &served {
            log.fatal(&format!("{error:#}"));
        }
        tollgate_client::exit_code(served.is_ok())
    }

    /// Applies `--peer-url`. Without the section `connectors.peers` it would have no effect, which is an error.
    fn override_peer_url(&self, config: &mut Config) -> Result<(), String> {
        let peers = config
            .connectors
            .as_mut()
            .and_then(|connectors| connectors.peers.as_mut());
        match (peers, &self.peer_url) {
            (_, None) => Ok(()),
            (Some(peers), Some(url)) if url.scheme() == "https" && url.has_host() => {
                peers.url = Some(url.clone());
                Ok(())
            }
            (Some(_), Some(url)) => Err(format!(
                "`--peer-url {url}` is not a URL such as `https://10.0.0.7:8445`"
            )),
            (None, Some(_)) => Err(format!(
                "`--peer-url` or `TOLLGATE_PEER_URL` is set, but `{}` has no section `connectors.peers`",
                self.settings.config.display()
            )),
        }
    }

    /// Applies `--enable-impersonation`. Without the section `applications` it would have no effect,
    /// which is an error.
    fn override_mode(&self, config: &mut Config) -> Result<(), String> {
        match (&mut config.applications, self.enable_impersonation) {
            (_, None) => Ok(()),
            (Some(applications), Some(flag)) => {
                applications.mode = Some(flag.into());
                Ok(())
            }
            (None, Some(_)) => Err(format!(
                "`--enable-impersonation` or `{IMPERSONATION_VARIABLE}` is set, but `{}` has no section `applications`, \
                 so that nobody acts for an Application; add `applications: {{}}`, or set neither",
                self.settings.config.display()
            )),
        }
    }
}

async fn serve(config: Arc<Config>, locations: &raw::SettingLocations) -> anyhow::Result<()> {
    warn_root();
    let found = inputs::findings(&config, locations, &Clock::default()).await;
    found.iter().for_each(tollgate_core::diagnostic::log);
    anyhow::ensure!(
        !found.iter().any(Diagnostic::is_error),
        "nothing is served, because the settings name what cannot be used; `tollgate check` shows it"
    );
    let start = RunningGateway::start(config, Checker::current()?, Some(Arc::new(Console)));
    let mut running = tokio::select! {
        started = start => started?,
        // A start may wait for long. As the first process of a container it would ignore the signal.
        () = shutdown_signal() => return Ok(()),
    };
    tokio::select! {
        () = shutdown_signal() => {
            tracing::info!("stopping; running requests may end");
            running.stop().await
        }
        error = running.ended() => Err(error),
    }
}

/// Warns if the process runs as root: the gateway needs no privileges.
fn warn_root() {
    use std::os::unix::fs::MetadataExt;
    // Without `/proc` the user is unknown, and nothing is logged.
    if std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        tracing::warn!("running as root, which the gateway does not need; use a separate account");
    }
}
