//! Starts and stops everything that runs in one gateway process: two listeners, reloads and checks.
//!
//! Invariant: only the admin listener opens before the first good configuration. No task outlives the
//! gateway, and the gateway ends with the first of its tasks that ends without being stopped.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use futures_util::future::select_all;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::admin::{AdminListener, AdminState, ServedCertificates};
use crate::loader::{CheckedConfiguration, Loader};
use crate::pipeline::Gateway;
use tollgate_agent::Connections;
use tollgate_agent::hello::BindingRule;
use tollgate_api_fronts::SignInState;
use tollgate_applicationset_front::ApplicationSetsFrontState;
use tollgate_applicationset_front::admission::{self, StoredSets};
use tollgate_cluster::discovery::Discovery;
use tollgate_cluster::self_check;
use tollgate_cluster_fronts::agents;
use tollgate_config::{Config, StoreUrl};
use tollgate_core::agent::AgentId;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_credential::cache::{self, CredentialCache};
use tollgate_front::access_services::AccessServices;
use tollgate_front::blocking::BlockingWork;
use tollgate_front::console::Pages;
use tollgate_front::load_findings::LoadFindings;
use tollgate_front::open_exchanges::OpenExchanges;
use tollgate_front::snapshot::{CurrentSnapshot, Snapshot};
use tollgate_front::{Caches, Services, States};
use tollgate_identity::access::Authorizer;
use tollgate_identity::access::endpoint::PlatformEndpoint;
use tollgate_identity::audit::export::Exporter;
use tollgate_identity::audit::{self, Audit};
use tollgate_identity::authenticate::Registries;
use tollgate_identity::clock::Clock;
use tollgate_identity::logins::Logins;
use tollgate_identity::revoked_tokens::RevokedTokens;
use tollgate_identity::sessions::SessionRegistry;
use tollgate_objects::extensions::{LimitSpec, PersonLimitSpec};
use tollgate_proxy::assertion::SigningKeys;
use tollgate_proxy::forward::Limiter;
use tollgate_proxy::metrics::{ConfigPart, Listener, Metrics};
use tollgate_proxy::record::Recorder;
use tollgate_proxy::server::{Certificates, Limits, Server};
use tollgate_rego::Checker;
use tollgate_runtime::followed;
use tollgate_runtime::tasks::Tasks;
use tollgate_state::watch::{FileEvents, Timing, watch};
use tollgate_store::{self as store, Store};

use pace::Pace;
use retired::RetiredSnapshots;
use telemetry::MetricsPush;

pub mod inputs;
pub mod inventory;
mod pace;
mod retired;
mod telemetry;

/// Time limit for each of what is written or sent last.
const FLUSH: Duration = Duration::from_secs(5);

/// The longest time that [`RunningGateway::stop`] and the end of the process take after the drain: to cut
/// connections (2 s), to complete changes of sets, to write audit events, to revoke credentials, to write the
/// last decisions and metrics (`FLUSH` each), and for threads that block (2 s). A supervisor that kills the
/// process earlier loses what is in memory.
pub const AFTER_DRAIN: Duration = Duration::from_secs(30);

/// Time between two measurements of the runtime's lag.
const LAG_INTERVAL: Duration = Duration::from_millis(100);

/// Time between two measurements of the wait of work that blocks.
const BLOCKING_INTERVAL: Duration = Duration::from_secs(1);

/// How long before the end of the drain what is still open is ended, so that its end can be sent. At most
/// a quarter of the drain.
const END_BEFORE_DRAIN: Duration = Duration::from_secs(5);

/// Between two attempts to reach what the start needs, at first and at most.
const RETRY: Duration = Duration::from_millis(250);
const MAX_RETRY: Duration = Duration::from_secs(5);

/// How often the log repeats what the start waits for.
const LOG_AWAITED: Duration = Duration::from_secs(30);

/// A running gateway. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct RunningGateway {
    address: SocketAddr,
    admin_address: SocketAddr,
    recorder: Arc<Recorder>,
    credentials: Arc<CredentialCache>,
    services: Option<Arc<AccessServices>>,
    sets: Option<Arc<ApplicationSetsFrontState>>,
    agents: Arc<Connections>,
    store: Option<Arc<Store>>,
    /// Where other replicas are served; `None` if there are none.
    peer_address: Option<SocketAddr>,
    /// Address and task of the admission webhook; `None` if it is off.
    admission: Option<(SocketAddr, JoinHandle<()>)>,
    /// `None` if there is no collector.
    metrics_push: Option<Arc<MetricsPush>>,
    reloads: mpsc::Sender<ReloadRequest>,
    drain: Duration,
    open_exchanges: Arc<OpenExchanges>,
    stop: DropGuard,
    server: JoinHandle<()>,
    /// Closes the connections of the admin listener, which answers until the last request of the
    /// other listener has ended.
    _admin: DropGuard,
    /// Admin listener, reloads, watches: aborted with this.
    helpers: JoinSet<()>,
    /// Of the parts that start their tasks themselves.
    tasks: Vec<Tasks>,
}

impl RunningGateway {
    /// Loads everything, binds both listeners and starts serving. On an error, everything that was
    /// already started is stopped.
    ///
    /// - `pages`: the console's pages; `None` for those of sign-in alone.
    ///
    /// # Errors
    /// The configuration has errors (each is logged), a certificate or key
    /// cannot be read, or a listener cannot be bound.
    pub async fn start(config: Arc<Config>, checker: Checker, pages: Option<Arc<dyn Pages>>) -> anyhow::Result<Self> {
        Self::start_with(config, checker, Clock::default(), pages).await
    }

    /// As [`RunningGateway::start`], with the caller's clock.
    ///
    /// # Errors
    /// As [`RunningGateway::start`].
    pub async fn start_with(
        config: Arc<Config>,
        checker: Checker,
        clock: Clock,
        pages: Option<Arc<dyn Pages>>,
    ) -> anyhow::Result<Self> {
        let metrics = Arc::new(Metrics::default());
        let stop = CancellationToken::new();
        let mut helpers = JoinSet::new();
        // Before everything that may take long, so that probes and operators see what is missing.
        let (private, admin_address) = bind("admin.listen", config.admin_listen).await?;
        let admin_listener = AdminListener::new(Arc::clone(&metrics));
        let admin_stop = CancellationToken::new();
        let admin_guard = admin_stop.clone().drop_guard();
        let admin_server =
            Server::new(private, None, Limits::admin(&config.limits)).counted_by(metrics.connections(Listener::Admin));
        helpers.spawn(admin_server.serve(Arc::clone(&admin_listener), admin_stop));
        let decisions = &config.decisions;
        let telemetry = config.telemetry.as_ref();
        let telemetry = telemetry.map(|settings| telemetry::start(settings, &metrics.spans_lost));
        let telemetry = telemetry.transpose()?;
        let (tracing, exporter) = telemetry.unzip();
        let recorder = Recorder::start(
            decisions.capacity,
            decisions.file.as_deref(),
            Arc::clone(&metrics),
            tracing,
        )?;
        let cache_settings = cache::Settings {
            renew_after: config.renew_after,
            ..cache::Settings::default()
        };
        let cache_clock = Arc::new(cache::clock::SystemClock::start());
        let credentials = Arc::new(CredentialCache::new(cache_settings, cache_clock, Handle::current()));
        let loader = Loader::new(
            Arc::clone(&config),
            checker.clone(),
            Arc::clone(&metrics),
            Arc::clone(&credentials),
            clock.clone(),
        )?;
        let revoked = revoked_tokens(&config, &clock, &metrics).await;
        let agents = Arc::<Connections>::default();
        let connector_settings = config.connectors.clone().unwrap_or_default();
        let console = config.authentication.console.as_ref();
        agents.set_binding(BindingRule {
            hosts: connector_settings.hosts,
            public_host: console
                .and_then(|console| console.url.host_str())
                .map(str::to_ascii_lowercase),
            accepts_unbound: connector_settings.accepts_unbound,
        });
        let store = open_store(&config, &metrics, &admin_listener).await?;
        let sessions = match &store {
            Some(store) => sessions(&config, store, &clock, &metrics, &admin_listener).await?,
            None => None,
        };
        let logins = logins(&config, sessions.as_ref(), &clock);
        let registries = Registries {
            revoked: revoked.clone(),
            sessions: sessions.as_ref().map(|sessions| Arc::clone(&sessions.registry)),
            logins: logins.clone(),
        };
        let loader = Arc::new(loader.with_registries(registries).with_agents(Arc::clone(&agents)));
        let services = match &sessions {
            Some(sessions) => services(&config, sessions, &clock, &metrics)?,
            None => None,
        };
        let tasks = [
            store.as_ref().map(|store| &store.tasks),
            sessions.as_ref().map(|sessions| &sessions.registry.tasks),
            services.as_ref().map(|services| &services.audit.tasks),
            revoked.as_ref().map(|revoked| &revoked.tasks),
            Some(&credentials.tasks),
        ];
        let tasks = tasks.into_iter().flatten().cloned().collect();
        helpers.spawn(measure_runtime_lag(Arc::clone(&metrics)));
        helpers.spawn(measure_blocking_wait(Arc::clone(&metrics)));
        helpers.spawn(followed::follow());
        // The watch starts before the load, so that a change in between is read again.
        let (reloads, requests) = mpsc::channel(8);
        watch_parts(&loader, &reloads, &mut helpers).await;
        wait_until_listed(&loader, &admin_listener).await;
        let findings = LoadFindings::default();
        let current = first_load(&loader, &metrics, &findings).await?;
        if let Some(services) = &services {
            let snapshot = current.load_full();
            retry(&admin_listener, || bind_tokens(services, &snapshot)).await?;
        }
        if let Some(export) = audit_export(&config, services.as_ref(), &metrics, &current)? {
            helpers.spawn(export.run());
        }
        agents.set_clusters(current.load().clusters_with_agents());
        let await_store = |error: &store::Error| awaited(&admin_listener, error);
        let peer_address = agents::start(
            &config,
            store.as_ref(),
            &agents,
            &metrics,
            &clock,
            &await_store,
            &mut helpers,
        )
        .await?;
        let tls = config.tls.clone().map(|files| Certificates::load(files, None));
        let tls = tls.transpose()?.map(Arc::new);
        if let Some(tls) = &tls {
            followed::register("tls", tls);
        }
        let admission_tls = match &config.admission {
            Some(settings) => {
                let namespace = &*config.control_plane_namespace;
                Some(admission::certificates(settings, loader.source(), namespace, &clock, &mut helpers).await?)
            }
            None => None,
        };
        let checked: Arc<dyn self_check::Configuration> = Arc::new(CheckedConfiguration(Arc::clone(&current)));
        let checks = self_check::spawn(&mut helpers, &config, &checked, &metrics);
        let sets = match &config.application_sets {
            Some(settings) => Some(Arc::new(ApplicationSetsFrontState::new(settings, clock.clone())?)),
            None => None,
        };
        let registry = sessions.as_ref().map(|sessions| Arc::clone(&sessions.registry));
        let open_exchanges = OpenExchanges::new(
            Arc::clone(&current),
            Arc::clone(&recorder),
            Arc::clone(&metrics),
            revoked.clone(),
            registry.clone(),
        );
        helpers.spawn(Arc::clone(&open_exchanges).run());
        if let Some(sessions) = &registry {
            helpers.spawn(Arc::clone(&open_exchanges).follow_withdrawals(Arc::clone(sessions)));
        }
        if revoked.is_some() {
            helpers.spawn(Arc::clone(&open_exchanges).follow_revocations());
        }
        let admin = AdminState {
            current: Arc::clone(&current),
            recorder: Arc::clone(&recorder),
            metrics: Arc::clone(&metrics),
            credentials: Arc::clone(&credentials),
            findings: findings.clone(),
            checks,
            sessions: registry,
            revoked,
            agents: Arc::clone(&agents),
            source: Arc::clone(loader.source()),
            certificates: ServedCertificates {
                public: tls.clone(),
                admission: admission_tls.clone(),
            },
            stop: stop.clone(),
        };
        let per_person = requests_per_person(&config);
        let gateway = Gateway::new(Services {
            config: Arc::clone(&config),
            metrics: Arc::clone(&metrics),
            recorder: Arc::clone(&recorder),
            current: Arc::clone(&current),
            open: Arc::clone(&open_exchanges),
            persons: Limiter::new(&per_person),
            // Apart from `persons`, where what a page asks counts: the pages must not take those places.
            pages: Limiter::new(&per_person),
            components: Limiter::new(&LimitSpec::default()),
            blocking: BlockingWork::default(),
            signer: Arc::new(signer(&config.extensions)?),
            agents: Arc::clone(&agents),
            store: store.clone(),
            discovery: Arc::new(Discovery::new(clock.clone())),
            extras: admin.checks.extras.clone(),
            source: Arc::clone(loader.source()),
            checker,
            findings: findings.clone(),
            system: Arc::new(admin.clone()),
            states: States::default()
                .with(services.clone())
                .with(sets.clone())
                .with(logins.map(|logins| Arc::new(SignInState::new(logins, pages)))),
            caches: Caches::default(),
        })?;
        let (public, address) = bind("listen", config.listen).await?;
        if let Some(reporter) = services.as_ref().and_then(|services| services.authorizer.reporter()) {
            let current = Arc::clone(&current);
            helpers.spawn(reporter.run(move || current.load().agents().cloned()));
        }
        let metrics_push = exporter.map(|exporter| Arc::new(exporter.reading(admin.clone())));
        if let Some(push) = metrics_push.clone() {
            helpers.spawn(async move { push.run().await });
        }
        let admission = match config.admission.as_ref().zip(admission_tls) {
            Some((settings, tls)) => {
                let (listener, address) = bind("admission.listen", settings.listen).await?;
                let limits = admission::limits(&config.limits, config.drain);
                let server =
                    Server::new(listener, Some(tls), limits).counted_by(metrics.connections(Listener::Admission));
                let handler = admission::AdmissionHandler {
                    current: Arc::clone(&current),
                    recorder: Arc::clone(&recorder),
                    metrics: Arc::clone(&metrics),
                    sets: StoredSets::new(Arc::clone(&current), Arc::clone(loader.source())),
                    clock: clock.clone(),
                    memory: admission::ReviewMemory::default(),
                };
                let serving = tokio::spawn(server.serve(Arc::new(handler), stop.clone()));
                tracing::info!(listen = %address, "the admission webhook is listening");
                Some((address, serving))
            }
            None => None,
        };
        let console = config.authentication.console.as_ref();
        // The last of the listeners, for programs that wait for this line.
        tracing::info!(
            listen = %address,
            admin = %admin_address,
            console = console.map(|console| tracing::field::display(&console.url)),
            "listening"
        );
        // `/readyz` may succeed from here, because the public socket is bound: connections wait in its queue.
        admin_listener.start(admin);
        let retired = RetiredSnapshots::default();
        helpers.spawn(retired.clone().run());
        let open = Arc::clone(&open_exchanges);
        helpers.spawn(reload_on(requests, loader, current, open, retired, findings));
        let server = Server::new(public, tls, Limits::new(&config.limits, config.drain));
        let server = server
            .behind(config.trusted_proxies.clone(), config.proxy_protocol)
            .counted_by(metrics.connections(Listener::Public));
        let server = tokio::spawn(server.serve(Arc::new(gateway), stop.clone()));
        Ok(Self {
            address,
            admin_address,
            recorder,
            credentials,
            services,
            sets,
            agents,
            store,
            peer_address,
            admission,
            metrics_push,
            reloads,
            drain: config.drain,
            open_exchanges,
            stop: stop.drop_guard(),
            server,
            _admin: admin_guard,
            helpers,
            tasks,
        })
    }

    /// Address of the public listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address of the admin listener.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// Address of the admission webhook; `None` if it is off.
    pub fn admission_address(&self) -> Option<SocketAddr> {
        Some(self.admission.as_ref()?.0)
    }

    /// Address where other replicas are served; `None` if the settings have none.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.peer_address
    }

    /// Loads a part again without waiting for a change to settle. When this returns, what was written
    /// before is in force, or refused.
    pub async fn reload(&self, part: ConfigPart) {
        let (done, loaded) = oneshot::channel();
        let request = ReloadRequest { part, done: Some(done) };
        if self.reloads.send(request).await.is_ok() {
            // An error means that the gateway has stopped.
            let _ = loaded.await;
        }
    }

    /// Store, sessions and audit; `None` while the Kubernetes front is closed.
    pub fn services(&self) -> Option<&Arc<AccessServices>> {
        self.services.as_ref()
    }

    /// The tasks of the parts that start theirs themselves.
    pub fn tasks(&self) -> &[Tasks] {
        &self.tasks
    }

    /// Waits for a listener or another task to end by itself, which happens only through a bug. Without it
    /// the gateway would go on in part: with an old configuration, or with streams of revoked callers. Cancel
    /// safe.
    pub async fn ended(&mut self) -> anyhow::Error {
        let admission = async {
            match &mut self.admission {
                Some((_, serving)) => serving.await,
                None => std::future::pending().await,
            }
        };
        let of_parts = select_all(self.tasks.iter().map(|tasks| Box::pin(tasks.ended())));
        let (task, ended) = tokio::select! {
            (name, ..) = of_parts => return anyhow::anyhow!("the task `{name}` has ended without being stopped"),
            ended = &mut self.server => ("the server", ended),
            ended = admission => ("the admission webhook", ended),
            Some(ended) = self.helpers.join_next() => ("a background task", ended),
        };
        match ended {
            Ok(()) => anyhow::anyhow!("{task} ended without being stopped"),
            Err(error) => anyhow::anyhow!("{task} failed: {error}"),
        }
    }

    /// Stops accepting connections and waits for running requests, at most the configured drain
    /// time. Then waits, at most 5 s each, for credentials to be revoked, and for the decision file
    /// and the last metrics.
    ///
    /// # Errors
    /// The server ended with an error.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.stop.disarm().cancel();
        // In the store, replicas find who serves an agent: this one must not be found while it drains.
        let leave = async {
            if let (Some(store), Some(_)) = (&self.store, self.peer_address)
                && timeout(FLUSH, agents::leave(store, &self.agents)).await.is_err()
            {
                tracing::warn!(
                    "the store does not answer: other replicas learn only from the end of the lease that this one stops"
                );
            }
        };
        // The connections of agents would last as long as the drain.
        let end_open = end_open_before(self.drain, &self.open_exchanges);
        // Other replicas learn of the stop at once, while requests that they sent here still end.
        let serving = async { tokio::join!(self.server, leave, self.agents.drain()).0 };
        let served = tokio::select! {
            served = serving => served,
            never = end_open => match never {},
        };
        let admission = match self.admission {
            Some((_, served)) => served.await,
            None => Ok(()),
        };
        // The periodic push ends with these, so that none follows the last one.
        drop(self.helpers);
        // Changes that were started are completed even if their callers disconnected.
        if let Some(sets) = self.sets
            && timeout(FLUSH, sets.finish()).await.is_err()
        {
            tracing::error!("not every write of an ApplicationSet ended in time");
        }
        if let Some(services) = self.services {
            flush(&services).await;
        }
        // Revokes the credentials that can be revoked.
        if !self.credentials.shutdown().await {
            tracing::warn!("not every credential of a cluster could be revoked in time");
        }
        let last_push = async {
            if let Some(push) = self.metrics_push {
                push.push().await;
            }
        };
        let (written, pushed) = tokio::join!(timeout(FLUSH, self.recorder.flush()), timeout(FLUSH, last_push));
        if written.is_err() {
            tracing::error!("the last decision lines could not be written in time");
        }
        if pushed.is_err() {
            tracing::warn!("the last metrics could not be pushed in time");
        }
        // Returned last: an error of the server must not lose what is still in memory.
        served?;
        Ok(admission?)
    }
}

/// Ends what is still open some time before the end of the drain. Watches never end by themselves.
async fn end_open_before(drain: Duration, open: &OpenExchanges) -> std::convert::Infallible {
    sleep(drain.saturating_sub(END_BEFORE_DRAIN.min(drain / 4))).await;
    let ended = open.end_all();
    tracing::info!(ended, "what is still open was ended, because the gateway stops");
    std::future::pending().await
}

/// Writes the audit rows and the last-seen times that are still in memory.
async fn flush(services: &AccessServices) {
    let (audit, sessions) = tokio::join!(
        timeout(FLUSH, services.audit.flush()),
        timeout(FLUSH, services.sessions.flush())
    );
    if !matches!(audit, Ok(Ok(()))) {
        tracing::error!("the last audit rows could not be written");
    }
    if !matches!(sessions, Ok(Ok(()))) {
        tracing::error!("who was seen last could not be written");
    }
}

/// Follows Argo CD's list of revoked tokens, if the settings name its Redis. Waits some seconds for
/// it, and starts without it.
async fn revoked_tokens(config: &Config, clock: &Clock, metrics: &Metrics) -> Option<Arc<RevokedTokens>> {
    let settings = config.argocd_redis.clone()?;
    Some(RevokedTokens::start(settings, clock.clone(), Arc::clone(&metrics.identity)).await)
}

/// The store, if anything needs it. Waits for its server.
async fn open_store(config: &Config, metrics: &Metrics, admin: &AdminListener) -> anyhow::Result<Option<Arc<Store>>> {
    if !config.needs_store() {
        return Ok(None);
    }
    let url = store_url(&config.store.url).map_err(anyhow::Error::msg)?;
    let store = retry(admin, || Store::open(&url)).await?;
    store.measure_with(Arc::clone(&metrics.identity.store));
    Ok(Some(Arc::new(store)))
}

struct Sessions {
    store: Arc<Store>,
    registry: Arc<SessionRegistry>,
}

/// The sessions of people, if they have any.
async fn sessions(
    config: &Config,
    store: &Arc<Store>,
    clock: &Clock,
    metrics: &Arc<Metrics>,
    admin: &AdminListener,
) -> anyhow::Result<Option<Sessions>> {
    if config.kubernetes.is_none() && config.authentication.console.is_none() {
        return Ok(None);
    }
    let grace = config.store.grace_period;
    let start = || SessionRegistry::start(Arc::clone(store), clock.clone(), grace, Arc::clone(&metrics.identity));
    let registry = retry(admin, start).await?;
    let store = Arc::clone(store);
    Ok(Some(Sessions { store, registry }))
}

/// Asks the store until it answers. Another error is returned at once.
async fn retry<T, F: Future<Output = Result<T, store::Error>>>(
    admin: &AdminListener,
    mut ask: impl FnMut() -> F,
) -> Result<T, store::Error> {
    let mut pause = RETRY;
    loop {
        match ask().await {
            Err(error) if awaited(admin, &error) => {}
            done => return done,
        }
        sleep(pause).await;
        pause = pause.saturating_mul(2).min(MAX_RETRY);
    }
}

/// Whether the start waits for the store after this error, which is then reported.
fn awaited(admin: &AdminListener, error: &store::Error) -> bool {
    let is_away = matches!(error, store::Error::Unreachable(_) | store::Error::Failed(_));
    if is_away && admin.wait_for(format!("the store: {error}")) {
        tracing::error!(%error, "the gateway waits for the store; nothing is served until it answers");
    }
    is_away
}

/// Waits until the objects were read for the first time, however long that takes: to give up would
/// mean to read everything again.
async fn wait_until_listed(loader: &Loader, admin: &AdminListener) {
    // Most starts are complete before this, and log nothing.
    let mut log_at = Instant::now() + MAX_RETRY;
    loop {
        let missing = loader.source().missing();
        if missing.is_empty() {
            return;
        }
        let text = |finding: &Diagnostic| finding.message.clone();
        admin.wait_for(missing.iter().map(text).collect::<Vec<_>>().join("; "));
        if Instant::now() >= log_at {
            log_at = Instant::now() + LOG_AWAITED;
            tracing::warn!("nothing is served yet, because these are awaited");
            missing.iter().for_each(tollgate_core::diagnostic::log);
        }
        sleep(RETRY).await;
    }
}

fn logins(config: &Config, sessions: Option<&Sessions>, clock: &Clock) -> Option<Arc<Logins>> {
    let console = config.authentication.console.clone()?;
    let Sessions { store, registry } = sessions?;
    let logins = Logins::new(Arc::clone(store), Arc::clone(registry), clock.clone(), console);
    Some(Arc::new(logins))
}

fn services(
    config: &Config,
    sessions: &Sessions,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Option<Arc<AccessServices>>> {
    let Some(settings) = &config.kubernetes else {
        return Ok(None);
    };
    let grace = config.store.grace_period;
    let identity_metrics = || Arc::clone(&metrics.identity);
    let store = &sessions.store;
    let sessions = Arc::clone(&sessions.registry);
    let periods = audit::AuditPeriods {
        bucket: settings.audit_bucket,
        keep: settings.audit_keep,
        grace,
    };
    let audit = Audit::start(Arc::clone(store), clock.clone(), periods, identity_metrics());
    audit.record_closed_streams(&sessions);
    let endpoint = PlatformEndpoint::new(settings, clock.clone())?;
    let authorizer = Authorizer::new(settings, Arc::clone(store), sessions.clone(), clock.clone())?;
    Ok(Some(Arc::new(AccessServices {
        store: Arc::clone(store),
        sessions,
        audit,
        authorizer,
        endpoint,
        clock: clock.clone(),
    })))
}

/// Binds tokens of earlier versions to the agents of this snapshot.
async fn bind_tokens(services: &AccessServices, snapshot: &Snapshot) -> Result<(), store::Error> {
    let front = snapshot.policies.kubernetes.as_ref();
    let Some(front) = front.filter(|_| services.authorizer.is_embedded()) else {
        return Ok(());
    };
    let (bound, orphaned) = services.store.bind_tokens(&front.agents.identities()).await?;
    if bound > 0 || orphaned > 0 {
        tracing::info!(
            bound,
            orphaned,
            "tokens of an earlier version are bound to their agents; orphaned ones let nobody in"
        );
    }
    Ok(())
}

fn audit_export(
    config: &Config,
    services: Option<&Arc<AccessServices>>,
    metrics: &Metrics,
    current: &CurrentSnapshot,
) -> anyhow::Result<Option<Exporter>> {
    let (Some(services), Some(settings)) = (services, &config.kubernetes) else {
        return Ok(None);
    };
    let Some(export) = &settings.audit_export else {
        return Ok(None);
    };
    let current = Arc::clone(current);
    let agent_name = move |id: AgentId| Some(current.load().agents()?.agent(id)?.name.clone());
    let identity_metrics = Arc::clone(&metrics.identity);
    let exporter = Exporter::new(
        export,
        Arc::clone(&services.store),
        services.clock.clone(),
        settings.audit_bucket,
        identity_metrics,
        Box::new(agent_name),
    );
    Ok(Some(exporter.context("`kubernetes.audit.export`")?))
}

/// The URL of the store, or why its file cannot be read.
fn store_url(url: &StoreUrl) -> Result<SecretString, String> {
    match url {
        StoreUrl::Text(url) => Ok(url.clone()),
        StoreUrl::File(path) => match std::fs::read_to_string(path) {
            Ok(text) => Ok(SecretString::from(text.lines().next().unwrap_or_default().trim())),
            Err(error) => Err(format!("`store.urlFile`: `{}`: {error}", path.display())),
        },
    }
}

/// A part to load again, and who waits for it.
#[derive(Debug)]
struct ReloadRequest {
    part: ConfigPart,
    done: Option<oneshot::Sender<()>>,
}

/// Loads what changed again: a few changes at once, and one part a second in the long run. What
/// somebody waits for is loaded at once.
async fn reload_on(
    mut requests: mpsc::Receiver<ReloadRequest>,
    loader: Arc<Loader>,
    current: CurrentSnapshot,
    open_exchanges: Arc<OpenExchanges>,
    retired: RetiredSnapshots,
    findings: LoadFindings,
) {
    let mut changed = Vec::new();
    let mut pace = Pace::new(Instant::now());
    loop {
        let request = tokio::select! {
            request = requests.recv() => match request {
                Some(request) => Some(request),
                None => return,
            },
            () = sleep_until(pace.next()), if !changed.is_empty() => None,
        };
        let (part, done) = match request {
            Some(ReloadRequest { part, done: None }) => {
                if !changed.contains(&part) {
                    changed.push(part);
                }
                continue;
            }
            Some(ReloadRequest { part, done }) => (part, done),
            None => {
                pace.reload(Instant::now());
                (changed.remove(0), None)
            }
        };
        let before = current.load_full();
        findings.set(part, reload(&loader, &current, part).await);
        if !Arc::ptr_eq(&before, &current.load()) {
            // Dropped here, it could free megabytes on a thread that serves.
            retired.add(before);
        }
        loader.agents().set_clusters(current.load().clusters_with_agents());
        open_exchanges.changed();
        if let Some(done) = done {
            // The caller need not wait.
            let _ = done.send(());
        }
    }
}

/// Watches the parts of the configuration, and requests a reload for each settled change of one.
async fn watch_parts(loader: &Loader, reloads: &mpsc::Sender<ReloadRequest>, helpers: &mut JoinSet<()>) {
    let mut watches = vec![(ConfigPart::State, loader.source().watch().await)];
    for (part, folder) in loader.watched() {
        let watch = watch(vec![folder], Timing::default(), FileEvents::IfAvailable).await;
        watches.push((part, watch));
    }
    for (part, mut watch) in watches {
        let reloads = reloads.clone();
        helpers.spawn(async move {
            while watch.changed().await.is_some() {
                if reloads.send(ReloadRequest { part, done: None }).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Measures for ever how late the runtime wakes a task, as any request would be.
async fn measure_runtime_lag(metrics: Arc<Metrics>) {
    loop {
        let due = Instant::now() + LAG_INTERVAL;
        sleep_until(due).await;
        metrics.load.runtime_lag.observe(due.elapsed().as_secs_f64());
    }
}

/// Measures for ever how long work that blocks waits for a thread, also while it waits.
async fn measure_blocking_wait(metrics: Arc<Metrics>) {
    loop {
        let begun = Instant::now();
        let mut probe = tokio::task::spawn_blocking(|| {});
        while timeout(LAG_INTERVAL, &mut probe).await.is_err() {
            metrics.load.blocking_wait.set(begun.elapsed().as_secs_f64());
        }
        metrics.load.blocking_wait.set(begun.elapsed().as_secs_f64());
        sleep(BLOCKING_INTERVAL).await;
    }
}

async fn bind(key: &str, address: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let failed = |error| anyhow::anyhow!("`{key}` {address} cannot be listened on: {error}");
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

async fn first_load(
    loader: &Arc<Loader>,
    metrics: &Metrics,
    findings: &LoadFindings,
) -> anyhow::Result<CurrentSnapshot> {
    let (blocking, findings) = (Arc::clone(loader), findings.clone());
    let loaded = tokio::task::spawn_blocking(move || blocking.first_with(&findings)).await?;
    loaded.diagnostics.iter().for_each(tollgate_core::diagnostic::log);
    let Some(snapshot) = loaded.value else {
        anyhow::bail!("nothing is served, because the configuration has errors; `tollgate check` shows them");
    };
    for part in [ConfigPart::State, ConfigPart::Policies, ConfigPart::Plugins] {
        metrics.count_load(part, true);
    }
    metrics.generation(snapshot.generation);
    Ok(Arc::new(ArcSwap::from_pointee(snapshot)))
}

async fn reload(loader: &Arc<Loader>, current: &CurrentSnapshot, part: ConfigPart) -> Vec<Diagnostic> {
    let (blocking, current) = (Arc::clone(loader), Arc::clone(current));
    let loading = tokio::task::spawn_blocking(move || blocking.reload(&current, part));
    loading.await.unwrap_or_else(|error| {
        let text = format!("loading failed, the last good configuration stays: {error}");
        let found = vec![Diagnostic::error(None, text)];
        loader.report(part, &found);
        found
    })
}

/// Returns the key of the settings, or a new one that lives as long as the process.
fn signer(settings: &tollgate_config::Extensions) -> anyhow::Result<SigningKeys> {
    let issuer = settings.assertion_issuer.clone();
    let Some(path) = &settings.assertion_key else {
        return Ok(SigningKeys::generate(issuer)?);
    };
    SigningKeys::follow("extensions.assertion.key", path, issuer).map_err(anyhow::Error::msg)
}

fn requests_per_person(config: &Config) -> LimitSpec {
    let concurrency = u32::try_from(config.limits.requests_per_person).ok();
    LimitSpec {
        per_person: PersonLimitSpec {
            concurrency: concurrency.and_then(NonZeroU32::new),
            ..PersonLimitSpec::default()
        },
        ..LimitSpec::default()
    }
}
