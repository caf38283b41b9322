//! Runs the stages of a request in order. Every request ends with exactly one answer and one
//! record. No other module knows the order.
//!
//! Invariant: no stage can be skipped or reordered, because each takes a type that only the stage
//! before it can make.

use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use http::{HeaderValue, Method, Request, Response, request};

mod applications;
pub mod applicationsets;
mod clusters;
mod door;
mod exchange;
mod extensions;
mod grpc;
mod kubernetes;
pub(crate) mod open;
mod platform;
mod projects;

pub use applications::Desk;
pub use applicationsets::Room;
pub use kubernetes::Services;
pub use open::{OpenExchanges, Withdrawn};

use extensions::ExtensionQuestion;
use open::Question;

use door::{Door, name_decision};

use crate::authorize::{self, Permit};
use crate::front::extensions::Call;
use crate::grpc::Api;
use crate::rejection::Rejection;
use crate::route::{self, ClusterRoute, Route};
use crate::snapshot::{Current, Snapshot};
use tollgate_config::Config;
use tollgate_core::attributes::Attributes;
use tollgate_identity::authenticate::agent::{self, CiTokens, Presented};
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_plugin::RequestContext;
use tollgate_proxy::assertion::{Signer, Statement};
use tollgate_proxy::forward::{self, Body, Limiter};
use tollgate_proxy::headers::{self, ClientFields, Outbound, Own};
use tollgate_proxy::metrics::Metrics;
use tollgate_proxy::record::{Open, Outcome, Recorder, Step, trace_id};
use tollgate_proxy::server::{Handler, Peer, Refusal};
use tollgate_proxy::target;
use tollgate_state::extensions::{LimitSpec, PersonLimitSpec};
use tollgate_state::source::Source;

/// Serves requests with the snapshot in force.
#[derive(Debug)]
pub struct Gateway {
    current: Current,
    recorder: Arc<Recorder>,
    metrics: Arc<Metrics>,
    signer: Signer,
    /// `/.well-known/jwks.json`: the public keys that verify assertions.
    public_keys: bytes::Bytes,
    persons: Arc<Limiter>,
    /// State of the Kubernetes front, if it is open.
    services: Option<Arc<Services>>,
    /// State of the Applications front, if it is open.
    applications: Option<Arc<Desk>>,
    /// State of the ApplicationSet front, if it is open.
    sets: Option<Arc<Room>>,
    /// Where objects are written.
    source: Arc<dyn Source>,
    /// Messages of the gRPC methods.
    grpc: Arc<Api>,
    /// Open exchanges of all fronts.
    open: Arc<OpenExchanges>,
}

/// State of the Kubernetes, Applications and ApplicationSet fronts that outlives a request. `None`
/// for a front that is closed.
pub type Fronts = (Option<Arc<Services>>, Option<Arc<Desk>>, Option<Arc<Room>>);

/// What the stages after authentication know of a request.
struct Walk<'a> {
    peer: &'a Arc<Peer>,
    snapshot: &'a Snapshot,
    principal: &'a Arc<Principal>,
    record: &'a mut Open,
}

impl Gateway {
    /// Makes a gateway over the snapshots of `current`.
    ///
    /// # Errors
    /// The key that signs assertions cannot be read or made.
    pub fn new(
        current: Current,
        recorder: Arc<Recorder>,
        metrics: Arc<Metrics>,
        (config, source): (&Config, Arc<dyn Source>),
        (services, applications, sets): Fronts,
        open: Arc<OpenExchanges>,
    ) -> anyhow::Result<Self> {
        let signer = signer(&config.extensions)?;
        let public_keys = serde_json::to_vec(signer.jwks())?.into();
        let concurrency = u32::try_from(config.limits.requests_per_person)
            .ok()
            .and_then(NonZeroU32::new);
        let per_person = PersonLimitSpec {
            concurrency,
            ..PersonLimitSpec::default()
        };
        let persons = Limiter::new(&LimitSpec {
            per_person,
            ..LimitSpec::default()
        });
        Ok(Self {
            current,
            sets,
            recorder,
            metrics,
            signer,
            public_keys,
            persons,
            services,
            applications,
            source,
            grpc: Arc::new(Api::new()?),
            open,
        })
    }

    async fn answer(&self, request: Request<Body>, peer: &Arc<Peer>) -> Response<Body> {
        let snapshot = self.current.load_full();
        let (head, body) = request.into_parts();
        let mut record = self.recorder.open(head.method.clone(), head.uri.path());
        let door = Door::of(&snapshot, Some(&head));
        record.note(|record| {
            record.generation = snapshot.generation;
            record.peer = Some(peer.address());
            record.trace_id = trace_id(&head.headers);
        });
        let decision = record.id();
        let mut response = match door.cors(&snapshot, &head) {
            Some(Err(error)) => {
                let rejection = Rejection::Origin(error);
                self.refused_at_the_door(&rejection, (peer, decision)).await;
                door.refuse(&rejection, record)
            }
            Some(Ok(cors)) => match cors.preflight(&head) {
                Some(answer) => {
                    record.close(Outcome::Allowed, answer.status(), "preflight");
                    answer.map(Body::from)
                }
                None => {
                    let mut response = self.recorded((head, body), (peer, &snapshot), record, door).await;
                    cors.apply(response.headers_mut());
                    response
                }
            },
            None => self.recorded((head, body), (peer, &snapshot), record, door).await,
        };
        name_decision(&mut response, decision);
        response
    }

    /// Runs the stages, and closes the record with the outcome.
    async fn recorded(
        &self,
        request: (request::Parts, Body),
        (peer, snapshot): (&Arc<Peer>, &Arc<Snapshot>),
        mut record: Open,
        door: Door,
    ) -> Response<Body> {
        let walked = AssertUnwindSafe(self.walk(request, peer, snapshot, &mut record))
            .catch_unwind()
            .await;
        match walked {
            Ok(Ok(response)) => {
                record.close(Outcome::Allowed, response.status(), "allowed");
                response
            }
            Ok(Err(rejection)) => {
                if door == Door::Agents && matches!(rejection, Rejection::Route(_)) {
                    self.refused_at_the_door(&rejection, (peer, record.id())).await;
                }
                door.refuse(&rejection, record)
            }
            Err(_) => door.refuse(&Rejection::Panicked, record),
        }
    }

    async fn refused_at_the_door(&self, rejection: &Rejection, at: (&Peer, uuid::Uuid)) {
        if let Some(services) = &self.services {
            services.refused_at_the_door(rejection, at).await;
        }
    }

    /// Runs the stages in order. Requests about the gateway itself return early.
    async fn walk(
        &self,
        (head, mut body): (request::Parts, Body),
        peer: &Arc<Peer>,
        snapshot: &Arc<Snapshot>,
        record: &mut Open,
    ) -> Result<Response<Body>, Rejection> {
        let uri = head.uri.clone();
        let route = route::route(&head.method, &uri, &head.headers)?;
        if matches!(route, Route::AssertionKeys) {
            return Ok(json(self.public_keys.clone()));
        }
        if let (Route::Kubernetes(path), Some(front), Some(services)) = (&route, &snapshot.kubernetes, &self.services) {
            let walk = kubernetes::Walk {
                peer,
                snapshot,
                front,
                services,
                open: &self.open,
                record,
            };
            return self.walk_kubernetes((head, body), path, walk).await;
        }
        if let (Route::AuthorizeProxyUser, Some(services)) = (&route, &self.services) {
            return services.answer_gateway((head, body), snapshot, record).await;
        }
        let (call, head) = match route {
            Route::Grpc(transport) => {
                let opened = self.open_call((head, body), transport, (snapshot, record)).await?;
                match opened {
                    grpc::Opened::Answered(response) => return Ok(response),
                    grpc::Opened::Call(call, head, content) => {
                        body = content;
                        (Some(call), *head)
                    }
                }
            }
            _ => (None, head),
        };
        if route == Route::Unknown && snapshot.kubernetes.is_some() && is_for_agents(&head) {
            return Err(Rejection::Prefix);
        }
        let safety = safety(&route, &head.method);
        let principal = snapshot.authenticator.authenticate(&head, safety).await;
        record.step(Step::Authenticate);
        let principal = principal?;
        if let Some(narrower) = &snapshot.narrowed_by
            && !narrower.authenticator.still(&principal)
        {
            return Err(Rejection::Forward(forward::Error::Withdrawn));
        }
        peer.mark_known();
        record.note(|record| record.principal = Some(Arc::clone(&principal)));
        if let Some(call) = call {
            let walk = applicationsets::Walk {
                snapshot,
                principal: &principal,
                record,
            };
            return self.walk_call((call, body), walk).await;
        }
        let path = match route {
            Route::Extension(path) => path,
            Route::Cluster(route) => {
                let walk = Walk {
                    peer,
                    snapshot,
                    principal: &principal,
                    record,
                };
                return self.walk_cluster((head, body), &route, walk).await;
            }
            Route::Application(path) => {
                let walk = Walk {
                    peer,
                    snapshot,
                    principal: &principal,
                    record,
                };
                return self.walk_application((head, body), &path, walk).await;
            }
            Route::Decision(id) => {
                let _held = self.persons.acquire(principal.key())?;
                return self.own_decision(id, &principal);
            }
            Route::Platform(route) => {
                let services = self.services.as_deref().ok_or(Rejection::NotFound)?;
                let _held = self.persons.acquire(principal.key())?;
                record.note(|record| record.front = "platform");
                let desk = platform::Desk::open(snapshot, services, &principal)?;
                return desk.answer(&route, (head, body), record).await;
            }
            Route::Project(route) => {
                let walk = Walk {
                    peer,
                    snapshot,
                    principal: &principal,
                    record,
                };
                return self.walk_project((head, body), &route, walk).await;
            }
            Route::ApplicationSet(route) => {
                let walk = applicationsets::Walk {
                    snapshot,
                    principal: &principal,
                    record,
                };
                return self.walk_applicationset((head, body), &route, walk).await;
            }
            Route::Grpc(_)
            | Route::Kubernetes(_)
            | Route::AuthorizeProxyUser
            | Route::AssertionKeys
            | Route::Unknown => {
                return Err(Rejection::NotFound);
            }
        };

        let call = Call::read(&path, &head, &snapshot.extensions)?;
        record.note(|record| note_call(record, &call));
        let caller = snapshot.callers.of(&principal, &snapshot.rbac);
        let permit = authorize::authorize(snapshot, &caller, call, record);
        record.step(Step::Authorize);
        let permit = Arc::new(permit?);
        let question = Question::Extension(ExtensionQuestion::new(&permit));
        let place = Arc::new(self.open.enter(question, (snapshot, record.id()))?);

        let permits = (
            self.persons.acquire(principal.key())?,
            permit.extension().limiter().acquire(principal.key())?,
        );
        let (fields, mut body) = match &permit.extension().spec().identity.allow_headers {
            None => (ClientFields::Unlisted, body),
            Some(listed) => (ClientFields::Listed(listed), body.without_trailers()),
        };
        let mut outbound = self
            .prepare(headers::clean_for(head, fields)?, &permit, snapshot, (peer, record))
            .await?;
        outbound.hold(permits);
        outbound.end_with(principal.expires_at(), record.id());
        outbound.end_on(place.ending());
        // The content may go on after the answer has ended.
        body.hold(Arc::clone(&place));
        outbound.hold(place);
        record.step(Step::Headers);

        let forwarded = permit.backend().forward(outbound, body).await;
        record.step(Step::Forward);
        self.count(&permit, record, &forwarded);
        self.finish(forwarded?, &permit, snapshot).await
    }

    /// Lets plugins and the policy edit the client's remaining fields. The host then writes its
    /// own.
    async fn prepare(
        &self,
        mut cleaned: headers::Cleaned,
        permit: &Permit,
        snapshot: &Snapshot,
        (peer, record): (&Arc<Peer>, &mut Open),
    ) -> Result<Outbound, Rejection> {
        let missing = snapshot.plugins.missing_required();
        if !missing.is_empty() {
            return Err(Rejection::PluginsMissing(missing.join(", ")));
        }
        let extension = permit.extension();
        let context = context(permit);
        for filter in snapshot.plugins.header_filters(extension.name()) {
            record.note(|record| record.plugins.push(Arc::clone(filter.label())));
            filter.request_plan().apply(cleaned.fields_mut());
            if filter.filters_requests() {
                filter.filter_request(&context, cleaned.fields_mut()).await?;
            }
        }
        for name in &permit.decision().remove_headers {
            cleaned.fields_mut().remove(name);
        }
        for (name, value) in &permit.decision().set_headers {
            cleaned.fields_mut().insert(name.clone(), value.clone());
        }
        let caller = permit.caller();
        let assertion = match &extension.spec().identity.assertion {
            Some(spec) => Some(self.signer.sign(spec, &statement(permit))?),
            None => None,
        };
        let call = permit.call();
        let own = Own {
            identity: caller.identity.as_ref().map_err(Clone::clone)?,
            subject: permit.subject().as_ref().map_err(Clone::clone)?,
            assertion: assertion.as_ref(),
        };
        let upstream = permit.backend().upstream();
        let path = target::join(upstream.base(), &call.rest, call.query.as_deref())?;
        Ok(cleaned.seal((upstream, path), &own, peer)?)
    }

    async fn finish(
        &self,
        mut response: Response<Body>,
        permit: &Permit,
        snapshot: &Snapshot,
    ) -> Result<Response<Body>, Rejection> {
        let context = context(permit);
        let status = response.status();
        for filter in snapshot.plugins.header_filters(permit.extension().name()) {
            filter.response_plan().apply(response.headers_mut());
            if filter.filters_responses() {
                filter.filter_response(&context, status, response.headers_mut()).await?;
            }
        }
        Ok(response)
    }

    /// Counts requests handed to a backend, as Argo CD does.
    fn count(&self, permit: &Permit, record: &Open, forwarded: &Result<Response<Body>, forward::Error>) {
        let status = match forwarded {
            Ok(response) => response.status(),
            Err(error) => error.status(),
        };
        let seconds = record.taken(Step::Forward).as_secs_f64();
        self.metrics
            .forwarded(permit.extension().spec(), status.as_u16(), seconds);
    }

    /// Returns the record of a decision about the caller. A decision about anyone else is reported
    /// as missing.
    fn own_decision(&self, id: uuid::Uuid, principal: &Principal) -> Result<Response<Body>, Rejection> {
        let record = self.recorder.find(id).filter(|record| {
            record.principal.as_ref().is_some_and(|owner| {
                owner.kind() == principal.kind()
                    && owner.issuer() == principal.issuer()
                    && owner.user_id() == principal.user_id()
            })
        });
        let record = record.ok_or(Rejection::NotFound)?;
        let view = tollgate_proxy::record::View::of(&record).for_caller();
        Ok(json(serde_json::to_string(&view).unwrap_or_default()))
    }
}

impl Handler for Gateway {
    async fn handle(&self, request: Request<Body>, peer: &Arc<Peer>) -> Response<Body> {
        self.answer(request, peer).await
    }

    fn refuse(&self, refusal: Refusal, head: Option<&request::Parts>, peer: &Arc<Peer>) -> Response<Body> {
        let snapshot = self.current.load();
        let mut record = match head {
            Some(head) => self.recorder.open(head.method.clone(), head.uri.path()),
            None => self.recorder.open_unread(),
        };
        record.note(|record| {
            record.generation = snapshot.generation;
            record.peer = Some(peer.address());
            record.trace_id = head.and_then(|head| trace_id(&head.headers));
        });
        let decision = record.id();
        let door = Door::of(&snapshot, head);
        let mut response = door.refuse(&Rejection::Server(refusal), record);
        // A page that is allowed to call may read why a request was refused.
        if let Some(Ok(cors)) = head.and_then(|head| door.cors(&snapshot, head)) {
            cors.apply(response.headers_mut());
        }
        name_decision(&mut response, decision);
        response
    }

    fn broken_off(&self, peer: &Arc<Peer>) {
        let generation = self.current.load().generation;
        // If it is dropped, it records `cancelled`.
        self.recorder.open_unread().note(|record| {
            record.generation = generation;
            record.peer = Some(peer.address());
            "the client went away in the request head".clone_into(&mut record.detail);
        });
    }
}

fn note_call(record: &mut tollgate_proxy::record::Record, call: &Call) {
    record.front = "extensions";
    record.extension = Some(Arc::clone(&call.asked.name));
    record.application = call.asked.subject.application().cloned();
    record.project = call.asked.subject.project().map(str::to_owned);
}

fn context(permit: &Permit) -> RequestContext<'_> {
    let principal = &permit.caller().principal;
    let call = permit.call();
    RequestContext {
        extension: permit.extension().name(),
        method: call.method.as_str(),
        path: &call.rest,
        user: Some(principal.username()),
        groups: principal.groups(),
        application: call.application.as_deref(),
        project: call.asked.subject.project(),
        cluster: permit.destination().map(|cluster| cluster.name.as_str()),
    }
}

fn statement(permit: &Permit) -> Statement<'_> {
    let principal = &permit.caller().principal;
    let subject = &permit.call().asked.subject;
    Statement {
        subject: principal.user_id(),
        username: principal.username(),
        groups: principal.groups(),
        application: subject
            .application()
            .map(|app| (app.namespace.as_str(), app.name.as_str())),
        project: subject.project(),
        caller_expires_at: principal.expires_at().map(jiff::Timestamp::as_second),
    }
}

/// Returns the key of the settings, or a new one that lives as long as the process.
fn signer(settings: &tollgate_config::Extensions) -> anyhow::Result<Signer> {
    let issuer = settings.assertion_issuer.clone();
    let Some(path) = &settings.assertion_key else {
        return Ok(Signer::generate(issuer)?);
    };
    let named =
        |error: &dyn std::fmt::Display| anyhow::anyhow!("`extensions.assertion.key` {}: {error}", path.display());
    let pem = std::fs::read_to_string(path).map_err(|error| named(&error))?;
    Signer::from_pem(issuer, &secrecy::SecretString::from(pem)).map_err(|error| named(&error))
}

/// What the route adds to the safety of the method.
// SECURITY: requests into clusters are judged by their Kubernetes verb, because some that come by
// `GET` run programs. Handing out a credential mints it first.
fn safety(route: &Route<'_>, method: &Method) -> Safety {
    let (rest, query) = match route {
        Route::Cluster(ClusterRoute::Forward(path)) => (path.rest, path.query),
        Route::Application(path) => (path.rest, path.query),
        Route::Cluster(ClusterRoute::Credential { .. }) => return Safety::Unsafe,
        Route::Cluster(ClusterRoute::List)
        | Route::Extension(_)
        | Route::Decision(_)
        | Route::Platform(_)
        | Route::Project(_)
        | Route::ApplicationSet(_)
        | Route::Grpc(_)
        | Route::Kubernetes(_)
        | Route::AuthorizeProxyUser
        | Route::AssertionKeys
        | Route::Unknown => return Safety::ByMethod,
    };
    // An upgrade is unsafe by itself.
    match Attributes::read(method, rest, query, None).is_plain_read(method) {
        true => Safety::ByMethod,
        false => Safety::Unsafe,
    }
}

/// Whether only the Kubernetes front accepts the credential.
fn is_for_agents(head: &request::Parts) -> bool {
    match agent::read(head, CiTokens::Taken) {
        Ok(Presented::Pat { .. } | Presented::Ci { .. } | Presented::Cookie { .. }) => true,
        Ok(Presented::IdToken(_)) | Err(_) => false,
    }
}

fn json(text: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(text.into()));
    let fields = response.headers_mut();
    fields.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
