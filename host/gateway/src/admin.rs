//! The admin listener: health, readiness, metrics, recent decisions and the loaded configuration,
//! as text and JSON.
//!
//! It answers 421 unless the request's host is an IP address or `localhost`, except for probes and
//! metrics, and refuses what [`tollgate_proxy::server`] refuses. It writes no decision records,
//! because it decides nothing.
//!
//! Security: it must not listen where people can reach it. It changes nothing, returns no secret
//! and does not answer pages of other sites.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::extract::{Path, Query, Request, State};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tower::Service as _;
use uuid::Uuid;

use tollgate_agent::Connections;
use tollgate_cluster::self_check::CheckResults;
use tollgate_cluster_fronts::ClusterView;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_credential::cache::CredentialCache;
use tollgate_credential::cache::health::Health;
use tollgate_front::System;
use tollgate_front::load_findings::LoadFindings;
use tollgate_front::snapshot::{CurrentSnapshot, Snapshot};
use tollgate_identity::revoked_tokens::RevokedTokens;
use tollgate_identity::sessions::SessionRegistry;
use tollgate_objects::ClusterAuth;
use tollgate_proxy::forward::Body;
use tollgate_proxy::metrics::{CertificateUse, Metrics};
use tollgate_proxy::record::{PolicyInputError, Recorder};
use tollgate_proxy::server::{Certificates, Client, Handler};
use tollgate_rego as rego;
use tollgate_runtime::followed;
use tollgate_state::source::Source;

#[derive(Clone, Debug)]
pub(crate) struct AdminState {
    pub(crate) current: CurrentSnapshot,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) credentials: Arc<CredentialCache>,
    pub(crate) findings: LoadFindings,
    pub(crate) checks: CheckResults,
    /// `None` while the Kubernetes front is closed.
    pub(crate) sessions: Option<Arc<SessionRegistry>>,
    /// `None` if Argo CD's Redis is not read.
    pub(crate) revoked: Option<Arc<RevokedTokens>>,
    pub(crate) agents: Arc<Connections>,
    /// Where the objects come from.
    pub(crate) source: Arc<dyn Source>,
    /// Those of the listeners that serve TLS.
    pub(crate) certificates: ServedCertificates,
    /// Cancelled from the first moment of stopping.
    pub(crate) stop: CancellationToken,
}

/// What listeners serve over TLS; `None` for one that is off or serves plain text.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServedCertificates {
    pub(crate) public: Option<Arc<Certificates>>,
    pub(crate) admission: Option<Arc<Certificates>>,
}

/// The admin listener, which answers from the first moment of the process: until everything is loaded,
/// `/readyz` says what the gateway waits for.
#[derive(Debug)]
pub(crate) struct AdminListener {
    metrics: Arc<Metrics>,
    /// What the gateway waits for.
    awaited: Mutex<String>,
    started: OnceLock<AdminHandler>,
}

#[derive(Serialize)]
struct Configuration {
    generation: u64,
    extensions: Vec<String>,
    plugins: Vec<tollgate_plugin::PluginSummary>,
    policy_sha256: String,
    findings: Vec<Diagnostic>,
}

/// The state of one replica, for the API.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SystemReport {
    version: &'static str,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_ready: Option<String>,
    generation: u64,
    policy_sha256: String,
    extensions: Vec<String>,
    findings: Vec<Diagnostic>,
    /// How many agents are connected to this replica.
    agents: usize,
}

impl System for AdminState {
    fn report(&self) -> Vec<u8> {
        serde_json::to_vec(&Self::report(self)).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct ClusterCredentialView {
    #[serde(flatten)]
    cluster: ClusterView,
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<Health>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionsQuery {
    most: Option<usize>,
    user: Option<String>,
    outcome: Option<String>,
    /// Only those that a mode `audit` let pass (`true`), or all others.
    would_refuse: Option<bool>,
}

const MAX_RECORDS: usize = 1_000;

#[derive(Debug)]
pub(crate) struct AdminHandler(Router);

impl AdminListener {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            metrics,
            awaited: Mutex::new("the configuration".to_owned()),
            started: OnceLock::new(),
        })
    }

    /// Sets what the gateway waits for. Returns whether it waited for something else before.
    pub(crate) fn wait_for(&self, what: String) -> bool {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = *awaited != what;
        *awaited = what;
        is_other
    }

    /// Has everything answered from now on.
    pub(crate) fn start(&self, admin: AdminState) {
        // It is called once.
        let _ = self.started.set(handler(admin));
    }

    fn starting(&self, path: &str) -> Response {
        match path {
            // A failing liveness probe would restart a gateway that only waits, and reads everything again then.
            "/healthz" => "ok\n".into_response(),
            "/metrics" => metrics_text(&self.metrics),
            _ => {
                let awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
                let text = format!("the gateway is starting and waits for {awaited}\n");
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
            }
        }
    }
}

impl Handler for AdminListener {
    async fn handle(&self, request: axum::http::Request<Body>, client: &Arc<Client>) -> axum::http::Response<Body> {
        match self.started.get() {
            Some(handler) => handler.handle(request, client).await,
            None => in_memory(self.starting(request.uri().path())).await,
        }
    }
}

impl Handler for AdminHandler {
    async fn handle(&self, request: axum::http::Request<Body>, _: &Arc<Client>) -> axum::http::Response<Body> {
        let request = request.map(axum::body::Body::new);
        let Ok(response) = self.0.clone().call(request).await;
        in_memory(response).await
    }
}

async fn in_memory(response: Response) -> axum::http::Response<Body> {
    let (parts, content) = response.into_parts();
    // Every page is already in memory as a whole.
    match axum::body::to_bytes(content, usize::MAX).await {
        Ok(bytes) => axum::http::Response::from_parts(parts, Body::from(bytes)),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response().map(|_| Body::empty()),
    }
}

fn handler(admin: AdminState) -> AdminHandler {
    let operators = Router::new()
        .route("/agents", get(agents))
        .route("/agents/connected", get(connected_agents))
        .route("/applications", get(applications))
        .route("/configuration", get(configuration))
        .route("/credentials", get(credentials))
        .route("/decisions", get(decisions))
        .route("/decisions/{id}", get(decision))
        .route("/decisions/{id}/input", get(decision_input))
        .layer(middleware::from_fn(require_address_host));
    // Probes and scrapers may use a name.
    let pages = operators
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn(on_blocking_thread));
    let all = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .merge(pages);
    AdminHandler(all.with_state(admin))
}

/// Makes a page on a thread for blocking work: with 2,000 clusters it takes some 20 ms.
async fn on_blocking_thread(request: Request, next: Next) -> Response {
    let runtime = tokio::runtime::Handle::current();
    let made = tokio::task::spawn_blocking(move || runtime.block_on(next.run(request)));
    made.await
        .unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// SECURITY: if a site's name resolves to this machine (DNS rebinding), its pages have the same
/// origin as this listener and could read everybody's decisions. Their requests carry that name;
/// those of operators carry an address or `localhost`.
async fn require_address_host(request: Request, next: Next) -> Response {
    if is_called_by_address(request.headers()) {
        next.run(request).await
    } else {
        let text = "call the admin listener by its IP address or as `localhost`\n";
        (StatusCode::MISDIRECTED_REQUEST, text).into_response()
    }
}

/// Whether the only `Host` field is an IP address or `localhost`, with any port.
fn is_called_by_address(headers: &HeaderMap) -> bool {
    // RFC 9112, section 3.2: a request has one `Host` field. With two, the site's name might be the second.
    let mut fields = headers.get_all(HOST).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return false;
    };
    let Ok(authority) = Authority::try_from(field.as_bytes()) else {
        return false;
    };
    let host = authority.host();
    host.eq_ignore_ascii_case("localhost") || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
}

/// The gateway is ready while a good configuration is in force, every required plugin is loaded,
/// the store answers, Argo CD's list of revoked tokens is known and it does not stop. A broken file on disk does not take it out of service.
async fn ready(State(admin): State<AdminState>) -> Response {
    match admin.why_not_ready() {
        None => "ok\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

impl AdminState {
    /// Why the gateway is not ready; `None` if it is.
    fn why_not_ready(&self) -> Option<String> {
        if self.stop.is_cancelled() {
            return Some("the gateway is stopping".to_owned());
        }
        let mut sessions = self.sessions.iter();
        if sessions.any(|sessions| sessions.is_store_unavailable()) {
            return Some("the store is unavailable".to_owned());
        }
        if self.revoked.iter().any(|revoked| revoked.is_unavailable()) {
            return Some("Argo CD's list of revoked tokens is unavailable".to_owned());
        }
        let snapshot = self.current.load_full();
        let missing = snapshot.plugins.missing_required();
        (!missing.is_empty()).then(|| format!("required plugins are missing: {}", missing.join(", ")))
    }

    fn report(&self) -> SystemReport {
        let not_ready = self.why_not_ready();
        let configuration = self.configuration();
        SystemReport {
            version: env!("CARGO_PKG_VERSION"),
            ready: not_ready.is_none(),
            not_ready,
            generation: configuration.generation,
            policy_sha256: configuration.policy_sha256,
            extensions: configuration.extensions,
            findings: configuration.findings,
            agents: self.agents.statuses(None).len(),
        }
    }

    fn configuration(&self) -> Configuration {
        let snapshot = self.current.load_full();
        let mut findings = self.findings.all();
        findings.extend(snapshot.findings());
        let digest = snapshot.policies.bundle(rego::Front::Extensions);
        Configuration {
            generation: snapshot.generation,
            extensions: snapshot.extensions.names().into_iter().map(str::to_owned).collect(),
            plugins: snapshot.plugins.list().collect(),
            policy_sha256: digest.map(|bundle| bundle.digest.to_string()).unwrap_or_default(),
            findings,
        }
    }

    /// The metrics, with the present values of those that are only set when somebody reads them.
    pub(crate) fn current_metrics(&self) -> &Metrics {
        let snapshot = self.current.load_full();
        // Read here, because the thread that detects it has no access to metrics.
        let bundles = snapshot.policies.bundles();
        self.metrics
            .set_stuck_policies(bundles.map(|bundle| (bundle.front.into(), bundle.is_stuck())));
        let health = snapshot.clusters.iter();
        let health = health.filter_map(|access| Some((&*access.label, access.health()?)));
        self.metrics.credentials.replace(health, self.credentials.totals());
        let (connectors, streams) = self.agents.counts();
        self.metrics.set_connectors(connectors, streams);
        let connected = self.agents.counts_by_server();
        let with_agent = snapshot
            .clusters
            .iter()
            .filter(|access| matches!(access.auth(), ClusterAuth::Agent(_)));
        let connectors = with_agent.map(|access| {
            let connectors = connected
                .get(access.cluster().server.as_str())
                .copied()
                .unwrap_or_default();
            (access.label.to_string(), connectors)
        });
        self.metrics.load.set_cluster_connectors(connectors.collect());
        self.metrics.load.set_watch_ages(&self.source.watch_ages());
        self.metrics.load.set_certificate_ends(self.certificate_ends(&snapshot));
        &self.metrics
    }

    fn certificate_ends(&self, snapshot: &Snapshot) -> Vec<(CertificateUse, String, u64)> {
        let ServedCertificates { public, admission } = &self.certificates;
        let own = [
            (CertificateUse::Public, public.as_ref().and_then(|tls| tls.end())),
            (CertificateUse::Admission, admission.as_ref().and_then(|tls| tls.end())),
            (
                CertificateUse::AdmissionClients,
                admission.as_ref().and_then(|tls| tls.authority_end()),
            ),
            (CertificateUse::State, self.source.certificate_end()),
        ];
        let own = own
            .into_iter()
            .filter_map(|(used, end)| Some((used, String::new(), end?)));
        let clusters = snapshot.clusters.iter();
        let clusters = clusters.filter_map(|access| {
            Some((
                CertificateUse::Cluster,
                access.label.to_string(),
                access.certificate_end?,
            ))
        });
        let extensions = snapshot.extensions.certificate_ends();
        let extensions = extensions.map(|(name, end)| (CertificateUse::Extension, name.to_owned(), end));
        let authorities = followed::authority_ends().into_iter();
        let authorities = authorities.map(|(setting, end)| (CertificateUse::Authority, setting.to_owned(), end));
        own.chain(clusters).chain(extensions).chain(authorities).collect()
    }
}

async fn metrics(State(admin): State<AdminState>) -> Response {
    metrics_text(admin.current_metrics())
}

fn metrics_text(metrics: &Metrics) -> Response {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match metrics.text() {
        Ok(text) => ([(CONTENT_TYPE, content_type)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn configuration(State(admin): State<AdminState>) -> Response {
    Json(admin.configuration()).into_response()
}

/// Every cluster with the state of its credential, without secrets.
async fn credentials(State(admin): State<AdminState>) -> Response {
    let snapshot = admin.current.load_full();
    let clusters = snapshot.clusters.iter().map(|access| ClusterCredentialView {
        cluster: ClusterView::of(access),
        health: access.health(),
    });
    Json(clusters.collect::<Vec<_>>()).into_response()
}

/// Every agent, and whether its cluster lets the gateway impersonate people.
async fn agents(State(admin): State<AdminState>) -> Response {
    Json(admin.checks.agents.load_full()).into_response()
}

/// The agents of clusters that are connected to this replica.
async fn connected_agents(State(admin): State<AdminState>) -> Response {
    Json(admin.agents.statuses(None)).into_response()
}

/// Every cluster of Applications, and whether the gateway may impersonate their service accounts
/// there.
async fn applications(State(admin): State<AdminState>) -> Response {
    Json(admin.checks.applications.load_full()).into_response()
}

async fn decisions(State(admin): State<AdminState>, Query(query): Query<DecisionsQuery>) -> Response {
    let limit = query.most.unwrap_or(20).min(MAX_RECORDS);
    let records = admin.recorder.latest(limit, |record| {
        let is_outcome = |outcome: &String| outcome == record.outcome.as_ref();
        let is_noted = |wanted: bool| record.notes.contains_key("would_refuse") == wanted;
        query.user.as_ref().is_none_or(|user| record.is_about(user))
            && query.outcome.as_ref().is_none_or(is_outcome)
            && query.would_refuse.is_none_or(is_noted)
    });
    Json(records).into_response()
}

async fn decision(State(admin): State<AdminState>, Path(id): Path<String>) -> Response {
    let record = Uuid::try_parse(&id).ok().and_then(|id| admin.recorder.find(id));
    match record {
        Some(record) => Json(record).into_response(),
        None => (StatusCode::NOT_FOUND, "no such decision among the latest\n").into_response(),
    }
}

/// What the policy was given for a decision.
async fn decision_input(State(admin): State<AdminState>, Path(id): Path<String>) -> Response {
    let Ok(id) = Uuid::try_parse(&id) else {
        return (StatusCode::BAD_REQUEST, format!("`{id}` is not the id of a decision\n")).into_response();
    };
    match admin.recorder.policy_input(id) {
        Ok(input) => Json(input).into_response(),
        Err(error) => {
            let status = match error {
                PolicyInputError::UnknownDecision(_)
                | PolicyInputError::NoPolicy { .. }
                | PolicyInputError::ManyInputs(_) => StatusCode::NOT_FOUND,
                PolicyInputError::Displaced(_) => StatusCode::GONE,
            };
            (status, format!("{error}\n")).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header::HOST;
    use axum::http::{HeaderMap, HeaderValue};

    use super::is_called_by_address;

    fn called_by(hosts: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, HeaderValue::from_str(host).unwrap());
        }
        is_called_by_address(&headers)
    }

    #[test]
    fn only_requests_by_address_or_localhost_are_accepted() {
        for host in [
            "127.0.0.1:8081",
            "10.2.3.4",
            "[::1]:8081",
            "localhost",
            "LOCALHOST:8081",
        ] {
            assert!(called_by(&[host]), "{host}");
        }
        let names = [
            "evil.example",
            "evil.example:8081",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
        ];
        for host in names {
            assert!(!called_by(&[host]), "{host}");
        }
        assert!(!called_by(&["127.0.0.1", "evil.example"]));
        assert!(!called_by(&[]));
    }
}
