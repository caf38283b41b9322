//! What a front is: [`Front`], and the [`RequestContext`] its stages take. Determines from a request's path which front it belongs to, and with that the format of its
//! errors and which other origins may call. Who calls plays no part.

use std::sync::Arc;

use http::header::{HeaderName, ORIGIN};
use http::{HeaderValue, Method, Response, request};

use crate::applicationsets::grpc;
use crate::applicationsets::grpc::Transport;
use crate::kubernetes::origin::Cors;
use crate::kubernetes::{self, origin};
use crate::pipeline::Gateway;
use crate::rejection::{ErrorFormat, Rejection};
use crate::snapshot::Snapshot;
use crate::{applications, applicationsets, platform};
use tollgate_core::attributes::Attributes;
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::Open;
use tollgate_proxy::server::Peer;

/// What the stages after authentication know of a request.
pub(crate) struct RequestContext<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) peer: &'a Arc<Peer>,
    pub(crate) snapshot: &'a Arc<Snapshot>,
    pub(crate) principal: &'a Arc<Principal>,
    pub(crate) record: &'a mut Open,
}

/// A front, implemented by its part of the route: one kind of request, and how it is decided and
/// answered after authentication.
pub(crate) trait Front {
    /// What the route adds to the safety of the method.
    fn safety(&self, _method: &Method) -> Safety {
        Safety::ByMethod
    }

    /// Runs the stages authorize, impersonate, credential, headers and forward, as far as the
    /// front has them.
    ///
    /// # Errors
    /// The stage that refuses the request, or cannot do its work.
    fn serve(
        &self,
        context: RequestContext<'_>,
        request: (request::Parts, Body),
    ) -> impl Future<Output = Result<Response<Body>, Rejection>> + Send;
}

/// The safety of a request into a cluster.
// SECURITY: it is judged by its Kubernetes verb, because some requests that come by `GET` run
// programs. An upgrade is unsafe by itself.
pub(crate) fn safety_in_cluster(method: &Method, rest: &str, query: Option<&str>) -> Safety {
    match Attributes::read(method, rest, query, None).is_plain_read(method) {
        true => Safety::ByMethod,
        false => Safety::Unsafe,
    }
}

const DECISION_ID: HeaderName = HeaderName::from_static("tollgate-decision-id");

/// The front a request comes in by, well-formed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrontKind {
    /// The clusters of agents.
    Agents,
    /// The clusters of Applications.
    Applications,
    /// ApplicationSets.
    ApplicationSets,
    /// ApplicationSets, by gRPC.
    Grpc(Transport),
    /// Everything else.
    Other(ErrorFormat),
}

impl FrontKind {
    pub(crate) fn of(snapshot: &Snapshot, head: Option<&request::Parts>) -> Self {
        let path = head.map_or("", |head| head.uri.path());
        let sets = snapshot.config.application_sets.is_some();
        let transport = head
            .filter(|_| sets)
            .and_then(|head| Transport::of(&head.method, path, &head.headers));
        if let Some(transport) = transport {
            return Self::Grpc(transport);
        }
        if snapshot.kubernetes.is_some() && kubernetes::route::is_kubernetes(path) {
            Self::Agents
        } else if snapshot.config.applications.is_some() && applications::route::is_application(path) {
            Self::Applications
        } else if sets && applicationsets::route::is_application_sets(path) {
            Self::ApplicationSets
        } else {
            Self::Other(ErrorFormat::of(snapshot.config.extensions.compatibility))
        }
    }

    /// The format of answers to its clients.
    fn error_format(self) -> ErrorFormat {
        match self {
            Self::Agents | Self::Applications => ErrorFormat::Kubernetes,
            Self::ApplicationSets | Self::Grpc(_) => ErrorFormat::ApplicationSets,
            Self::Other(voice) => voice,
        }
    }

    /// What browsers of other origins may do on the fronts they may call.
    pub(crate) fn cors(self, snapshot: &Snapshot, head: &request::Parts) -> Option<Result<Cors, origin::Forbidden>> {
        let settings = snapshot.config.kubernetes.as_ref()?;
        if platform::route::allows_cors(head.uri.path()) && head.headers.contains_key(ORIGIN) {
            // Here, as everywhere in the API, a request from another origin passes without CORS
            // fields, or is refused for other reasons.
            return origin::check(head, &settings.allowed_origins).ok().map(Ok);
        }
        (self == Self::Agents).then(|| origin::check(head, &settings.allowed_origins))
    }

    /// Closes the record and answers the client.
    pub(crate) fn refuse(self, rejection: &Rejection, mut record: Open) -> Response<Body> {
        // Clients of Kubernetes read no other format, wherever the request failed.
        let voice = match rejection {
            Rejection::WrongPrefix => ErrorFormat::Kubernetes,
            _ => self.error_format(),
        };
        let answer = rejection.answer(voice);
        let decision = record.id();
        record.note(|record| record.detail = rejection.detail());
        record.close(answer.outcome, answer.status, answer.reason);
        if let Self::Grpc(transport) = self {
            return grpc::refuse(transport, &answer);
        }
        answer.into_response(decision, voice).map(Body::from)
    }
}

/// Tells the caller which decision an answer belongs to.
pub(crate) fn set_decision_header(response: &mut Response<Body>, decision: uuid::Uuid) {
    let mut text = uuid::Uuid::encode_buffer();
    if let Ok(value) = HeaderValue::from_str(decision.hyphenated().encode_lower(&mut text)) {
        response.headers_mut().insert(DECISION_ID, value);
    }
}
