//! Everything that runs in one gateway process, started and stopped together.
//!
//! In: checked settings. Out: two listeners, reloads. Never: a listener before
//! the first good configuration.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::watch as signal;
use tokio::task::JoinHandle;

use crate::admin::{Admin, Findings};
use crate::authorize::rego::Checker;
use crate::cli::complain;
use crate::config::Config;
use crate::metrics::{Metrics, Part};
use crate::pipeline::Gateway;
use crate::record::Recorder;
use crate::server;
use crate::snapshot::{Current, Loader};
use crate::state::watch;

/// How long after a change the folders must be quiet before they are read.
const SETTLE: Duration = Duration::from_millis(200);

/// A gateway that runs.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    admin_address: SocketAddr,
    stop: signal::Sender<bool>,
    server: JoinHandle<Result<(), server::Error>>,
    helpers: [JoinHandle<()>; 2],
}

impl Running {
    /// Loads everything, binds both listeners and starts serving.
    ///
    /// # Errors
    /// The configuration has errors (each is printed), or a listener cannot be
    /// bound.
    pub async fn start(config: Arc<Config>, checker: Checker) -> anyhow::Result<Self> {
        server::install_crypto();
        let metrics = Arc::new(Metrics::new());
        let recorder = Recorder::start(config.decisions.keep, config.decisions.file.as_deref(), Arc::clone(&metrics))?;
        let loader = Arc::new(Loader::new(Arc::clone(&config), checker, Arc::clone(&metrics))?);
        // The watch starts before the load: a change in between is read again.
        let mut changes = watch::start(loader.watched(), SETTLE)?;
        let current = first_load(&loader, &metrics).await?;
        let (public, address) = bind("listen", config.listen).await?;
        let (private, admin_address) = bind("admin.listen", config.admin_listen).await?;
        tracing::info!(listen = %address, admin = %admin_address, "listening");

        let findings = Findings::default();
        let admin = Admin {
            current: Arc::clone(&current),
            recorder: Arc::clone(&recorder),
            metrics: Arc::clone(&metrics),
            findings: findings.clone(),
        };
        let admin = tokio::spawn(async move {
            if let Err(error) = axum::serve(private, crate::admin::router(admin)).await {
                tracing::error!(%error, "the admin listener ended");
            }
        });
        let gateway = Gateway::new(Arc::clone(&current), recorder, metrics, &config)?;
        let reloads = tokio::spawn(async move {
            while let Some(part) = changes.recv().await {
                reload(&loader, &current, part, &findings).await;
            }
        });
        let (stop, stopped) = signal::channel(false);
        let server = tokio::spawn(server::serve(public, config, gateway, stopped));
        Ok(Self { address, admin_address, stop, server, helpers: [admin, reloads] })
    }

    /// Address people reach.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address of the admin listener.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// Takes no more connections and waits for running requests, at most the
    /// configured drain time.
    ///
    /// # Errors
    /// The server ended with an error.
    pub async fn stop(self) -> anyhow::Result<()> {
        // A server that ended already has dropped its receiver.
        let _ = self.stop.send(true);
        let served = self.server.await;
        for helper in self.helpers {
            helper.abort();
        }
        Ok(served??)
    }
}

async fn bind(key: &str, address: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok::<_, std::io::Error>((listener, address))
    };
    bound.await.map_err(|error| anyhow::anyhow!("`{key}` {address} cannot be listened on: {error}"))
}

async fn first_load(loader: &Arc<Loader>, metrics: &Metrics) -> anyhow::Result<Current> {
    let loaded = tokio::task::spawn_blocking({
        let loader = Arc::clone(loader);
        move || loader.first()
    })
    .await?;
    for finding in &loaded.diagnostics {
        complain(finding);
    }
    let Some(snapshot) = loaded.value else {
        anyhow::bail!("nothing is served, because the configuration has errors; `tollgate check` shows them");
    };
    for part in [Part::State, Part::Policies, Part::Plugins] {
        metrics.loaded(part, true);
    }
    metrics.generation(snapshot.generation);
    Ok(Arc::new(ArcSwap::from_pointee(snapshot)))
}

async fn reload(loader: &Arc<Loader>, current: &Current, part: Part, findings: &Findings) {
    let (loader, current) = (Arc::clone(loader), Arc::clone(current));
    match tokio::task::spawn_blocking(move || loader.reload(&current, part)).await {
        Ok(found) => findings.set(part, found),
        Err(error) => tracing::error!(part = part.as_str(), %error, "a reload failed; the last good configuration stays"),
    }
}
