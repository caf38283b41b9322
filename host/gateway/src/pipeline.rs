//! Runs the stages of a request in order. Every request ends with exactly one response and one
//! record. No other module knows the order.
//!
//! Invariant: no stage can be skipped or reordered, because each takes a type that only the stage
//! before it can make.

use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, request};
use http_body::Body as _;

use crate::admin::AdminState;
use crate::applicationsets::ApplicationSetsFrontState;
use crate::applicationsets::grpc::open::Opened;
use crate::applicationsets::grpc::{self, MessageCodec};
use crate::argocd::{self, MethodIndex};
use crate::blocking::BlockingWork;
use crate::console::{self, is_of_page};
use crate::control_plane::route::ControlPlanePath;
use crate::front::{Arrival, FrontKind, RequestContext, RouteHandler, Services, set_decision_header};
use crate::fronts::Fronts;
use crate::kubernetes;
use crate::kubernetes::{KubernetesFrontState, KubernetesRequest};
use crate::open_exchanges::OpenExchanges;
use crate::route::{self, Fallback, Route};
use crate::sign_in::route::is_console;
use crate::sign_in::theme::Theme;
use crate::sign_in::{self, RefusedPage, SignIn, SignInState};
use crate::snapshot::Snapshot;
use crate::strangers::Strangers;
use tollgate_config::{Config, ConsoleHost};
use tollgate_front::{Denial, api};
use tollgate_identity::authenticate::k8s_proxy::{self, CiTokenSupport, PresentedCredential};
use tollgate_identity::authenticate::login::is_for_console;
use tollgate_identity::authenticate::{self, Principal, Safety};
use tollgate_identity::clock::Clock;
use tollgate_identity::sessions::EndReason;
use tollgate_objects::extensions::{LimitSpec, PersonLimitSpec};
use tollgate_policy::rego::Checker;
use tollgate_proxy::agents;
use tollgate_proxy::assertion::SigningKeys;
use tollgate_proxy::forward::{self, ArgocdBackend, Body, Limiter};
use tollgate_proxy::record::{OpenRecord, Outcome, Recorder, Stage};
use tollgate_proxy::server::{Client, Handler, HandshakeFailure, RequestReadError};
use tollgate_proxy::target;
use tollgate_state::source::Source;
use tollgate_store::Store;

#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) signer: Arc<SigningKeys>,
    /// `/.well-known/jwks.json`: the public keys that verify assertions.
    pub(crate) persons: Arc<Limiter>,
    /// As `persons`, for pages of the console. What a page asks counts in `persons`.
    pub(crate) pages: Arc<Limiter>,
    /// What argocd-server serves to people who are not signed in.
    pub(crate) strangers_at_argocd: Strangers,
    pub(crate) blocking: Arc<BlockingWork>,
    // Each state is `None` while its front is closed.
    pub(crate) kubernetes_state: Option<Arc<KubernetesFrontState>>,
    pub(crate) fronts: Fronts,
    pub(crate) application_sets_state: Option<Arc<ApplicationSetsFrontState>>,
    pub(crate) sign_in: Option<SignInState>,
    /// Where objects are written.
    pub(crate) source: Arc<dyn Source>,
    pub(crate) grpc: Arc<MessageCodec>,
    pub(crate) open: Arc<OpenExchanges>,
    /// What serves everything that is not Tollgate's own.
    pub(crate) argocd: Option<ArgocdBackend>,
    pub(crate) argocd_methods: MethodIndex,
    /// Evaluates policies for whoever tries them.
    pub(crate) checker: Checker,
    /// The state of the process, as the admin listener has it.
    pub(crate) status: AdminState,
}

/// State of the fronts that outlives reloads of the snapshot. `None` for a front that is closed.
pub(crate) type FrontStates = (
    Option<Arc<KubernetesFrontState>>,
    Option<Arc<ApplicationSetsFrontState>>,
    Option<SignInState>,
);

impl Gateway {
    /// # Errors
    /// The key that signs assertions cannot be read or made, or the file `argocd.ca` cannot be used.
    pub(crate) fn new(
        (config, source): (&Config, Arc<dyn Source>),
        (kubernetes_state, application_sets_state, sign_in): FrontStates,
        (open, store, clock): (Arc<OpenExchanges>, Option<&Arc<Store>>, &Clock),
        (status, checker): (AdminState, Checker),
    ) -> anyhow::Result<Self> {
        let signer = Arc::new(signer(&config.extensions)?);
        let concurrency = u32::try_from(config.limits.requests_per_person).ok();
        let per_person = PersonLimitSpec {
            concurrency: concurrency.and_then(NonZeroU32::new),
            ..PersonLimitSpec::default()
        };
        let limits = LimitSpec {
            per_person,
            ..LimitSpec::default()
        };
        let blocking = Arc::<BlockingWork>::default();
        let fronts = Fronts::open(&Services {
            source: &source,
            blocking: &blocking,
            config,
            clock,
            metrics: &status.metrics,
            signer: &signer,
            agents: &status.agents,
            store,
            extras: &status.checks.extras,
        });
        Ok(Self {
            application_sets_state,
            signer,
            persons: Limiter::new(&limits),
            pages: Limiter::new(&limits),
            strangers_at_argocd: Strangers::at_argocd(&config.limits),
            blocking,
            kubernetes_state,
            fronts,
            sign_in,
            source,
            grpc: Arc::new(MessageCodec::try_new()?),
            open,
            argocd: config.argocd.as_ref().map(argocd::backend).transpose()?,
            argocd_methods: MethodIndex::try_new()?,
            checker,
            status,
        })
    }

    fn open_record(&self, head: Option<&request::Parts>, at: (&Client, &Snapshot)) -> OpenRecord {
        open_record(&self.status.recorder, head, at)
    }

    /// Runs the stages, and closes the record with the outcome.
    async fn recorded(
        &self,
        request: (request::Parts, Body),
        (client, snapshot): (&Arc<Client>, Arc<Snapshot>),
        mut record: OpenRecord,
        (front_kind, fallback): (FrontKind, Fallback),
    ) -> Response<Body> {
        let sent_bytes = request.1.size_hint().exact();
        let outcome = AssertUnwindSafe(self.run_stages(request, fallback, (client, snapshot), &mut record))
            .catch_unwind()
            .await;
        match outcome {
            Ok(Ok(response)) => {
                let (outcome, reason) = match response.extensions().get::<RefusedPage>() {
                    Some(RefusedPage(reason)) => (Outcome::Denied, *reason),
                    None => (Outcome::Allowed, "allowed"),
                };
                let mut front = "none";
                record.note(|record| front = record.front);
                let received_bytes = response.body().size_hint().exact();
                self.status
                    .metrics
                    .load
                    .observe_sizes(front, sent_bytes, received_bytes);
                record.close(outcome, response.status(), reason);
                response
            }
            Ok(Err(denial)) => {
                if front_kind == FrontKind::Agents && denial.cause::<target::Error>().is_some() {
                    self.audit_early_refusal(&denial, (client, record.id())).await;
                }
                front_kind.refuse(&denial, record)
            }
            Err(_) => front_kind.refuse(&Denial::panicked(), record),
        }
    }

    async fn audit_early_refusal(&self, denial: &Denial, at: (&Client, uuid::Uuid)) {
        if let Some(front_state) = &self.kubernetes_state {
            front_state.audit_early_refusal(denial, at).await;
        }
    }

    /// Runs the stages in order. Requests about the gateway itself return early.
    ///
    /// - `snapshot`: dropped by a front before it waits for the response of another server.
    async fn run_stages(
        &self,
        (mut head, mut body): (request::Parts, Body),
        fallback: Fallback,
        (client, snapshot): (&Arc<Client>, Arc<Snapshot>),
        record: &mut OpenRecord,
    ) -> Result<Response<Body>, Denial> {
        if let Some(authority) = client.connect_authority() {
            return self
                .serve_tunneled((head, body), (client, authority), snapshot, record)
                .await;
        }
        let uri = head.uri.clone();
        let route = route::route(&head.method, &uri, &head.headers, fallback)?;
        if matches!(route, Route::AssertionKeys) {
            return Ok(api::json(serde_json::to_vec(&self.signer.jwks()).unwrap_or_default()));
        }
        if matches!(route, Route::Agent) {
            // Without a cluster that has an agent, strangers would be the only ones who connect.
            if !self.status.agents.expects_agents() {
                return Err(Denial::not_found());
            }
            // Whoever opens it proves who they are within.
            record.note(|record| record.front = "agents");
            return Ok(agents::accept(&mut head, client, &self.status.agents)?);
        }
        if is_console(uri.path()) || matches!(&route, Route::Login(login) if sign_in::is_public(login)) {
            return self.sign_in((route, head, body), (client, &snapshot), record).await;
        }
        if let Route::Kubernetes(path) = route
            && let Some(front) = KubernetesRequest::of(path, self, &snapshot)
        {
            let context = RequestContext {
                gateway: self,
                client,
                snapshot,
                principal: &(),
                record,
            };
            return front.serve(context, (head, body)).await;
        }
        // A token of an agent is for nothing else, and kubectl reads the answer.
        let is_beside_prefix = matches!(route, Route::Argocd(_) | Route::Unknown);
        if is_beside_prefix && snapshot.policies.kubernetes.is_some() && is_for_agents(&head) {
            return Err(kubernetes::wrong_prefix());
        }
        if let Route::Argocd(route) = route {
            let context = RequestContext {
                gateway: self,
                client,
                snapshot,
                principal: &(),
                record,
            };
            return route.serve(context, (head, body)).await;
        }
        if let (Route::AuthorizeProxyUser, Some(front_state)) = (&route, &self.kubernetes_state) {
            return front_state.answer_gateway((head, body), &snapshot, record).await;
        }
        if let (Route::Grpc(_), Some(error)) = (&route, console_host_error(&snapshot, &head)) {
            return Err(error.into());
        }
        let (route, head) = match route {
            Route::Grpc(transport) => match self.open_call((head, body), transport, (&snapshot, record)).await? {
                Opened::Answered(response) => return Ok(response),
                Opened::Call(call, head, content) => {
                    body = content;
                    (Route::Call(call), *head)
                }
            },
            route => (route, head),
        };
        let safety = safety(&route, &head.method);
        let principal = self.authenticate(&head, safety, (client, &snapshot), record).await?;
        route.check_scope(&principal)?;
        let context = RequestContext {
            gateway: self,
            client,
            snapshot,
            principal: &principal,
            record,
        };
        let request = (head, body);
        match route {
            Route::Login(route) => {
                let state = self.sign_in.as_ref().ok_or_else(sign_in::no_console)?;
                let mut sign_in = SignIn {
                    gateway: self,
                    state,
                    client,
                    snapshot: &context.snapshot,
                    record: context.record,
                    theme: Theme::of(&request.0.headers),
                };
                sign_in.private(&route, &principal, request).await
            }
            Route::Front(target, _) => self.fronts.serve(target, context, request).await,
            Route::ApplicationSet(route) => route.serve(context, request).await,
            Route::Platform(route) => route.serve(context, request).await,
            Route::Operations(route) => route.serve(context, request).await,
            Route::Call(call) => call.serve(context, request).await,
            Route::Grpc(_)
            | Route::Kubernetes(_)
            | Route::Argocd(_)
            | Route::AuthorizeProxyUser
            | Route::AssertionKeys
            | Route::Agent
            | Route::Console(_)
            | Route::Unknown => Err(Denial::not_found()),
        }
    }

    /// Answers the pages of the console, and what `tollgate login` asks before it has a login.
    async fn sign_in(
        &self,
        (route, head, body): (Route<'_>, request::Parts, Body),
        (client, snapshot): (&Arc<Client>, &Arc<Snapshot>),
        record: &mut OpenRecord,
    ) -> Result<Response<Body>, Denial> {
        let state = self.sign_in.as_ref();
        let mut sign_in = SignIn {
            gateway: self,
            state: state.ok_or_else(sign_in::no_console)?,
            client,
            snapshot,
            record,
            theme: Theme::of(&head.headers),
        };
        match route {
            Route::Console(route) => sign_in.page(route, (head, body)).await,
            Route::Login(route) => sign_in.public(&route, (head, body)).await,
            _ => Err(Denial::not_found()),
        }
    }

    /// Runs the stages of a request in a tunnel of Argo CD's own components. Nothing else is served
    /// there.
    async fn serve_tunneled(
        &self,
        (head, body): (request::Parts, Body),
        (client, authority): (&Arc<Client>, &Authority),
        snapshot: Arc<Snapshot>,
        record: &mut OpenRecord,
    ) -> Result<Response<Body>, Denial> {
        let uri = head.uri.clone();
        let path = ControlPlanePath::read(authority, &uri)?;
        let safety = path.safety(&head.method);
        let principal = self.authenticate(&head, safety, (client, &snapshot), record).await?;
        let context = RequestContext {
            gateway: self,
            client,
            snapshot,
            principal: &principal,
            record,
        };
        path.serve(context, (head, body)).await
    }

    pub(crate) async fn authenticate(
        &self,
        head: &request::Parts,
        safety: Safety,
        (client, snapshot): (&Client, &Snapshot),
        record: &mut OpenRecord,
    ) -> Result<Arc<Principal>, Denial> {
        let principal = snapshot.authenticator.authenticate(head, safety).await;
        Self::accept(principal, (client, snapshot), record)
    }

    /// As [`Gateway::authenticate`], for requests to argocd-server, which knows no login of the gateway.
    pub(crate) async fn authenticate_by_token(
        &self,
        head: &request::Parts,
        (client, snapshot): (&Client, &Snapshot),
        record: &mut OpenRecord,
    ) -> Result<Arc<Principal>, Denial> {
        let principal = snapshot.authenticator.authenticate_by_token(head).await;
        Self::accept(principal, (client, snapshot), record)
    }

    /// Notes a caller who was verified, unless a refused load took their access away.
    fn accept(
        principal: Result<Arc<Principal>, authenticate::Error>,
        (client, snapshot): (&Client, &Snapshot),
        record: &mut OpenRecord,
    ) -> Result<Arc<Principal>, Denial> {
        record.finish_stage(Stage::Authenticate);
        let principal = principal?;
        if let Some(narrower) = &snapshot.narrowed_by
            && !narrower.authenticator.is_still_valid(&principal)
        {
            return Err(forward::Error::Ended(EndReason::Withdrawn).into());
        }
        client.mark_authenticated();
        record.note(|record| record.principal = Some(Arc::clone(&principal)));
        Ok(principal)
    }
}

/// Opens the record of a request on any listener that decides.
///
/// - `head`: `None` if it was not read.
pub(crate) fn open_record(
    recorder: &Arc<Recorder>,
    head: Option<&request::Parts>,
    (client, snapshot): (&Client, &Snapshot),
) -> OpenRecord {
    let mut record = match head {
        Some(head) => recorder.open(head.method.clone(), head.uri.path()),
        None => recorder.open_unread(),
    };
    record.note(|record| {
        record.generation = snapshot.generation;
        record.client = Some(client.address());
        record.peer = Some(client.peer_address());
    });
    record.trace(head.map(|head| &head.headers));
    record
}

impl Handler for Gateway {
    async fn handle(&self, request: Request<Body>, client: &Arc<Client>) -> Response<Body> {
        let snapshot = self.status.current.load_full();
        let (mut head, body) = request.into_parts();
        let mut record = self.open_record(Some(&head), (client, &snapshot));
        record.continue_trace(&mut head.headers);
        if is_of_page(&head.extensions) {
            record.note(|record| record.is_of_page = console::reads(&head.method));
        }
        let fields = (&head.headers, &head.extensions);
        let fallback = Fallback::take((&snapshot.policies.config, client), &mut head.uri, fields);
        let arrival = Arrival {
            head: &head,
            uri: &head.uri,
            fallback,
        };
        let front_kind = FrontKind::of(&snapshot, client, Some(arrival));
        let decision = record.id();
        let is_beside_console = front_kind.is_beside_console(&snapshot, &head);
        let is_root = head.uri.path() == "/" && head.method == Method::GET;
        let mut response = match front_kind.cors(&snapshot, &head, head.uri.path()) {
            // People type the host name alone.
            _ if is_beside_console && is_root => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::SEE_OTHER;
                let there = HeaderValue::from_static("/console/");
                response.headers_mut().insert(http::header::LOCATION, there);
                record.close(Outcome::Allowed, response.status(), "to_console");
                response
            }
            Some(Err(error)) => {
                let denial = Denial::from(error);
                self.audit_early_refusal(&denial, (client, decision)).await;
                front_kind.refuse(&denial, record)
            }
            Some(Ok(cors)) => match cors.preflight(&head) {
                Some(answer) => {
                    record.close(Outcome::Allowed, answer.status(), "preflight");
                    answer.map(Body::from)
                }
                None => {
                    let mut response = self
                        .recorded((head, body), (client, snapshot), record, (front_kind, fallback))
                        .await;
                    cors.apply(response.headers_mut());
                    response
                }
            },
            None => {
                self.recorded((head, body), (client, snapshot), record, (front_kind, fallback))
                    .await
            }
        };
        if is_beside_console {
            // SECURITY: a page of a cluster or a backend gets an origin of its own, so that it cannot act
            // as whoever is signed in to the console.
            let sandbox = HeaderValue::from_static("sandbox");
            response
                .headers_mut()
                .append(http::header::CONTENT_SECURITY_POLICY, sandbox);
        }
        set_decision_header(&mut response, decision);
        response
    }

    fn refuse(&self, refusal: RequestReadError, head: Option<&request::Parts>, client: &Arc<Client>) -> Response<Body> {
        let snapshot = self.status.current.load();
        let record = self.open_record(head, (client, &snapshot));
        let decision = record.id();
        let mut uri = head.map_or_else(Uri::default, |head| head.uri.clone());
        let arrival = head.map(|head| {
            let fallback = Fallback::take(
                (&snapshot.policies.config, client),
                &mut uri,
                (&head.headers, &head.extensions),
            );
            (head, fallback)
        });
        let arrival = arrival.map(|(head, fallback)| Arrival {
            head,
            uri: &uri,
            fallback,
        });
        let front_kind = FrontKind::of(&snapshot, client, arrival);
        let mut response = front_kind.refuse(&Denial::from(refusal), record);
        // A page that is allowed to call may read why a request was refused.
        if let Some(Ok(cors)) = head.and_then(|head| front_kind.cors(&snapshot, head, uri.path())) {
            cors.apply(response.headers_mut());
        }
        set_decision_header(&mut response, decision);
        response
    }

    fn accepts_connect(&self) -> bool {
        self.status.current.load().policies.config.control_plane.is_some()
    }

    fn on_failed_handshake(&self, failure: HandshakeFailure) {
        self.status.metrics.load.count_failed_handshake("public", failure);
    }

    fn on_incomplete_head(&self, client: &Arc<Client>) {
        // Dropping the record closes it with the outcome `cancelled`.
        self.open_record(None, (client, &self.status.current.load()))
            .note(|record| {
                "the client went away in the request head".clone_into(&mut record.detail);
            });
    }
}

/// Returns the key of the settings, or a new one that lives as long as the process.
fn signer(settings: &tollgate_config::Extensions) -> anyhow::Result<SigningKeys> {
    let issuer = settings.assertion_issuer.clone();
    let Some(path) = &settings.assertion_key else {
        return Ok(SigningKeys::generate(issuer)?);
    };
    SigningKeys::follow("extensions.assertion.key", path, issuer).map_err(anyhow::Error::msg)
}

fn safety(route: &Route<'_>, method: &http::Method) -> Safety {
    match route {
        Route::Front(target, _) => target.safety(method),
        Route::ApplicationSet(route) => route.safety(method),
        Route::Platform(route) => route.safety(method),
        Route::Operations(_)
        | Route::Console(_)
        | Route::Login(_)
        | Route::Grpc(_)
        | Route::Call(_)
        | Route::Kubernetes(_)
        | Route::Argocd(_)
        | Route::AuthorizeProxyUser
        | Route::AssertionKeys
        | Route::Agent
        | Route::Unknown => Safety::ByMethod,
    }
}

/// Whether only the Kubernetes front accepts the credential.
/// The error for a call of argocd-server's that was sent to the console's own host.
fn console_host_error(snapshot: &Snapshot, head: &request::Parts) -> Option<grpc::Error> {
    let config = &snapshot.policies.config;
    let console = config.authentication.console.as_ref()?;
    let is_own = console.host == ConsoleHost::Own && is_for_console(&head.uri, &head.headers, console);
    if config.argocd.is_none() || !is_own || grpc::Method::is_served(head.uri.path()) {
        return None;
    }
    let url = snapshot.policies.resources.argocd_cm.data.get("url");
    Some(grpc::Error::ConsoleHost {
        path: head.uri.path().trim_start_matches('/').to_owned(),
        host: console.url.authority().to_owned(),
        argocd: url.map(|url| url.value.to_string()).filter(|url| !url.is_empty()),
    })
}

fn is_for_agents(head: &request::Parts) -> bool {
    let read = k8s_proxy::read(head, CiTokenSupport::Accepted);
    matches!(read, Ok(PresentedCredential::Query(_)))
}
