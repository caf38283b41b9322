//! Everything that runs in one gateway process, started and stopped together.
//!
//! In: checked settings. Out: two listeners, reloads. Never: a listener before
//! the first good configuration.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admin::{Admin, Findings};
use crate::authorize::rego::Checker;
use crate::cli::complain;
use crate::config::Config;
use crate::metrics::{Metrics, Part};
use crate::pipeline::Gateway;
use crate::record::Recorder;
use crate::server::{Certificates, Limits, Server};
use crate::snapshot::{Current, Loader};
use crate::state::watch::{Events, Timing, watch};

/// A gateway that runs.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    admin_address: SocketAddr,
    stop: CancellationToken,
    server: JoinHandle<()>,
    helpers: [JoinHandle<()>; 2],
}

impl Running {
    /// Loads everything, binds both listeners and starts serving.
    ///
    /// # Errors
    /// The configuration has errors (each is printed), or a listener cannot be
    /// bound.
    pub async fn start(config: Arc<Config>, checker: Checker) -> anyhow::Result<Self> {
        let metrics = Arc::new(Metrics::new());
        let recorder = Recorder::start(
            config.decisions.keep,
            config.decisions.file.as_deref(),
            Arc::clone(&metrics),
        )?;
        let loader = Arc::new(Loader::new(Arc::clone(&config), checker, Arc::clone(&metrics))?);
        // The watch starts before the load: a change in between is read again.
        let mut changes = watch_parts(&loader).await;
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
        let tls = config.tls.clone().map(Certificates::load).transpose()?.map(Arc::new);
        let gateway = Arc::new(Gateway::new(Arc::clone(&current), recorder, metrics, &config)?);
        let reloads = tokio::spawn(async move {
            while let Some(part) = changes.recv().await {
                reload(&loader, &current, part, &findings).await;
            }
        });
        let stop = CancellationToken::new();
        let server = Server::new(public, tls, Limits::new(&config.limits, config.drain));
        let server = tokio::spawn(server.serve(gateway, stop.clone()));
        Ok(Self {
            address,
            admin_address,
            stop,
            server,
            helpers: [admin, reloads],
        })
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
        self.stop.cancel();
        let served = self.server.await;
        for helper in self.helpers {
            helper.abort();
        }
        Ok(served?)
    }
}

/// One signal for each settled change of a part's folder.
async fn watch_parts(loader: &Loader) -> mpsc::Receiver<Part> {
    let (sender, changes) = mpsc::channel(8);
    for (part, folder) in loader.watched() {
        let mut watch = watch(vec![folder], Timing::default(), Events::WherePossible).await;
        let sender = sender.clone();
        tokio::spawn(async move {
            while watch.changed().await.is_some() {
                if sender.send(part).await.is_err() {
                    return;
                }
            }
        });
    }
    changes
}

async fn bind(key: &str, address: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok::<_, std::io::Error>((listener, address))
    };
    bound
        .await
        .map_err(|error| anyhow::anyhow!("`{key}` {address} cannot be listened on: {error}"))
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
        Err(error) => {
            tracing::error!(part = part.as_str(), %error, "a reload failed; the last good configuration stays")
        }
    }
}
